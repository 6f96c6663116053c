-- Forgets the open units.
-- KEYS: 1 lease 2 units 3 unit_groups 4 unit_specs 5 unit_holders 6 free_units
--       7 free_groups   ARGV: 1 epoch
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7])
return {'OK'}
