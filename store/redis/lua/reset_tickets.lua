-- roles: aggregator
-- keys: 1 lease r, 2 tickets w, 3 reissue d, 4 news w
-- Sets the next ticket and forgets the reissued ones.
-- ARGV: 1 epoch 2 next
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('DEL', KEYS[3])
redis.pcall('XADD', KEYS[4], 'MAXLEN', 1, '*', 'new', 'tickets')
return {'OK'}
