#pragma once
// RedisConnection: one blocking connection to one Redis server (hiredis 0.14 and 1.x).
//
// Owned by one RedisStore and used by one thread. It connects on first use; after any failure it
// drops the socket, and the next call connects anew, so a late answer never meets a later question.
// Commands go out as argument vectors only (binary-safe, nothing to inject into).
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

struct redisContext;
struct redisReply;

namespace allot {

// A Lua script with the digest that EVALSHA knows it by.
struct RedisScript {
  const char* name;
  std::string_view sha1;
  std::string_view text;
};

// Where a server listens: a unix socket, or host and port.
struct RedisAddress {
  std::string url;  // as written, for messages
  std::string unix_path;
  std::string host;
  int port = 0;
};

// "unix:/path/redis.sock" or "redis://host:port" ("redis://[::1]:6379" for IPv6); kUsage otherwise.
Result<RedisAddress> parseRedisUrl(const std::string& url);

// A reply, or a part of one, to look at. Every question has an answer whatever the server sent:
// text() of something that is no string is "", size() of something that is no array is 0, an
// element that is not there is nil. Valid as long as the RedisReply that it came from.
class RedisView {
 public:
  explicit RedisView(const redisReply* reply) : reply_(reply) {}

  bool isNil() const;
  bool isError() const;
  bool isText() const;
  std::string_view text() const;  // of a string, a status or an error
  int64_t integer() const;        // of an integer, else 0
  size_t size() const;
  RedisView operator[](size_t index) const;

 private:
  const redisReply* reply_;  // null reads as nil
};

// Owns a reply.
class RedisReply {
 public:
  explicit RedisReply(redisReply* reply) : reply_(reply) {}

  RedisView view() const { return RedisView(reply_.get()); }

 private:
  struct Free {
    void operator()(redisReply* reply) const;
  };
  std::unique_ptr<redisReply, Free> reply_;
};

class RedisConnection {
 public:
  using Arguments = std::vector<std::string_view>;

  RedisConnection(RedisAddress address, uint64_t timeout_ms);

  // One command. Errors: kUnavailable when the server cannot be reached, does not answer within the
  // time-out, or says that it cannot serve now (loading, out of memory, read-only, ...); kUsage
  // when it wants a password; kInternal for any other error reply. block_ms: how long the command
  // itself may wait in the server, on top of the time-out.
  Result<RedisReply> call(const Arguments& arguments, uint64_t block_ms = 0);

  // A script: by digest, and by its text when the server does not know it (restarted, flushed).
  Result<RedisReply> run(const RedisScript& script, const Arguments& keys,
                         const Arguments& arguments);

  const std::string& url() const { return address_.url; }

 private:
  struct Free {
    void operator()(redisContext* context) const;
  };

  // Any reply, error replies included.
  Result<RedisReply> exchange(const Arguments& arguments, uint64_t block_ms);
  Status connect();
  tl::unexpected<Error> unavailable(std::string_view why) const;
  tl::unexpected<Error> refused(std::string_view error) const;

  RedisAddress address_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<redisContext, Free> context_;
};

}  // namespace allot
