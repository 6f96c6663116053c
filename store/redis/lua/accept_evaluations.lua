-- roles: aggregator
-- keys: 1 lease r, 2 eval r, 3 units_done w, 4 accepted rw
-- Accepts recorded evaluations for good, each unit once: no later entry can replace them.
-- ARGV: 1 epoch 2.. unit id, entry id
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
for i = 2, #ARGV, 2 do
  local entry = ARGV[i + 1]
  if #redis.call('XRANGE', KEYS[2], entry, entry) > 0 and
     redis.call('HEXISTS', KEYS[4], ARGV[i]) == 0 then
    redis.call('HSET', KEYS[4], ARGV[i], entry)
    redis.call('HSET', KEYS[3], ARGV[i], entry)
  end
end
return {'OK'}
