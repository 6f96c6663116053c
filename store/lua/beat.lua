-- Notes that a worker lives, and forgets those that have not beaten for their time to live.
-- KEYS: 1 workers (end of life per worker) 2 beats   ARGV: 1 worker 2 beat 3 ttl_ms
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function forget(from, to)
  for _, worker in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], from, to)) do
    redis.call('ZREM', KEYS[1], worker)
    redis.call('HDEL', KEYS[2], worker)
  end
end
forget('-inf', string.format('%.0f', now))
-- Ends that no beat makes (checks.h knows the number, too): the clock was set back since.
forget('(' .. string.format('%.0f', now + 600000), '+inf')
redis.call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[3])), ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return {'OK'}
