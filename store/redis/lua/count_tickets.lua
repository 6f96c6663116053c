-- roles: aggregator
-- keys: 1 lease r, 2 counted_tickets rw
-- Counts the tickets of updates that an older build made, which kept no account of them.
-- ARGV: 1 epoch 2 version up to which all have counted 3 version up to which they do then
--       4.. chunk number, its tickets as bits, together with those that have counted
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
-- A request that was long under way must not bring back what updates have added to.
if (redis.call('HGET', KEYS[2], 'through') or '0') ~= ARGV[2] then return {'OK'} end
for i = 4, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
redis.call('HSET', KEYS[2], 'through', ARGV[3])
return {'OK'}
