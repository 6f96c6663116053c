-- roles: aggregator
-- keys: 1 allot:index rw
-- Notes a run as the newest of an experiment, unless a newer one is noted. Run ids are ULIDs: the
-- greater one is newer.
-- ARGV: 1 experiment name 2 run id
local newest = redis.call('HGET', KEYS[1], ARGV[1])
if not newest or newest < ARGV[2] then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
return {'OK'}
