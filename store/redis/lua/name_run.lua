-- roles: aggregator
-- keys: 1 allot:index rw
-- Returns the newest run of an experiment. If there is none, notes and returns this one, so that
-- concurrent callers get the same run.
-- ARGV: 1 experiment name 2 run id
local newest = redis.call('HGET', KEYS[1], ARGV[1])
if newest then return {'OK', newest} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {'OK', ARGV[2]}
