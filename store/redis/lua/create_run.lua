-- roles: aggregator
-- keys: 1 spec rw, 2 control w, 3 import r, 4 seen rwd
-- Creates the run, unless it exists.
-- ARGV: 1 experiment 2 sha256 3 synchronous 4 started_unix_ms 5 origin, '' if none 6 arithmetic
--       7 schema 8 build
local sha256 = redis.call('HGET', KEYS[1], 'sha256')
if sha256 then
  if sha256 == ARGV[2] then return {'OK'} end
  return {'OTHER', sha256}
end
if redis.call('EXISTS', KEYS[3]) == 1 then return {'IMPORT'} end
redis.call('HSET', KEYS[2], 'desired', 'running', 'experiment', ARGV[1], 'file', ARGV[1],
           'revision', '1')
-- There before any worker: its account can create keys, and cannot change a set.
if redis.call('TYPE', KEYS[4]).ok ~= 'set' then redis.call('UNLINK', KEYS[4]) end
redis.call('SADD', KEYS[4], 'spec ' .. ARGV[2])
if ARGV[5] ~= '' then redis.call('HSET', KEYS[1], 'origin', ARGV[5]) end
redis.call('HSET', KEYS[1], 'experiment', ARGV[1], 'sha256', ARGV[2], 'synchronous', ARGV[3],
           'started_unix_ms', ARGV[4], 'arithmetic', ARGV[6], 'schema', ARGV[7], 'build', ARGV[8])
return {'OK'}
