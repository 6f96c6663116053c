-- roles: worker
-- keys: 1 tickets rw, 2 reissue w, 3 workers r
-- Returns up to `count` reissued tickets, the lowest first, or else that many new ones below `limit`.
-- shared: at most a worker's part of this number, in equal pieces; 0: no such bound.
-- from: reissued tickets below it are forgotten, and so are those that were never handed out.
-- ARGV: 1 count 2 limit 3 shared 4 from
local count = tonumber(ARGV[1])
local shared = tonumber(ARGV[3])
if shared > 0 then
  local workers = math.max(1, redis.call('ZCARD', KEYS[3]))
  local part = math.ceil(shared / workers)
  count = math.ceil(part / math.ceil(part / count))
end
local first = redis.call('GET', KEYS[1]) or '0'
-- A worker's account may have written anything. The aggregator mends it.
if not string.match(first, '^%d+$') then return redis.error_reply('ERR tickets: not an integer') end
local handed_out = tonumber(first)
local again = {'AGAIN'}
while #again <= count do
  local ticket = redis.call('ZPOPMIN', KEYS[2])[1]
  if not ticket then break end
  local number = string.match(ticket, '^%d+$') and tonumber(ticket)
  if number and #ticket <= 16 and number >= tonumber(ARGV[4]) and number < handed_out then
    table.insert(again, ticket)
  end
end
if again[2] then return again end
count = math.min(count, tonumber(ARGV[2]) - handed_out)
if count <= 0 then return {'NONE'} end
redis.call('INCRBY', KEYS[1], string.format('%.0f', count))
return {'NEW', first, string.format('%.0f', count)}
