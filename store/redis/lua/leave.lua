-- roles: worker
-- keys: 1 workers w, 2 beats w
-- Deletes a worker and its beat.
-- ARGV: 1 worker
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return {'OK'}
