-- Opens units again that were claimed and not recorded.
-- KEYS: 1 units   ARGV: unit ids
for _, unit in ipairs(ARGV) do redis.call('ZADD', KEYS[1], 'XX', 0, unit) end
return {'OK'}
