-- roles: aggregator
-- keys: 1 lease r, 2 eval|evaluations rw, 3 units_done rw, 4 dead w, 5 refused_counts w, 6 units rw,
--       7 unit_groups w, 8 unit_specs w, 9 free_units w, 10 free_groups w, 11 news w,
--       12 accepted rw
-- Moves one recorded or accepted evaluation to the refused ones. Its unit is then planned again if
-- the call has a unit to reopen, and else neither planned nor done. Does nothing if there is no such
-- entry, so that the call may be repeated.
-- ARGV: 1 epoch 2 entry id 3 unit id 4 kind 5 reason 6 payload
--       7 how many refused ones to keep, about 8 group 9 unit to reopen, or empty
--       10 ms for which no worker can claim it 11 '1' if the entry is an accepted one
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
if #redis.call('XRANGE', KEYS[2], ARGV[2], ARGV[2]) == 0 then return {'OK'} end
-- First, so that a full server refuses nothing here: it makes room.
redis.call('XDEL', KEYS[2], ARGV[2])
redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[7], '*', 'id', ARGV[3], 'kind', ARGV[4],
           'reason', ARGV[5], 'r', ARGV[6])
redis.call('HINCRBY', KEYS[5], ARGV[4], 1)
local unit, own = ARGV[3], false
if ARGV[11] == '1' then
  own = redis.call('HGET', KEYS[12], unit) == ARGV[2]
  if own then redis.call('HDEL', KEYS[12], unit) end
else
  -- A forged entry with the same unit id must not reopen the unit.
  local recorded = redis.call('HGET', KEYS[3], unit) == ARGV[2]
  if recorded then redis.call('HDEL', KEYS[3], unit) end
  own = recorded and redis.call('HEXISTS', KEYS[12], unit) == 0
end
if not own or redis.call('ZSCORE', KEYS[6], unit) then return {'OK'} end
if ARGV[9] == '' then
  redis.call('HDEL', KEYS[8], unit)
  return {'OK'}
end
local free_at = '0'
if tonumber(ARGV[10]) > 0 then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  free_at = string.format('%.0f', now + tonumber(ARGV[10]))
end
redis.call('ZADD', KEYS[6], free_at, unit)
redis.call('HSET', KEYS[7], unit, ARGV[8])
redis.call('HSET', KEYS[8], unit, ARGV[9])
if free_at == '0' then
  redis.call('ZADD', KEYS[9], 0, ARGV[8] .. '/' .. unit)
  redis.call('ZADD', KEYS[10], 'NX', 0, ARGV[8])
  redis.pcall('XADD', KEYS[11], 'MAXLEN', 1, '*', 'new', 'units')
end
return {'OK'}
