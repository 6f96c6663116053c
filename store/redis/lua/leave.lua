-- Forgets a worker.
-- KEYS: 1 workers 2 beats   ARGV: 1 worker
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return {'OK'}
