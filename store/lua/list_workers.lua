-- The last beat of every worker that is alive by the server's clock. Writes nothing.
-- KEYS: 1 workers 2 beats
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local beats = {}
for _, worker in
    ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now),
                      string.format('%.0f', now + 600000))) do  -- see beat.lua
  table.insert(beats, redis.call('HGET', KEYS[2], worker))
end
return beats
