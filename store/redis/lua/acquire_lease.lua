-- roles: aggregator
-- keys: 1 lease rw
-- Acquires or renews the lease: the same holder keeps its epoch, a new one gets the next.
-- ARGV: 1 holder 2 ttl_ms
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease = redis.call('HMGET', KEYS[1], 'holder', 'epoch', 'expires_ms', 'ttl_ms')
local holder, epoch, expires = lease[1], lease[2] or '0', tonumber(lease[3] or '0')
if holder ~= ARGV[1] then
  if holder and expires > now then
    -- An end further away than the lease lasts was written before the clock was set back.
    local latest = now + (tonumber(lease[4]) or expires)
    if expires > latest then
      expires = latest
      redis.call('HSET', KEYS[1], 'expires_ms', string.format('%.0f', expires))
    end
    return {'HELD', holder, epoch, string.format('%.0f', expires - now)}
  end
  epoch = string.format('%.0f', tonumber(epoch) + 1)
end
-- A full server refuses a script's first write if that needs room: the leader must go on to lead
-- there, because it alone mends keys that somebody filled.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'epoch', epoch,
           'expires_ms', string.format('%.0f', now + tonumber(ARGV[2])), 'ttl_ms', ARGV[2])
return {'OK', ARGV[1], epoch, ARGV[2]}
