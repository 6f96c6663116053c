-- roles: aggregator
-- keys: 1 allot:index rw
-- The newest run of an experiment; if there is none, this one is noted as such. Of several callers
-- at once the first one's run is that of all.
-- ARGV: 1 experiment name 2 run id
local newest = redis.call('HGET', KEYS[1], ARGV[1])
if newest then return {'OK', newest} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {'OK', ARGV[2]}
