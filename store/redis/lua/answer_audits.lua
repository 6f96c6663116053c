-- roles: worker
-- keys: 1 audit_answers w
-- Leaves a worker's answers for the aggregator, in place of earlier ones.
-- ARGV: 1 worker 2 answers
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {'OK'}
