-- roles: aggregator
-- keys: 1 lease r, 2 policy r, 3 state w
-- Replaces the aggregator's state by one of the published version.
-- ARGV: 1 epoch 2 version 3 state
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
-- A late request must not bring back a state that an update has replaced.
local version = redis.call('HGET', KEYS[2], 'version')
if version ~= ARGV[2] then return {'CONFLICT', version or 'none'} end
redis.call('SET', KEYS[3], ARGV[3])
return {'OK'}
