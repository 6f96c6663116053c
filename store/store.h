#pragma once
// Store: all state of a run that outlives a process, behind one interface.
//
// RedisStore is the real one, MemoryStore its equivalent for simulation. A Store belongs to one
// thread. Every call blocks until it is answered or its deadline has passed (kUnavailable). After
// kUnavailable the call may or may not have taken effect; every writing call may be repeated. Other
// errors are kFenced for a former leader's write and for a worker's write to a run that was
// replaced, kUsage for a user without the permission, kUsage or kInternal for arguments that the
// store refuses (store/checks.h), and kData for damaged data, unless the call says that it skips
// such data. store/README.md describes keys, growth, the reasons for them, and what a repeated call
// returns.
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

// One client of one run in all its roles. Code depends on the roles that it needs: a worker gets a
// RunReader and a WorkSource.
class Store : public RunReader,
              public WorkSource,
              public LeaseStore,
              public RunControl,
              public RunImport {};

// Opens the store of one run. kUsage for a malformed url (store/redis/redis_address.h) or run id.
// The store connects on its first call. observer: is told of requests; may be null.
// Requires: the observer outlives the store.
Result<std::unique_ptr<Store>> openRedisStore(const std::string& url, const std::string& run_id,
                                              uint64_t timeout_ms = 5000,
                                              StoreObserver* observer = nullptr);
// Returns the newest run that is noted for this experiment name, which may not have been created
// yet; nothing if none is noted.
Result<std::optional<std::string>> findRun(const std::string& url, const std::string& experiment);
// Returns the run that findRun() finds. If there is none, notes and returns `fresh`, which
// createRun must then create. Concurrent calls get the same run.
Result<std::string> findOrNameRun(const std::string& url, const std::string& experiment,
                                  const std::string& fresh);
// Returns the run id that is noted for each experiment name.
Result<std::map<std::string, std::string>> listRuns(const std::string& url);

}  // namespace allot
