-- roles: aggregator
-- keys: 1 lease r, 2 units w, 3 unit_groups w, 4 unit_specs w, 5 units_done r, 6 free_units w,
--       7 free_groups w, 8 news w
-- Adds the units that are neither planned nor done.
-- ARGV: 1 epoch 2.. unit id, group, unit
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
for i = 2, #ARGV, 3 do
  if redis.call('HEXISTS', KEYS[5], ARGV[i]) == 0 and
     redis.call('ZADD', KEYS[2], 'NX', 0, ARGV[i]) == 1 then
    redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
    redis.call('HSET', KEYS[4], ARGV[i], ARGV[i + 2])
    redis.call('ZADD', KEYS[6], 0, ARGV[i + 1] .. '/' .. ARGV[i])
    redis.call('ZADD', KEYS[7], 'NX', 0, ARGV[i + 1])
  end
end
redis.pcall('XADD', KEYS[8], 'MAXLEN', 1, '*', 'new', 'units')
return {'OK'}
