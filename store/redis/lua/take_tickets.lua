-- roles: worker
-- keys: 1 tickets rw, 2 reissue w, 3 workers r
-- Up to `count` reissued tickets (the lowest), or else as many new ones, all of them below the limit.
-- shared: no more than a live worker's part of so many, and that part in equal pieces; 0: no matter.
-- from: reissued tickets below it have counted or never will, and are forgotten.
-- ARGV: 1 count 2 limit 3 shared 4 from
local count = tonumber(ARGV[1])
local shared = tonumber(ARGV[3])
if shared > 0 then
  local workers = math.max(1, redis.call('ZCARD', KEYS[3]))
  local part = math.ceil(shared / workers)
  count = math.ceil(part / math.ceil(part / count))
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. ARGV[4])
local popped = redis.call('ZPOPMIN', KEYS[2], count)
if popped[1] then
  local again = {'AGAIN'}
  for i = 1, #popped, 2 do table.insert(again, popped[i]) end
  return again
end
local first = redis.call('GET', KEYS[1]) or '0'
count = math.min(count, tonumber(ARGV[2]) - tonumber(first))
if count <= 0 then return {'NONE'} end
redis.call('INCRBY', KEYS[1], string.format('%.0f', count))
return {'NEW', first, string.format('%.0f', count)}
