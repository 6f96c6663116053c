#pragma once
// RedisAddress: the address of a Redis server and the account to use. Pure functions, except
// readPassword, which reads one file; any thread.
//
// redis://[user@]host:port[?password-file=/path]     host: a name, or an IPv4 or [IPv6] address
// rediss://[user@]host:port[?...]                    the same over TLS; further options:
//     ca=/path                 trust the CA certificates of this file instead of the system's
//     cert=/path&key=/path     client certificate and its private key; both or neither
//     name=NAME                the name in the server's certificate, if it is not host
// unix:/path, unix:///path                           options: user=name, password-file=/path
//
// A user needs a password file. An address with a password is refused.
#include <string>

#include "core/result.h"

namespace allot {

struct RedisAddress {
  std::string shown;      // for messages: without the options
  std::string unix_path;  // empty: host and port
  std::string host;
  int port = 0;
  bool tls = false;
  std::string user;           // empty: the default user
  std::string password_file;  // empty: none
  std::string ca_file;
  std::string cert_file;
  std::string key_file;
  std::string name;  // in the server's certificate; empty: host
};

// Parses an address of the forms above. kUsage for others. Messages omit what may be a secret.
Result<RedisAddress> parseRedisUrl(const std::string& url);

// Returns the content of a password file without its line end. kUsage if it is empty, too long or
// cannot be read.
Result<std::string> readPassword(const std::string& path);

}  // namespace allot
