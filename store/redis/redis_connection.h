#pragma once
// RedisConnection: one blocking connection to one Redis server (hiredis 0.14 and 1.x).
//
// Used by one thread. The connection is made on first use. A call without a whole answer drops the
// socket and the next call reconnects, so that a late answer never meets a later request. Each
// connect resolves the host and reads the password and TLS files again: these files may be
// replaced. Commands are sent as argument vectors, which are binary-safe and cannot be injected
// into.
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
#include "store/redis/redis_tls.h"
#include "store/store_observer.h"

struct redisContext;
struct redisReply;

namespace allot {

struct ScriptKey {
  std::string_view name;      // without the run's prefix, except "allot:index"
  std::string_view or_names;  // alternatives that a call may pass, each after a |; "" if none
  std::string_view access;    // one or more of r (reads), w (writes), d (deletes the whole key)

  // Returns `name` and the alternatives.
  std::vector<std::string_view> names() const;
};

// A Lua script with its digest for EVALSHA and the declarations of its first lines.
struct RedisScript {
  const char* name;
  std::string_view sha1;
  std::string_view text;
  std::span<const std::string_view> roles;     // users of acl.h that call it
  std::span<const ScriptKey> keys;             // in the order of KEYS
  std::span<const std::string_view> commands;  // in lower case
};

// A view of a reply, or of a part of one, valid as long as its RedisReply. Every accessor is
// defined for any reply: text() of a non-string is "", size() of a non-array is 0, a missing
// element is nil.
class RedisView {
 public:
  explicit RedisView(const redisReply* reply) : reply_(reply) {}

  bool isNil() const;
  bool isError() const;
  bool isText() const;            // a string or a status
  std::string_view text() const;  // of a string, a status or an error
  int64_t integer() const;        // of an integer, else 0
  size_t size() const;
  RedisView operator[](size_t index) const;

 private:
  const redisReply* reply_;  // null reads as nil
};

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

  // timeout_ms: of a call, connecting included; clamped to 1 ms..1 hour. observer: may be null.
  RedisConnection(RedisAddress address, uint64_t timeout_ms, StoreObserver* observer = nullptr);

  // Sends one command. kUnavailable if the server cannot be reached, does not answer within the
  // time-out, cannot serve now (loading, out of memory, read-only), or refuses a password or
  // command that it accepted before. kUsage if the server refuses this user or this command, or a
  // password or TLS file cannot be used; kInternal for any other error reply.
  Result<RedisReply> call(const Arguments& arguments);

  // Runs a script by its digest, or by its text if the server does not know it. Errors are those of
  // call().
  Result<RedisReply> run(const RedisScript& script, const Arguments& keys,
                         const Arguments& arguments);

  // Waits in the server (XREAD BLOCK) for an entry of a stream after the entry `after`. Returns the
  // entry's id ("unknown" if the reply has none); "large" if the entry is too large to be read; ""
  // if none came within block_ms. Drops the connection and returns "" once `stop`, which is called
  // about ten times a second, returns true.
  // Requires: block_ms > 0.
  Result<std::string> wait(const std::string& stream, const std::string& after, uint64_t block_ms,
                           const std::function<bool()>& stop = nullptr);

  // Limits the time-out of calls while the object lives. timeout_ms 0: no change.
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

  // Returns any reply, error replies included. If it has more than most_bytes, or `stop` returned
  // true, drops the connection and returns a missing reply.
  Result<RedisReply> exchange(const Arguments& arguments, uint64_t block_ms, size_t most_bytes,
                              const std::function<bool()>& stop = nullptr);
  Result<RedisReply> exchange(const Arguments& arguments);
  // Calls exchange() and reports the request to the observer under the name `command`.
  Result<RedisReply> observed(std::string_view command, const Arguments& arguments);
  void report(std::string_view command, const Result<RedisReply>& reply,
              std::optional<double> seconds) const;
  // Connects, does the TLS handshake and authenticates.
  Status connect(Deadline deadline);
  // Looks up the host, and connects to the first of its addresses that answers.
  Status connectTcp(Deadline deadline);
  Status authenticate(Deadline deadline);
  Status limitWaits(std::chrono::milliseconds time);
  Status send(const Arguments& arguments, Deadline deadline);
  // Reads what there is into the reader of replies; waits if there is nothing.
  Status readMore(Deadline deadline);
  Result<RedisReply> receive(Deadline deadline, size_t most_bytes);
  // Waits until there is something to read or the deadline has passed. Returns false if `stop`
  // returned true first.
  bool listen(Deadline deadline, const std::function<bool()>& stop);
  // Drops the connection. Returns kUnavailable with the reason.
  tl::unexpected<Error> broken();
  std::string user() const;  // for messages
  tl::unexpected<Error> unavailable(std::string_view why) const;
  // Translates an error reply to a command or script.
  tl::unexpected<Error> refused(std::string_view reply, std::string_view command);
  // Returns true if this process has authenticated with this account before.
  bool wasLetIn() const;
  std::string account() const;
  tl::unexpected<Error> notLetInNow() const;

  RedisAddress address_;
  std::chrono::milliseconds timeout_;
  StoreObserver* observer_;
  bool was_connected_ = false;
  bool was_answered_ = false;
  std::set<std::string, std::less<>> allowed_;  // commands and scripts that were allowed once
  std::unique_ptr<redisContext, Free> context_;
  std::optional<RedisTls> tls_;  // on the socket of context_, and used only while there is one
  std::chrono::milliseconds socket_limit_{0};  // the socket's current time-out
};

}  // namespace allot
