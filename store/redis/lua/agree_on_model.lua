-- roles: worker
-- keys: 1 model w, 2 seen r
-- Sets the model facts if there are none.
-- ARGV: 1 facts 2 sha256 of the spec that the model was loaded for, '' if not known
if ARGV[2] ~= '' and redis.call('SISMEMBER', KEYS[2], 'replaced') == 1 and
   redis.call('SISMEMBER', KEYS[2], 'spec ' .. ARGV[2]) == 0 then
  return {'REPLACED'}
end
redis.call('SETNX', KEYS[1], ARGV[1])
return {'OK'}
