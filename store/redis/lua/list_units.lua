-- roles: aggregator, reader
-- keys: 1 unit_specs r
-- The open units. A worker can write anything: what is too large is left out.
-- ARGV: 1 largest unit
local units = {}
for _, unit in ipairs(redis.call('HVALS', KEYS[1])) do
  if #unit <= tonumber(ARGV[1]) then table.insert(units, unit) end
end
return units
