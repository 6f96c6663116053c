-- roles: aggregator
-- keys: 1 spec r, 2 import w, 3 control d, 4 policy d, 5 history d, 6 eval d, 7 model d, 8 state d,
--       9 status d, 10 inbox d, 11 pending d, 12 seen d, 13 dead d, 14 refused_counts d,
--       15 tickets d, 16 reissue d, 17 units d, 18 unit_groups d, 19 unit_specs d, 20 policies d,
--       21 counted_tickets d, 22 units_done d, 23 unit_holders d, 24 free_units d, 25 free_groups d,
--       26 accepted d, 27 evaluations d, 28 audits d, 29 audit_answers d
-- Begins an import: deletes the data of an interrupted one.
-- ARGV: 1 name of this import
if redis.call('EXISTS', KEYS[1]) == 1 then return {'EXISTS'} end
for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
redis.call('SET', KEYS[2], ARGV[1])
return {'OK'}
