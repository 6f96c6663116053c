-- Makes room for an import: forgets what an interrupted one left.
-- KEYS: 1 spec 2 import 3.. everything that an import writes   ARGV: 1 name of this import
if redis.call('EXISTS', KEYS[1]) == 1 then return {'EXISTS'} end
for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
redis.call('SET', KEYS[2], ARGV[1])
return {'OK'}
