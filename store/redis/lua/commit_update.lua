-- roles: aggregator
-- keys: 1 lease r, 2 policy rw, 3 state w, 4 history w, 5 inbox rw, 6 seen rw, 7 pending rw,
--       8 policies w, 9 counted_tickets rw, 10 news w
-- Makes the step from one policy version to the next, all or nothing.
-- Redis does not roll back: every check comes before the first write, and the only write that can
-- be refused (XADD, by its explicit id) is the first. A worker's account may have made a key of
-- another type. The wake-up of workers (news) may fail: they look every 20 s.
-- ARGV: 1 epoch 2 expected version 3 new version 4 policy 5 sha256 6 state 7 record
--       8 version of a policy to forget, or '' 9 number of chunks of tickets
--       10.. of each chunk: its number, its tickets as bits; then of each consumed result: entry id,
--       result id
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
local types = {redis.call('TYPE', KEYS[5]).ok, redis.call('TYPE', KEYS[6]).ok,
               redis.call('TYPE', KEYS[7]).ok}
for i, type in ipairs({'stream', 'set', 'hash'}) do
  if types[i] ~= 'none' and types[i] ~= type then
    return redis.error_reply('WRONGTYPE of key ' .. (i + 4))
  end
end
local version = redis.call('HGET', KEYS[2], 'version')
if version ~= ARGV[2] then return {'CONFLICT', version or 'none'} end
local results = 10 + 2 * tonumber(ARGV[9])
for i = results, #ARGV, 2 do
  if redis.call('HGET', KEYS[7], ARGV[i + 1]) ~= ARGV[i] then return {'GONE', ARGV[i + 1]} end
end
-- chunks: the tickets that have counted and these. A ticket in both is refused.
local chunks = {}
for i = 10, results - 1, 2 do
  local bits, mine = redis.call('HGET', KEYS[9], ARGV[i]), ARGV[i + 1]
  if bits then
    local bytes = {}
    for k = 1, #mine do
      local old, new = string.byte(bits, k) or 0, string.byte(mine, k)
      if bit.band(old, new) ~= 0 then return {'COUNTED', ARGV[i]} end
      bytes[k] = string.char(bit.bor(old, new))
    end
    mine = table.concat(bytes)
  end
  chunks[ARGV[i]] = mine
end
local time = redis.call('TIME')
local added = redis.pcall('XADD', KEYS[4], ARGV[3] .. '-0', 'rec', ARGV[7])
if type(added) == 'table' and added.err then
  -- Other errors than that of the id (memory, disk, permission) are returned as they are.
  if not string.find(added.err, 'equal or smaller', 1, true) then return added end
  return {'HISTORY', added.err}
end
redis.call('HSET', KEYS[2], 'version', ARGV[3], 'blob', ARGV[4], 'sha256', ARGV[5],
           'published_ms', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
redis.call('SET', KEYS[3], ARGV[6])
redis.call('HSET', KEYS[8], ARGV[3], ARGV[4])
if ARGV[8] ~= '' then redis.call('HDEL', KEYS[8], ARGV[8]) end
for chunk, bits in pairs(chunks) do redis.call('HSET', KEYS[9], chunk, bits) end
for i = results, #ARGV, 2 do
  redis.call('SADD', KEYS[6], ARGV[i + 1])
  redis.call('HDEL', KEYS[7], ARGV[i + 1])
  redis.call('XDEL', KEYS[5], ARGV[i])
end
redis.pcall('XADD', KEYS[10], 'MAXLEN', 1, '*', 'new', 'policy')
return {'OK'}
