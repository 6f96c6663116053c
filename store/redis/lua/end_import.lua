-- roles: aggregator
-- keys: 1 import rd, 2 history r, 3 accepted r, 4 model w, 5 policy w, 6 state w, 7 tickets w,
--       8 units w, 9 unit_groups w, 10 unit_specs w, 11 control w, 12 spec rw, 13 policies w
-- Writes the rest of an imported run; spec comes last, because with it the run exists.
-- ARGV: 1 name of this import 2 experiment 3 sha256 4 synchronous 5 started_unix_ms 6 origin
--       7 desired 8 experiment in force 9 file 10 revision 11 model 12 version 13 policy
--       14 sha256 of the policy 15 state 16 next ticket 17 arithmetic 18 schema 19 build
--       20.. unit id, group, unit of each open unit
--       origin, model and version are '' if there is none
if redis.call('EXISTS', KEYS[12]) == 1 then
  -- A repeated call.
  if redis.call('HGET', KEYS[12], 'import') == ARGV[1] then return {'OK'} end
  return {'EXISTS'}
end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'OTHER'} end
-- A history of `version` records that ends with `version`-0 is complete: ids ascend from 1-0.
local version = ARGV[12] == '' and '0' or ARGV[12]
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
if redis.call('XLEN', KEYS[2]) ~= tonumber(version) or
   (last and last[1] ~= version .. '-0') then
  return {'HISTORY', last and last[1] or 'none'}
end
if ARGV[11] ~= '' then redis.call('SET', KEYS[4], ARGV[11]) end
if ARGV[12] ~= '' then
  local time = redis.call('TIME')
  redis.call('HSET', KEYS[5], 'version', ARGV[12], 'blob', ARGV[13], 'sha256', ARGV[14],
             'published_ms', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
  redis.call('SET', KEYS[6], ARGV[15])
  redis.call('HSET', KEYS[13], version, ARGV[13])
end
redis.call('SET', KEYS[7], ARGV[16])
for i = 20, #ARGV, 3 do
  if redis.call('HEXISTS', KEYS[3], ARGV[i]) == 0 then
    redis.call('ZADD', KEYS[8], 0, ARGV[i])
    redis.call('HSET', KEYS[9], ARGV[i], ARGV[i + 1])
    redis.call('HSET', KEYS[10], ARGV[i], ARGV[i + 2])
  end
end
redis.call('HSET', KEYS[11], 'desired', ARGV[7], 'experiment', ARGV[8], 'file', ARGV[9],
           'revision', ARGV[10])
redis.call('DEL', KEYS[1])
if ARGV[6] ~= '' then redis.call('HSET', KEYS[12], 'origin', ARGV[6]) end
redis.call('HSET', KEYS[12], 'experiment', ARGV[2], 'sha256', ARGV[3], 'synchronous', ARGV[4],
           'started_unix_ms', ARGV[5], 'arithmetic', ARGV[17], 'schema', ARGV[18],
           'build', ARGV[19], 'import', ARGV[1])
return {'OK'}
