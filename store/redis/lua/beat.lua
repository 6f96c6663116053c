-- roles: worker
-- keys: 1 workers rw, 2 beats w, 3 units w, 4 unit_holders r
-- Notes a worker's beat, and forgets workers whose time to live has passed. Renews the worker's claims
-- on units, except those that another worker has claimed since.
-- ARGV: 1 worker 2 beat 3 ttl_ms 4 claim_ms 5.. unit ids
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function forget(from, to)
  for _, worker in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], from, to)) do
    redis.call('ZREM', KEYS[1], worker)
    redis.call('HDEL', KEYS[2], worker)
  end
end
forget('-inf', string.format('%.0f', now))
-- Ends beyond the longest time of a beat (also in checks.h) were written before the clock was set back.
forget('(' .. string.format('%.0f', now + 600000), '+inf')
redis.call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[3])), ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
local ends = string.format('%.0f', now + tonumber(ARGV[4]))
for i = 5, #ARGV do
  if redis.call('HGET', KEYS[4], ARGV[i]) == ARGV[1] then
    redis.call('ZADD', KEYS[3], 'XX', ends, ARGV[i])
  end
end
return {'OK'}
