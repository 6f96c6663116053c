-- roles: aggregator
-- keys: 1 lease r, 2 policy rw, 3 state w, 4 policies w, 5 news w
-- Publishes version 0 and its state, unless a policy exists.
-- ARGV: 1 epoch 2 policy 3 sha256 4 state
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
if redis.call('EXISTS', KEYS[2]) == 1 then return {'OK'} end
local time = redis.call('TIME')
redis.call('HSET', KEYS[2], 'version', '0', 'blob', ARGV[2], 'sha256', ARGV[3],
           'published_ms', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
redis.call('SET', KEYS[3], ARGV[4])
redis.call('HSET', KEYS[4], '0', ARGV[2])
redis.pcall('XADD', KEYS[5], 'MAXLEN', 1, '*', 'new', 'policy')
return {'OK'}
