-- roles: aggregator
-- keys: 1 lease r, 2 eval rw, 3 evaluations w, 4 accepted rw, 5 units_done rw, 6 units w,
--       7 unit_groups rw, 8 unit_specs w, 9 unit_holders w, 10 free_units w
-- Moves recorded evaluations to the accepted ones, each unit once; another entry of an accepted
-- unit is deleted. All fields are copied, except those that are larger than a push makes them.
-- Does nothing for entries that are gone, so that the call may be repeated.
-- ARGV: 1 epoch 2 largest field 3 largest answers 4.. unit id, entry id
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
for i = 4, #ARGV, 2 do
  local unit, entry = ARGV[i], ARGV[i + 1]
  local found = redis.call('XRANGE', KEYS[2], entry, entry)[1]
  if found then
    -- First, so that a full server refuses nothing here: the entry has its room.
    redis.call('XDEL', KEYS[2], entry)
    if redis.call('HEXISTS', KEYS[4], unit) == 0 then
      local fields = {}
      for f = 1, math.min(#found[2], 32) - 1, 2 do
        local most = tonumber(found[2][f] == 'a' and ARGV[3] or ARGV[2])
        if #found[2][f] <= 16 and #found[2][f + 1] <= most then
          table.insert(fields, found[2][f])
          table.insert(fields, found[2][f + 1])
        end
      end
      redis.call('HSET', KEYS[4], unit, redis.call('XADD', KEYS[3], '*', unpack(fields)))
      -- The unit may have been opened again in the meantime.
      local group = redis.call('HGET', KEYS[7], unit)
      if group then redis.call('ZREM', KEYS[10], group .. '/' .. unit) end
      redis.call('ZREM', KEYS[6], unit)
      redis.call('HDEL', KEYS[7], unit)
      redis.call('HDEL', KEYS[8], unit)
      redis.call('HDEL', KEYS[9], unit)
    end
    if redis.call('HGET', KEYS[5], unit) == entry then redis.call('HDEL', KEYS[5], unit) end
  end
end
return {'OK'}
