#pragma once
// RedisConnection: one blocking connection to one Redis server (hiredis 0.14 and 1.x).
//
// Owned by one RedisStore and used by one thread. It connects on first use; after any failure it
// drops the socket, and the next call connects anew, so a late answer never meets a later question.
// Connecting looks the host up and reads the password file and the TLS files anew, so they may be
// replaced meanwhile.
// Commands go out as argument vectors only (binary-safe, nothing to inject into).
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "store/redis/redis_address.h"
#include "store/store_observer.h"

struct redisContext;
struct redisReply;

namespace allot {

// A key that a script gets.
struct ScriptKey {
  std::string_view name;     // without the run's prefix, but for "allot:index"
  std::string_view or_name;  // what else a call may give it; "" if nothing
  std::string_view access;   // letters of it: r reads, w writes, d deletes the key whole
};

// A Lua script with the digest that EVALSHA knows it by, and what it says of itself.
struct RedisScript {
  const char* name;
  std::string_view sha1;
  std::string_view text;
  std::span<const std::string_view> roles;     // who calls it: users of acl.h
  std::span<const ScriptKey> keys;             // in the order of KEYS
  std::span<const std::string_view> commands;  // in lower case
};

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

  bool isMissing() const { return reply_ == nullptr; }
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

  // observer: may be null.
  RedisConnection(RedisAddress address, uint64_t timeout_ms, StoreObserver* observer = nullptr);

  // One command. Errors: kUnavailable when the server cannot be reached, does not answer within the
  // time-out, or says that it cannot serve now (loading, out of memory, read-only, a password or a
  // right that is gone since it let us in); kUsage when it does not let this user in or do this;
  // kInternal for any other error reply.
  Result<RedisReply> call(const Arguments& arguments);

  // A script: by digest, and by its text when the server does not know it (restarted, flushed).
  Result<RedisReply> run(const RedisScript& script, const Arguments& keys,
                         const Arguments& arguments);

  // Waits in the server (XREAD BLOCK) for an entry of a stream after `after`, as a wake-up: the
  // entry's id; "large" if it is too large to be looked at; "" if none came within block_ms > 0, or
  // if `stop`, which is asked some ten times a second, said so first. That costs the connection.
  Result<std::string> wait(const std::string& stream, const std::string& after, uint64_t block_ms,
                           const std::function<bool()>& stop = nullptr);

  // While it lives, calls wait for so long at most; 0: as long as always.
  class Hurry {
   public:
    Hurry(RedisConnection* connection, uint64_t timeout_ms)
        : connection_(*connection), usual_(connection->timeout_) {
      if (timeout_ms > 0)
        connection_.timeout_ = std::min(usual_, std::chrono::milliseconds(timeout_ms));
    }
    ~Hurry() { connection_.timeout_ = usual_; }
    Hurry(const Hurry&) = delete;
    Hurry& operator=(const Hurry&) = delete;

   private:
    RedisConnection& connection_;
    const std::chrono::milliseconds usual_;
  };

  const std::string& url() const { return address_.shown; }

 private:
  struct Free {
    void operator()(redisContext* context) const;
  };

  using Deadline = std::chrono::steady_clock::time_point;

  // Any reply, error replies included. Nothing: it has more than most_bytes; the connection is
  // gone.
  Result<RedisReply> exchange(const Arguments& arguments, uint64_t block_ms, size_t most_bytes,
                              const std::function<bool()>& stop = nullptr);
  Result<RedisReply> exchange(const Arguments& arguments);
  // The same for the observer; `command` is what it calls the request.
  Result<RedisReply> observed(std::string_view command, const Arguments& arguments);
  void tell(std::string_view command, const Result<RedisReply>& reply,
            std::optional<double> seconds) const;
  // Connects, shakes hands and says who we are.
  Status connect(Deadline deadline);
  // To the first of the host's addresses that answers; looking its name up is part of it.
  Status connectTcp(Deadline deadline);
  Status authenticate(Deadline deadline);
  Status limitWaits(std::chrono::milliseconds time);
  Status send(const Arguments& arguments);
  Result<RedisReply> receive(Deadline deadline, size_t most_bytes);
  // Until there is something to read or the deadline is over; false if `stop` said so first.
  bool listen(Deadline deadline, const std::function<bool()>& stop) const;
  // Drops the connection; the error says why.
  tl::unexpected<Error> broken();
  std::string user() const;  // for messages
  tl::unexpected<Error> unavailable(std::string_view why) const;
  // What an error reply means to the caller of a command (or script).
  tl::unexpected<Error> refused(std::string_view reply, std::string_view command);
  // This account let us in before.
  bool wasLetIn() const;
  std::string account() const;
  tl::unexpected<Error> notLetInNow(const std::string& password_file) const;

  RedisAddress address_;
  std::chrono::milliseconds timeout_;
  StoreObserver* observer_;
  bool was_connected_ = false;
  std::set<std::string, std::less<>> allowed_;  // commands and scripts that were let through
  std::unique_ptr<redisContext, Free> context_;
  std::chrono::milliseconds socket_limit_{0};  // the socket's time-out now
};

}  // namespace allot
