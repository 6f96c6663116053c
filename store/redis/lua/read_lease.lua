-- roles: aggregator, reader
-- keys: 1 lease r
-- Returns the lease, by the server's clock.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease = redis.call('HMGET', KEYS[1], 'holder', 'epoch', 'expires_ms', 'ttl_ms')
local epoch, expires = lease[2] or '0', tonumber(lease[3] or '0')
-- As in acquire_lease.lua, the clock may have been set back.
expires = math.min(expires, now + (tonumber(lease[4]) or expires))
if not lease[1] or expires <= now then return {'FREE', '', epoch, '0'} end
return {'HELD', lease[1], epoch, string.format('%.0f', expires - now)}
