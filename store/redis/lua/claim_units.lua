-- roles: worker
-- keys: 1 units rw, 2 unit_groups r, 3 unit_holders w, 4 free_units rw, 5 free_groups rw,
--       6 workers r
-- Claims units of one group and returns their ids. A group is 'version:chunk', both padded with
-- zeros, so that the smaller string is the older version. The score of a unit is the end of its
-- claim, 0 if there is none. Free units are listed in free_units as 'group/unit', except those of an
-- import and those whose claim has ended: an empty list is filled from the scores. A worker can
-- write anything: each listed unit is looked up before it is claimed, and the caller reads what the
-- unit is where workers cannot write.
-- ARGV: 1 holder 2 count 3 lease_ms 4.. warm chunks, padded
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local warm = {}
for i = 4, #ARGV do warm[ARGV[i]] = true end
-- Groups without units. They are removed from the list last: the first write must be one that needs
-- room, so that a full server refuses the claim whole.
local empty = {}

-- Frees units whose claim ends in this range. Called once nothing else is free, because their workers
-- may still be at work: for claims that have ended, and for those that end later than a claim can
-- last (also in checks.h), which were written before the clock was set back.
local function free_units(from, to)
  for _, unit in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], from, to, 'LIMIT', 0, 1000)) do
    local group = redis.call('HGET', KEYS[2], unit) or ''
    redis.call('ZADD', KEYS[1], 0, unit)
    redis.call('HDEL', KEYS[3], unit)
    redis.call('ZADD', KEYS[4], 0, group .. '/' .. unit)
    if empty[group] then
      redis.call('ZADD', KEYS[5], 0, group)
      empty[group] = nil
    else
      redis.call('ZADD', KEYS[5], 'NX', 0, group)
    end
  end
end

-- Returns the groups in the order to claim from: warm ones first, then the oldest version, then the
-- one claimed from longest ago, which is the order of the list. Also returns the next place in the
-- list. There are few groups unless somebody writes them: the others come once these are empty.
local function ranked_groups()
  local listed = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, 2000)
  local groups, place = {}, 0
  for i = 1, #listed, 2 do
    if not empty[listed[i]] then
      local version, chunk = string.match(listed[i], '^(.*):(.*)$')
      local cold = warm[chunk or ''] and 0 or 1
      table.insert(groups, {name = listed[i], cold = cold, version = version or '', at = i})
      place = tonumber(listed[i + 1]) + 1
    end
  end
  table.sort(groups, function(a, b)
    if a.cold ~= b.cold then return a.cold < b.cold end
    if a.version ~= b.version then return a.version < b.version end
    return a.at < b.at
  end)
  return groups, place
end

-- Claims and returns up to `count` free units of the group.
local function take(group, count)
  local taken = {}
  while #taken < count do
    local listed = redis.call('ZRANGEBYLEX', KEYS[4], '[' .. group .. '/', '(' .. group .. '0',
                              'LIMIT', 0, count - #taken)
    if #listed == 0 then
      empty[group] = true
      break
    end
    for _, item in ipairs(listed) do
      local unit = string.sub(item, #group + 2)
      local ends = redis.call('ZSCORE', KEYS[1], unit)
      if ends and tonumber(ends) <= now and #unit <= 512 then
        redis.call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[3])), unit)
        redis.call('HSET', KEYS[3], unit, ARGV[1])
        table.insert(taken, unit)
      end
      redis.call('ZREM', KEYS[4], item)
    end
  end
  return taken
end

local function claim()
  local groups, place = ranked_groups()
  for _, group in ipairs(groups) do
    -- At most a share of the free units, so that no worker has many left when the others have none.
    local workers = math.max(1, redis.call('ZCARD', KEYS[6]))
    local share = math.ceil(redis.call('ZCARD', KEYS[4]) / (2 * workers))
    local units = take(group.name, math.max(1, math.min(tonumber(ARGV[2]), share)))
    if #units > 0 then
      redis.call('ZADD', KEYS[5], 'XX', place, group.name)
      return units
    end
  end
  return {}
end

local units = claim()
if #units == 0 then
  free_units('-inf', string.format('%.0f', now))
  free_units('(' .. string.format('%.0f', now + 600000), '+inf')
  units = claim()
end
for group in pairs(empty) do redis.call('ZREM', KEYS[5], group) end
return units
