#pragma once
// Store: all state of a run that outlives a process, behind one interface.
//
// RedisStore is the real one, MemoryStore its equivalent for simulation; both must pass
// tests/store/conformance.h. A Store belongs to one thread. Every call blocks until it is answered
// or its deadline has passed (ErrorCode::kUnavailable). In that case the call may or may not have
// taken effect; every writing call may therefore simply be repeated.
// store/README.md describes keys, growth and the reasons for them.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/result.h"
#include "store/leadership.h"
#include "store/records.h"
#include "store/run_control.h"
#include "store/run_reader.h"
#include "store/work_source.h"

namespace allot {

class StoreObserver;

// One client of one run in all its roles. Code that needs few roles takes only those: a worker gets
// a RunReader and a WorkSource.
class Store : public RunReader,
              public WorkSource,
              public LeaseStore,
              public RunControl,
              public RunImport {};

// Opens the store of one run. url: see store/redis/redis_address.h. Does not fail if the server is
// away: each call then reports it. observer: is told of every request, and outlives the store; may
// be null.
Result<std::unique_ptr<Store>> openRedisStore(const std::string& url, const std::string& run_id,
                                              uint64_t timeout_ms = 5000,
                                              StoreObserver* observer = nullptr);
// Returns the run that was created last under this experiment name, if any.
Result<std::optional<std::string>> findRun(const std::string& url, const std::string& experiment);
// As findRun. If there is none, `fresh` becomes the newest run, which createRun must then create.
// Concurrent calls get the same run.
Result<std::string> findOrNameRun(const std::string& url, const std::string& experiment,
                                  const std::string& fresh);
// Returns the newest run id of each experiment name.
Result<std::map<std::string, std::string>> listRuns(const std::string& url);

}  // namespace allot
