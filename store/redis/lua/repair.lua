-- roles: aggregator
-- keys: 1 lease r, 2 inbox rwd, 3 eval rwd, 4 news rwd, 5 pending rwd, 6 units_done rwd,
--       7 units rwd, 8 unit_groups rwd, 9 unit_holders rwd, 10 free_units rwd, 11 free_groups rwd,
--       12 reissue rwd, 13 workers rwd, 14 beats rwd, 15 tickets rwd, 16 model rwd, 17 seen rwd,
--       18 unit_specs r, 19 counted_tickets r, 20 audit_answers rd
-- Mends keys that a worker's account may write and no worker of ours leaves so: of a wrong type, with
-- more bytes or entries than they can need, streams whose entry ids are used up, a ticket count that
-- no run reaches or that is below tickets that were handed out. What is deleted is pushed, planned or said again. Also looks at some planned units.
-- Returns the cursor for the units to look at next, whether one of these is neither open nor
-- recorded ('1'), and the number of each mended key. Can also end all claims on units.
-- ARGV: 1 epoch 2 cursor of units 3 most results in the inbox 4 most reissued tickets 5 most workers
--       6 most bytes of a result 7 most bytes of an evaluation 8 '1' to forget the model
--       9 tickets that were handed out at least 10 '1' to end the claims on units 11.. type of each key from the second to the seventeenth
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
local answer, broken = {'OK', '0', '0'}, {}
local function mended(key)
  broken[key] = true
  table.insert(answer, tostring(key))
end
-- The first id of the year 33658.
local far = '1000000000000000'
local planned = redis.call('HLEN', KEYS[18])
local results = tonumber(ARGV[3])
-- Most bytes of each key, and most entries of streams.
local most = {
  [2] = 1048576 + results * tonumber(ARGV[6]), [3] = 1048576 + planned * tonumber(ARGV[7]),
  [4] = 65536, [14] = 33554432, [15] = 1024, [16] = 131072
}
local entries = {[2] = 50000 + 4 * results, [3] = 1000 + 2 * planned, [4] = 1000}
for i = 2, 17 do
  local type = redis.call('TYPE', KEYS[i]).ok
  local bound = most[i] or 4194304 + planned * 2048
  if type == 'stream' then
    -- One large entry would else have the room of all.
    bound = math.min(bound, 1048576 + redis.call('XLEN', KEYS[i]) * tonumber(ARGV[7]))
  end
  if type ~= 'none' and (type ~= ARGV[i + 9] or
     i ~= 17 and redis.call('MEMORY', 'USAGE', KEYS[i], 'SAMPLES', 0) > bound or
     entries[i] and redis.call('XLEN', KEYS[i]) > entries[i]) then
    redis.call('UNLINK', KEYS[i])
    mended(i)
  elseif type == 'stream' then
    local last = ''
    local info = redis.call('XINFO', 'STREAM', KEYS[i])
    for f = 1, #info - 1, 2 do
      if info[f] == 'last-generated-id' then last = info[f + 1] end
    end
    if #string.match(last, '^%d*') >= #far then
      -- Made anew: Redis 8 keeps the last id of a stream above all ids that were deleted.
      local kept, start = {}, '-'
      repeat
        local some = redis.call('XRANGE', KEYS[i], start, '(' .. far, 'COUNT', 16)
        for _, entry in ipairs(some) do
          local bytes = 0
          for _, field in ipairs(entry[2]) do bytes = bytes + #field end
          -- Larger ones are not ours.
          if #entry[2] <= 16 and bytes <= 1048576 then table.insert(kept, entry) end
          start = '(' .. entry[1]
        end
      until #some == 0
      redis.call('UNLINK', KEYS[i])
      for _, entry in ipairs(kept) do redis.call('XADD', KEYS[i], entry[1], unpack(entry[2])) end
      mended(i)
    end
  end
end
if ARGV[8] == '1' then
  redis.call('UNLINK', KEYS[16])
  mended(16)
end
-- Units that nobody planned would be claimed for ever.
if redis.call('ZCARD', KEYS[7]) > planned or redis.call('ZCARD', KEYS[11]) > planned + 1000 then
  redis.call('UNLINK', KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11])
  mended(7)
end
if redis.call('ZCARD', KEYS[12]) > tonumber(ARGV[4]) then
  redis.call('UNLINK', KEYS[12])
  mended(12)
end
-- Beats of workers that nobody knows, and more workers than there can be.
local workers = redis.call('ZCARD', KEYS[13])
if workers > tonumber(ARGV[5]) then
  redis.call('UNLINK', KEYS[13])
  redis.call('UNLINK', KEYS[14])
  mended(13)
elseif redis.call('HLEN', KEYS[14]) > workers + 100 then
  local beats = {}
  for _, worker in ipairs(redis.call('ZRANGE', KEYS[13], 0, -1)) do
    beats[worker] = redis.call('HGET', KEYS[14], worker) or nil
  end
  redis.call('UNLINK', KEYS[14])
  for worker, beat in pairs(beats) do redis.call('HSET', KEYS[14], worker, beat) end
  mended(14)
end
-- Tickets go on behind those that have counted. A chunk has a bit for each of 512.
local last = 4503599627370496  -- 2^52
local newest = -1
for _, chunk in ipairs(redis.call('HKEYS', KEYS[19])) do
  local number = tonumber(chunk)
  if (number + 1) * 512 <= last then newest = math.max(newest, number) end
end
local behind, least = (newest + 1) * 512, 0
if newest >= 0 then
  local bits = redis.call('HGET', KEYS[19], string.format('%.0f', newest))
  least = newest * 512 + 8 * (#string.gsub(bits, '%z*$', '') - 1) + 1
end
local handed_out = math.max(least, tonumber(ARGV[9]))
local tickets = redis.call('GETRANGE', KEYS[15], 0, 16)
local number = string.match(tickets, '^%d+$') and tonumber(tickets)
if number and number < handed_out or tickets == '' and handed_out > 0 and not broken[15] then
  redis.call('SET', KEYS[15], string.format('%.0f', math.max(behind, handed_out)))
  mended(15)
elseif tickets ~= '' and (not number or number > last) or broken[15] then
  redis.call('SET', KEYS[15], string.format('%.0f', behind))
  if not broken[15] then mended(15) end
end
-- Those of sixteen audits, twice and more.
local audits = redis.call('TYPE', KEYS[20]).ok
if audits ~= 'none' and
   (audits ~= 'hash' or redis.call('MEMORY', 'USAGE', KEYS[20], 'SAMPLES', 0) > 4194304) then
  redis.call('UNLINK', KEYS[20])
  mended(20)
end
if ARGV[10] == '1' then
  for _, unit in ipairs(redis.call('ZRANGEBYSCORE', KEYS[7], '(0', '+inf', 'LIMIT', 0, 1000)) do
    local group = redis.call('HGET', KEYS[8], unit) or ''
    redis.call('ZADD', KEYS[7], 0, unit)
    redis.call('HDEL', KEYS[9], unit)
    redis.call('ZADD', KEYS[10], 0, group .. '/' .. unit)
    redis.call('ZADD', KEYS[11], 'NX', 0, group)
  end
end
local some = redis.call('HSCAN', KEYS[18], ARGV[2], 'COUNT', 1000)
answer[2] = some[1]
for i = 1, #some[2], 2 do
  local unit = some[2][i]
  if not redis.call('ZSCORE', KEYS[7], unit) then
    local entry = redis.call('HGET', KEYS[6], unit)
    local recorded = entry and redis.pcall('XRANGE', KEYS[3], entry, entry)
    if not (recorded and recorded[1]) then answer[3] = '1' end
  end
end
return answer
