-- roles: aggregator
-- keys: 1 allot:index rw
-- Notes the newest run of an experiment. Run ids are ULIDs, so the greater one is the newer one; by
-- comparing, a repeated call never puts an older run in front.
-- ARGV: 1 experiment name 2 run id
local newest = redis.call('HGET', KEYS[1], ARGV[1])
if not newest or newest < ARGV[2] then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
return {'OK'}
