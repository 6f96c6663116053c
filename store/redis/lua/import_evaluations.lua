-- roles: aggregator
-- keys: 1 import r, 2 evaluations w, 3 accepted rw
-- Adds accepted evaluations, each unit once.
-- ARGV: 1 name of this import 2.. unit id, result, its answers ('' if it has none)
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'OTHER'} end
for i = 2, #ARGV, 3 do
  if redis.call('HEXISTS', KEYS[3], ARGV[i]) == 0 then
    local fields = {'id', ARGV[i], 'r', ARGV[i + 1]}
    if ARGV[i + 2] ~= '' then fields = {'id', ARGV[i], 'r', ARGV[i + 1], 'a', ARGV[i + 2]} end
    redis.call('HSET', KEYS[3], ARGV[i], redis.call('XADD', KEYS[2], '*', unpack(fields)))
  end
end
return {'OK'}
