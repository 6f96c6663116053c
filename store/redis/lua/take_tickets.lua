-- roles: worker
-- keys: 1 tickets rw, 2 reissue w, 3 workers r
-- One reissued ticket (the lowest), or else up to `count` new ones, all of them below the limit.
-- shared: no more than a live worker's part of so many, and that part in equal pieces; 0: no matter.
-- ARGV: 1 count 2 limit 3 shared
local again = redis.call('ZPOPMIN', KEYS[2])
if again[1] then return {'AGAIN', again[1]} end
local first = redis.call('GET', KEYS[1]) or '0'
local count = tonumber(ARGV[1])
local shared = tonumber(ARGV[3])
if shared > 0 then
  local workers = math.max(1, redis.call('ZCARD', KEYS[3]))
  local part = math.ceil(shared / workers)
  count = math.ceil(part / math.ceil(part / count))
end
count = math.min(count, tonumber(ARGV[2]) - tonumber(first))
if count <= 0 then return {'NONE'} end
redis.call('INCRBY', KEYS[1], string.format('%.0f', count))
return {'NEW', first, string.format('%.0f', count)}
