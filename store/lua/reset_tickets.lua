-- Sets the next ticket and forgets the reissued ones.
-- KEYS: 1 tickets 2 reissue   ARGV: 1 next
redis.call('SET', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
return {'OK'}
