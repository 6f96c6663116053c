-- Creates the run, unless it exists.
-- KEYS: 1 spec 2 control   ARGV: 1 experiment 2 sha256 3 synchronous 4 started_unix_ms
local sha256 = redis.call('HGET', KEYS[1], 'sha256')
if sha256 then
  if sha256 == ARGV[2] then return {'OK'} end
  return {'OTHER', sha256}
end
redis.call('HSET', KEYS[1], 'experiment', ARGV[1], 'sha256', ARGV[2], 'synchronous', ARGV[3],
           'started_unix_ms', ARGV[4])
redis.call('HSETNX', KEYS[2], 'desired', 'running')
return {'OK'}
