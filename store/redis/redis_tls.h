#pragma once
// TLS for a Redis connection, in builds that have hiredis_ssl (hiredis 1.0 or newer). Called by the
// thread that owns the connection.
#include "store/redis/redis_address.h"

struct redisContext;

namespace allot {

// Does the handshake on a connected socket. The server needs a certificate for address.host from a
// trusted authority. Reads the files of the address at each call: they may be replaced. kUsage for
// a file that cannot be used, kUnavailable for a handshake that fails.
Status startTls(redisContext* context, const RedisAddress& address);

}  // namespace allot
