-- roles: worker
-- keys: 1 tickets rw, 2 reissue w
-- One reissued ticket (the lowest), or else `count` new ones if all of them lie below the limit.
-- ARGV: 1 count 2 limit
local again = redis.call('ZPOPMIN', KEYS[2])
if again[1] then return {'AGAIN', again[1]} end
local first = redis.call('GET', KEYS[1]) or '0'
if tonumber(first) + tonumber(ARGV[1]) > tonumber(ARGV[2]) then return {'NONE'} end
redis.call('INCRBY', KEYS[1], ARGV[1])
return {'NEW', first}
