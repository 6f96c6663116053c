#pragma once
// StoreObserver: is told of the requests of a RedisStore, except AUTH. Called on the store's
// thread; each call must be short.
// Requires: the observer outlives the store.
#include <optional>
#include <string_view>

namespace allot {

enum class RequestOutcome {
  kOk,
  kError,        // an error reply
  kUnavailable,  // no connection, or no answer in time
};

class StoreObserver {
 public:
  virtual ~StoreObserver() = default;
  // Reports a request. command: a script's name or a Redis command, one of a few dozen. seconds:
  // until the answer or failure; nothing for a read that waits in the server.
  virtual void requested(std::string_view command, RequestOutcome outcome,
                         std::optional<double> seconds) = 0;
  // Reports a connection after a store's first one.
  virtual void reconnected() = 0;
};

}  // namespace allot
