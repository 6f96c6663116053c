-- roles: aggregator
-- keys: 1 lease r, 2 reissue w, 3 news w
-- Adds a lost ticket to those to be handed out again.
-- ARGV: 1 epoch 2 ticket
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[2])
redis.pcall('XADD', KEYS[3], 'MAXLEN', 1, '*', 'new', 'tickets')
return {'OK'}
