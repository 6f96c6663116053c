-- roles: aggregator
-- keys: 1 lease rw
-- Gives the lease up. The epoch stays: it must never be handed out twice.
-- ARGV: 1 holder
if redis.call('HGET', KEYS[1], 'holder') == ARGV[1] then
  redis.call('HDEL', KEYS[1], 'holder', 'expires_ms', 'ttl_ms')
end
return {'OK'}
