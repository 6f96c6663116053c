-- roles: aggregator
-- keys: 1 control rw, 2 news w
-- Replaces the control record if it has the given revision, and adds 1 to that.
-- ARGV: 1 revision 2 desired 3 experiment 4 file
local revision = redis.call('HGET', KEYS[1], 'revision')
if revision ~= ARGV[1] then return {'CHANGED', revision or 'none'} end
redis.call('HSET', KEYS[1], 'desired', ARGV[2], 'experiment', ARGV[3], 'file', ARGV[4],
           'revision', string.format('%.0f', tonumber(revision) + 1))
redis.pcall('XADD', KEYS[2], 'MAXLEN', 1, '*', 'new', 'control')
return {'OK'}
