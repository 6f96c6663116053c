-- Claims every open unit of one group. A group is 'version:chunk', both padded with zeros, so that
-- the smaller string is the older version. The score of a unit is the end of its claim, 0 if none.
-- KEYS: 1 units 2 unit_groups 3 unit_specs   ARGV: 1 lease_ms 2.. warm chunks, padded
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local warm = {}
for i = 2, #ARGV do warm[ARGV[i]] = true end

local open = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
local members, best, best_warm = {}, nil, false
for start = 1, #open, 1000 do  -- unpack takes some thousands at most
  local last = math.min(start + 999, #open)
  local groups = redis.call('HMGET', KEYS[2], unpack(open, start, last))
  for i, group in ipairs(groups) do
    if not members[group] then
      members[group] = {}
      local is_warm = warm[string.match(group, ':(.*)$')] or false
      if not best or (is_warm and not best_warm) or (is_warm == best_warm and group < best) then
        best, best_warm = group, is_warm
      end
    end
    table.insert(members[group], open[start + i - 1])
  end
end
if not best then return {} end

local specs = {}
local expires = string.format('%.0f', now + tonumber(ARGV[1]))
for i, unit in ipairs(members[best]) do
  redis.call('ZADD', KEYS[1], expires, unit)
  specs[i] = redis.call('HGET', KEYS[3], unit)
end
return specs
