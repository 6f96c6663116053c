-- roles: worker
-- keys: 1 inbox rw, 2 seen r, 3 pending rw
-- Puts one result into the inbox, once per result id.
-- ARGV: 1 result id 2 payload 3 inbox capacity 4 sha256 of the spec that it was made for, '' if not known
--       5 signature
if ARGV[4] ~= '' and redis.call('SISMEMBER', KEYS[2], 'replaced') == 1 and
   redis.call('SISMEMBER', KEYS[2], 'spec ' .. ARGV[4]) == 0 then
  return {'REPLACED'}
end
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return {'DUPLICATE'} end
if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then return {'DUPLICATE'} end
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[3]) then return {'FULL'} end
local entry = redis.call('XADD', KEYS[1], '*', 'id', ARGV[1], 'r', ARGV[2], 's', ARGV[5])
redis.call('HSET', KEYS[3], ARGV[1], entry)
return {'OK'}
