-- roles: aggregator
-- keys: 1 lease r, 2 inbox rwd, 3 eval rwd, 4 news rwd, 5 pending rwd, 6 units_done rwd,
--       7 units rwd, 8 unit_groups rwd, 9 unit_specs rwd, 10 unit_holders rwd, 11 free_units rwd,
--       12 free_groups rwd, 13 reissue rwd, 14 workers rwd, 15 beats rwd, 16 tickets rwd,
--       17 model rwd, 18 seen rwd
-- Mends keys that a worker's account may write and no worker of ours leaves so: of a wrong type,
-- streams whose entry ids are used up, a ticket count that is no number, too many workers or beats.
-- Returns the number of each such key and, of such a stream, the id of its last entry.
-- ARGV: 1 epoch 2.. type of each key from the second on
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
local answer = {'OK'}
local function mended(key, last)
  table.insert(answer, tostring(key))
  table.insert(answer, last)
end
-- The first id of the year 33658.
local far = '1000000000000000'
for i = 2, #KEYS do
  local type = redis.call('TYPE', KEYS[i]).ok
  if type ~= 'none' and type ~= ARGV[i] then
    redis.call('UNLINK', KEYS[i])
    mended(i, '')
  elseif type == 'stream' then
    local last = ''
    local info = redis.call('XINFO', 'STREAM', KEYS[i])
    for f = 1, #info - 1, 2 do
      if info[f] == 'last-generated-id' then last = info[f + 1] end
    end
    if #string.match(last, '^%d*') >= #far then
      local entries = redis.call('XRANGE', KEYS[i], far, '+', 'COUNT', 100)
      while #entries > 0 do
        for _, entry in ipairs(entries) do
          redis.call('XDEL', KEYS[i], entry[1])
          -- Its name: the result may be pushed again, the unit planned again.
          for f = 1, #entry[2] - 1, 2 do
            if entry[2][f] == 'id' then
              redis.pcall('HDEL', KEYS[5], entry[2][f + 1])
              redis.pcall('HDEL', KEYS[6], entry[2][f + 1])
            end
          end
        end
        entries = redis.call('XRANGE', KEYS[i], far, '+', 'COUNT', 100)
      end
      -- Made anew: Redis 8 keeps the last id of a stream above all ids that were deleted.
      local kept, start = {}, '-'
      last = '0-1'
      repeat
        entries = redis.call('XRANGE', KEYS[i], start, '+', 'COUNT', 16)
        for _, entry in ipairs(entries) do
          local bytes = 0
          for _, field in ipairs(entry[2]) do bytes = bytes + #field end
          -- Larger ones are not ours.
          if #entry[2] <= 16 and bytes <= 1048576 then table.insert(kept, entry) end
          start, last = '(' .. entry[1], entry[1]
        end
      until #entries == 0
      redis.call('UNLINK', KEYS[i])
      for _, entry in ipairs(kept) do redis.call('XADD', KEYS[i], entry[1], unpack(entry[2])) end
      mended(i, last)
    end
  end
end
local tickets = redis.call('GET', KEYS[16])
if tickets and not string.match(tickets, '^%d+$') then
  redis.call('UNLINK', KEYS[16])
  mended(16, '')
end
-- Beats of workers that nobody knows, and more workers than there can be.
local workers = redis.call('ZCARD', KEYS[14])
if workers > 100000 then
  redis.call('UNLINK', KEYS[14])
  redis.call('UNLINK', KEYS[15])
  mended(14, '')
elseif redis.call('HLEN', KEYS[15]) > workers + 100 then
  local beats = {}
  for _, worker in ipairs(redis.call('ZRANGE', KEYS[14], 0, -1)) do
    beats[worker] = redis.call('HGET', KEYS[15], worker) or nil
  end
  redis.call('UNLINK', KEYS[15])
  for worker, beat in pairs(beats) do redis.call('HSET', KEYS[15], worker, beat) end
  mended(15, '')
end
return answer
