-- roles: aggregator
-- keys: 1 lease r, 2 units d, 3 unit_groups d, 4 unit_specs d, 5 unit_holders d, 6 free_units d,
--       7 free_groups d
-- Deletes all open units.
-- ARGV: 1 epoch
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7])
return {'OK'}
