-- roles: aggregator, reader
-- keys: 1 inbox|eval|evaluations r, 2 pending|units_done r, 3 accepted r
-- Returns entries of a stream, each as entry id, name, payload, size of the payload, answers (of an
-- evaluation), size of the answers, and the signature of its worker.
-- A worker can write anything, so nothing large leaves the server: a payload over the limit is left
-- out, and so is a signature that has not 96 bytes, and the reply ends at its limit. A name counts
-- only for the entry that was accepted under it (the third key: name -> entry id), else for the one
-- that the push made for it (the second key); other entries have the name ''.
-- ARGV: 1 start, as XRANGE takes it 2 count 3 largest payload 4 most bytes together
--       5 largest answers, which are left out like payloads; 0: all are left out
-- Entries are read a few at a time, which bounds the memory that they take.
local answer, total, start = {}, 0, ARGV[1]
while #answer < tonumber(ARGV[2]) do
  local few = math.min(16, tonumber(ARGV[2]) - #answer)
  local entries = redis.call('XRANGE', KEYS[1], start, '+', 'COUNT', few)
  for _, entry in ipairs(entries) do
    local id, fields = entry[1], entry[2]
    local name, payload, answers, signature = '', '', '', ''
    for f = 1, #fields - 1, 2 do
      if fields[f] == 'id' then name = fields[f + 1] end
      if fields[f] == 'r' then payload = fields[f + 1] end
      if fields[f] == 'a' then answers = fields[f + 1] end
      if fields[f] == 's' then signature = fields[f + 1] end
    end
    local own = #name <= 512 and
                (redis.call('HGET', KEYS[3], name) or redis.call('HGET', KEYS[2], name))
    if own ~= id then name = '' end
    local size = #payload
    if size > tonumber(ARGV[3]) then payload = '' end
    local answers_size = #answers
    if answers_size > tonumber(ARGV[5]) then answers = '' end
    if #signature ~= 96 then signature = '' end
    total = total + #payload + #answers + #name + #signature
    if #answer > 0 and total > tonumber(ARGV[4]) then return answer end
    table.insert(answer, {id, name, payload, size, answers, answers_size, signature})
  end
  if #entries < few then break end
  start = '(' .. entries[#entries][1]
end
return answer
