-- roles: aggregator
-- keys: 1 lease r, 2 inbox rw, 3 seen w, 4 pending rw, 5 dead w, 6 refused_counts w, 7 news w
-- Moves one entry from the inbox to the refused ones. Does nothing if the inbox does not have it, so
-- that the call may be repeated.
-- ARGV: 1 epoch 2 entry id 3 result id 4 kind 5 reason 6 payload
--       7 how many refused ones to keep, about
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return {'FENCED', epoch or 'none'} end
if #redis.call('XRANGE', KEYS[2], ARGV[2], ARGV[2]) == 0 then return {'OK'} end
local owner = redis.call('HGET', KEYS[4], ARGV[3])
-- First, so that a full server refuses nothing here: it makes room.
redis.call('XDEL', KEYS[2], ARGV[2])
redis.call('XADD', KEYS[5], 'MAXLEN', '~', ARGV[7], '*', 'id', ARGV[3], 'kind', ARGV[4],
           'reason', ARGV[5], 'r', ARGV[6])
redis.call('HINCRBY', KEYS[6], ARGV[4], 1)
-- A forged entry with the same result id must not settle the result.
if owner == ARGV[2] then
  redis.call('SADD', KEYS[3], ARGV[3])
  redis.call('HDEL', KEYS[4], ARGV[3])
end
redis.pcall('XADD', KEYS[7], 'MAXLEN', 1, '*', 'new', 'room')
return {'OK'}
