-- roles: aggregator, reader
-- keys: 1 workers r, 2 beats r
-- Returns the last beat of every worker whose time to live has not passed by the server's clock. A
-- worker can write anything: a beat that is too large is left out, and the reply ends at its limits.
-- ARGV: 1 largest beat 2 most bytes together 3 most workers
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local beats, total = {}, 0
for _, worker in
    ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now),
                      string.format('%.0f', now + 600000),  -- see beat.lua
                      'LIMIT', 0, ARGV[3])) do
  local beat = redis.call('HGET', KEYS[2], worker)
  if beat and #beat <= tonumber(ARGV[1]) then
    total = total + #beat
    if total > tonumber(ARGV[2]) then break end
    table.insert(beats, beat)
  end
end
return beats
