-- Puts one result into the inbox, once per result id.
-- KEYS: 1 inbox 2 seen 3 pending   ARGV: 1 result id 2 payload 3 inbox capacity
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return {'DUPLICATE'} end
if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then return {'DUPLICATE'} end
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[3]) then return {'FULL'} end
local entry = redis.call('XADD', KEYS[1], '*', 'id', ARGV[1], 'r', ARGV[2])
redis.call('HSET', KEYS[3], ARGV[1], entry)
return {'OK'}
