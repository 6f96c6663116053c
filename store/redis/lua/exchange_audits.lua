-- roles: aggregator
-- keys: 1 lease r, 2 audits rw, 3 audit_answers rd, 4 news w
-- Replaces what workers are asked to answer again, and returns what those who are asked have answered.
-- A worker can write anything: an answer that is too large is left out, others are deleted unread.
-- ARGV: 1 epoch 2 largest answer 3.. worker, tasks
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
local asked, answers, new = {}, {'OK'}, false
for i = 3, #ARGV, 2 do
  asked[ARGV[i]] = true
  if redis.call('HGET', KEYS[2], ARGV[i]) ~= ARGV[i + 1] then
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
    new = true
  end
  local answer = redis.pcall('HGET', KEYS[3], ARGV[i])
  if type(answer) == 'string' and #answer <= tonumber(ARGV[2]) then table.insert(answers, answer) end
end
local all = redis.call('HGETALL', KEYS[2])
for i = 1, #all, 2 do
  if not asked[all[i]] then redis.call('HDEL', KEYS[2], all[i]) end
end
redis.call('UNLINK', KEYS[3])
if new then redis.pcall('XADD', KEYS[4], 'MAXLEN', 1, '*', 'new', 'audits') end
return answers
