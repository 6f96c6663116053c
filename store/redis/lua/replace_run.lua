-- roles: aggregator
-- keys: 1 lease rw, 2 spec w, 3 control rw, 4 news w, 5 policy rd, 6 history rd, 7 evaluations rd,
--       8 seen wd, 9 model d, 10 state d, 11 status d, 12 inbox d, 13 pending d, 14 dead d,
--       15 refused_counts d, 16 tickets d, 17 reissue d, 18 units d, 19 unit_groups d,
--       20 unit_specs d, 21 policies d, 22 counted_tickets d, 23 units_done d, 24 unit_holders d,
--       25 free_units d, 26 free_groups d, 27 accepted d, 28 eval d, 29 audits d, 30 audit_answers d
-- Makes the run one of another experiment, unless something counts already.
-- ARGV: 1 revision of the control record 2 experiment 3 sha256 4 schema 5 build
--       6 experiment in force 7 file 8 arithmetic
local revision = redis.call('HGET', KEYS[3], 'revision')
if revision ~= ARGV[1] then return {'CHANGED', revision or 'none'} end
local version = redis.call('HGET', KEYS[5], 'version') or '0'
local updates, evaluations = redis.call('XLEN', KEYS[6]), redis.call('XLEN', KEYS[7])
if version ~= '0' or updates > 0 or evaluations > 0 then return {'BEGUN', updates, evaluations} end
-- The first write is one that needs room, so that a full server refuses the call whole.
redis.call('HSET', KEYS[2], 'experiment', ARGV[2], 'sha256', ARGV[3], 'schema', ARGV[4], 'build',
           ARGV[5], 'arithmetic', ARGV[8])
-- Fences off the leader, which has the old experiment.
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch then
  redis.call('HSET', KEYS[1], 'epoch', string.format('%.0f', tonumber(epoch) + 1))
  redis.call('HDEL', KEYS[1], 'holder', 'expires_ms', 'ttl_ms')
end
for i = 5, #KEYS do redis.call('UNLINK', KEYS[i]) end
-- Workers' scripts, which may not name spec, recognise results of the old experiment by these.
redis.call('SADD', KEYS[8], 'replaced', 'spec ' .. ARGV[3])
redis.call('HSET', KEYS[3], 'experiment', ARGV[6], 'file', ARGV[7],
           'revision', string.format('%.0f', tonumber(revision) + 1))
redis.pcall('XADD', KEYS[4], 'MAXLEN', 1, '*', 'new', 'experiment')
return {'OK'}
