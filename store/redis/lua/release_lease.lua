-- roles: aggregator
-- keys: 1 lease rw
-- Releases the lease. The epoch stays, because no two holders may have the same one.
-- ARGV: 1 holder
if redis.call('HGET', KEYS[1], 'holder') == ARGV[1] then
  redis.call('HDEL', KEYS[1], 'holder', 'expires_ms', 'ttl_ms')
end
return {'OK'}
