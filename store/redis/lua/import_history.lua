-- roles: aggregator
-- keys: 1 import r, 2 history rw, 3 seen w, 4 counted_tickets rw
-- Appends records to the history. Records that it has already are skipped, so that the call may be
-- repeated.
-- ARGV: 1 name of this import 2.. of each record: entry id, record, number of results, result ids,
--       number of chunks of tickets, of each chunk: its number, its tickets as bits
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'OTHER'} end
local function count(chunk, mine)
  local bits, bytes = redis.call('HGET', KEYS[4], chunk) or '', {}
  for k = 1, #mine do
    bytes[k] = string.char(bit.bor(string.byte(bits, k) or 0, string.byte(mine, k)))
  end
  redis.call('HSET', KEYS[4], chunk, table.concat(bytes))
end
local i = 2
while i <= #ARGV do
  local found = redis.call('XRANGE', KEYS[2], ARGV[i], ARGV[i])
  if not found[1] or found[1][2][2] ~= ARGV[i + 1] then
    local added = redis.pcall('XADD', KEYS[2], ARGV[i], 'rec', ARGV[i + 1])
    if type(added) == 'table' and added.err then
      -- Other errors than that of the id (memory, disk, permission) are returned as they are.
      if not string.find(added.err, 'equal or smaller', 1, true) then return added end
      return {'ORDER', ARGV[i]}
    end
  end
  local results = tonumber(ARGV[i + 2])
  for k = i + 3, i + 2 + results do redis.call('SADD', KEYS[3], ARGV[k]) end
  i = i + 3 + results
  local chunks = tonumber(ARGV[i])
  for k = i + 1, i + 2 * chunks, 2 do count(ARGV[k], ARGV[k + 1]) end
  i = i + 1 + 2 * chunks
end
return {'OK'}
