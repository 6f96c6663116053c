-- roles: worker, aggregator, reader
-- keys: 1 model r
-- Returns a value that any worker may have written, and its size: '' if it is too large, {} if there is
-- none.
-- ARGV: 1 largest size
local value = redis.call('GET', KEYS[1])
if not value then return {} end
if #value > tonumber(ARGV[1]) then return {'', #value} end
return {value, #value}
