-- roles: worker
-- keys: 1 units w, 2 unit_groups r, 3 unit_holders rw, 4 free_units w, 5 free_groups w, 6 news w
-- Frees units that this worker claimed and will not do.
-- ARGV: 1 holder 2.. unit ids
for i = 2, #ARGV do
  local group = redis.call('HGET', KEYS[2], ARGV[i])
  if group and redis.call('HGET', KEYS[3], ARGV[i]) == ARGV[1] then
    redis.call('ZADD', KEYS[1], 'XX', 0, ARGV[i])
    redis.call('HDEL', KEYS[3], ARGV[i])
    redis.call('ZADD', KEYS[4], 0, group .. '/' .. ARGV[i])
    redis.call('ZADD', KEYS[5], 'NX', 0, group)
  end
end
redis.pcall('XADD', KEYS[6], 'MAXLEN', 1, '*', 'new', 'units')
return {'OK'}
