-- Records one unit, once.
-- KEYS: 1 units 2 unit_groups 3 unit_specs 4 units_done 5 eval   ARGV: 1 unit id 2 result
if redis.call('SISMEMBER', KEYS[4], ARGV[1]) == 1 then return {'DUPLICATE'} end
redis.call('XADD', KEYS[5], '*', 'r', ARGV[2])
redis.call('SADD', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
return {'OK'}
