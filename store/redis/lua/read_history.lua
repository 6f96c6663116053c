-- roles: aggregator, reader
-- keys: 1 history r
-- Returns records of the history, one and then as many as fit. They are read one by one, because a
-- record may have 50 MiB.
-- ARGV: 1 start, as XRANGE takes it 2 count 3 most bytes together
local answer, total, start = {}, 0, ARGV[1]
while #answer < tonumber(ARGV[2]) do
  local entry = redis.call('XRANGE', KEYS[1], start, '+', 'COUNT', 1)[1]
  if not entry then break end
  for _, field in ipairs(entry[2]) do total = total + #field end
  if #answer > 0 and total > tonumber(ARGV[3]) then break end
  table.insert(answer, entry)
  start = '(' .. entry[1]
end
return answer
