#pragma once
// RedisTls: TLS on the connected socket of a RedisConnection, by OpenSSL: Debian 12's hiredis has
// none. Owned by its connection, whose thread calls it. Errors are kUnavailable, with a sentence.
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "store/redis/redis_address.h"

struct ssl_st;

namespace allot {

class RedisTls {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Does the handshake, for which the socket becomes non-blocking. The server needs a certificate
  // for the address's name from a trusted authority. Reads the files of the address at each call:
  // they may be replaced. kUsage for a file that cannot be used.
  // Requires: SIGPIPE is blocked, here and in write().
  static Result<RedisTls> start(int socket, const RedisAddress& address, Deadline deadline);

  Status write(std::string_view bytes, Deadline deadline);
  // Reads at least one byte and returns how many.
  Result<size_t> read(std::span<char> buffer, Deadline deadline);
  // Returns false if a read would wait. Bytes on the socket may be of the protocol alone.
  bool hasInput();

 private:
  struct Free {
    void operator()(ssl_st* session) const;
  };

  RedisTls(ssl_st* session, std::string shown) : session_(session), shown_(std::move(shown)) {}
  // Repeats an operation of OpenSSL until it returns more than 0, which is returned, or fails.
  // The error is the reason alone.
  Result<int> repeat(Deadline deadline, const std::function<int()>& operation);
  tl::unexpected<Error> handshakeError(const RedisAddress& address, const std::string& why) const;
  // Before an answer: a server that wants to see a certificate says so only after the handshake,
  // and its reason may be lost.
  tl::unexpected<Error> lost(const std::string& why) const;

  std::unique_ptr<ssl_st, Free> session_;
  std::string shown_;  // of the address
  bool answered_ = false;
};

}  // namespace allot
