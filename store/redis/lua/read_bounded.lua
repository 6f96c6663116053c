-- roles: worker, aggregator, reader
-- keys: 1 model r
-- A value that anybody may have written: it, or nothing and its size if that is too large. Nothing
-- at all if there is none.
-- ARGV: 1 largest size
local value = redis.call('GET', KEYS[1])
if not value then return {} end
if #value > tonumber(ARGV[1]) then return {'', #value} end
return {value, #value}
