-- roles: aggregator
-- keys: 1 import r, 2 eval w, 3 units_done rw
-- Records evaluations, each unit once.
-- ARGV: 1 name of this import 2.. unit id, result
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'OTHER'} end
for i = 2, #ARGV, 2 do
  if redis.call('HEXISTS', KEYS[3], ARGV[i]) == 0 then
    local entry = redis.call('XADD', KEYS[2], '*', 'id', ARGV[i], 'r', ARGV[i + 1])
    redis.call('HSET', KEYS[3], ARGV[i], entry)
  end
end
return {'OK'}
