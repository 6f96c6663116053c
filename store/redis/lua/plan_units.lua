-- roles: aggregator
-- keys: 1 lease r, 2 units rw, 3 unit_groups w, 4 unit_specs w, 5 units_done r, 6 free_units w,
--       7 free_groups w, 8 news w, 9 accepted r, 10 eval r
-- Opens the units that are neither open, nor recorded, nor accepted.
-- A unit counts as recorded while its evaluation waits in eval: a worker's account can delete it.
-- ARGV: 1 epoch 2.. unit id, group, unit
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
for i = 2, #ARGV, 3 do
  local unit = ARGV[i]
  if redis.call('HEXISTS', KEYS[9], unit) == 0 then
    redis.call('HSET', KEYS[4], unit, ARGV[i + 2])
    local entry = redis.call('HGET', KEYS[5], unit)
    local recorded = entry and redis.pcall('XRANGE', KEYS[10], entry, entry)
    if not (recorded and recorded[1]) and not redis.call('ZSCORE', KEYS[2], unit) then
      redis.call('ZADD', KEYS[2], 0, unit)
      redis.call('HSET', KEYS[3], unit, ARGV[i + 1])
      redis.call('ZADD', KEYS[6], 0, ARGV[i + 1] .. '/' .. unit)
      redis.call('ZADD', KEYS[7], 'NX', 0, ARGV[i + 1])
    end
  end
end
redis.pcall('XADD', KEYS[8], 'MAXLEN', 1, '*', 'new', 'units')
return {'OK'}
