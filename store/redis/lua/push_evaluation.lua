-- roles: worker
-- keys: 1 units rw, 2 unit_groups rw, 3 units_done w, 4 eval w, 5 seen r, 6 unit_holders w,
--       7 free_units w
-- Records one open unit, once. A unit that is not open was recorded, withdrawn or never planned.
-- ARGV: 1 unit id 2 result 3 sha256 of the spec that it was made for, '' if not known
--       4 its answers, '' if it has none 5 signature
if ARGV[3] ~= '' and redis.call('SISMEMBER', KEYS[5], 'replaced') == 1 and
   redis.call('SISMEMBER', KEYS[5], 'spec ' .. ARGV[3]) == 0 then
  return {'REPLACED'}
end
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return {'DUPLICATE'} end
local fields = {'id', ARGV[1], 'r', ARGV[2], 's', ARGV[5], 'a', ARGV[4]}
if ARGV[4] == '' then fields = {'id', ARGV[1], 'r', ARGV[2], 's', ARGV[5]} end
local entry = redis.call('XADD', KEYS[4], '*', unpack(fields))
redis.call('HSET', KEYS[3], ARGV[1], entry)
redis.call('ZREM', KEYS[1], ARGV[1])
-- The unit may be listed as free, if its claim had ended.
local group = redis.call('HGET', KEYS[2], ARGV[1])
if group then redis.call('ZREM', KEYS[7], group .. '/' .. ARGV[1]) end
redis.call('HDEL', KEYS[6], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return {'OK'}
