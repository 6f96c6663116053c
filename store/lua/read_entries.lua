-- The entries of a stream after one of them: entry id, name, payload, size of the payload.
-- Anybody who may write the stream can write anything, so nothing large leaves the server: a payload
-- over the limit is left out, and an answer that has grown too long ends early. A name counts only
-- for the entry that the push made for it (`owners`: name -> entry id); other entries have no name.
-- Writes nothing.
-- KEYS: 1 stream 2 owners
-- ARGV: 1 start, as XRANGE takes it 2 count 3 largest payload 4 most bytes together
local answer, total = {}, 0
for i, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])) do
  local id, fields = entry[1], entry[2]
  local name, payload = '', ''
  for f = 1, #fields - 1, 2 do
    if fields[f] == 'id' then name = fields[f + 1] end
    if fields[f] == 'r' then payload = fields[f + 1] end
  end
  if #name > 512 or redis.call('HGET', KEYS[2], name) ~= id then name = '' end
  local size = #payload
  if size > tonumber(ARGV[3]) then payload = '' end
  total = total + #payload + #name
  if i > 1 and total > tonumber(ARGV[4]) then break end
  answer[i] = {id, name, payload, size}
end
return answer
