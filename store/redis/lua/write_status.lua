-- roles: aggregator
-- keys: 1 lease r, 2 status w
-- Replaces the status, for the holder of the lease.
-- ARGV: 1 epoch 2 status
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
redis.call('SET', KEYS[2], ARGV[2])
return {'OK'}
