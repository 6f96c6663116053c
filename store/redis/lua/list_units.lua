-- roles: aggregator, reader
-- keys: 1 unit_specs r
-- Returns the open units, except those that are too large: a worker can write anything.
-- ARGV: 1 largest unit
local units = {}
for _, unit in ipairs(redis.call('HVALS', KEYS[1])) do
  if #unit <= tonumber(ARGV[1]) then table.insert(units, unit) end
end
return units
