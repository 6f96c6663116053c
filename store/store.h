#pragma once
// Store: everything that outlives a process of one run, behind one interface.
//
// RedisStore is the real one, MemoryStore its twin for simulation; both must pass
// tests/store/conformance.h. A Store belongs to one thread; every call blocks until it is answered
// or its deadline has passed (ErrorCode::kUnavailable: nothing is known about whether it took
// effect, which is why every writing call may simply be repeated).
// Keys, growth and the reasons behind them: store/README.md.
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

// One client of one run in all its roles. Who needs one role only takes that one: a worker is given
// a RunReader and a WorkSource.
class Store : public RunReader,
              public WorkSource,
              public LeaseStore,
              public RunControl,
              public RunImport {};

// Opens the store of one run. url: see store/redis/redis_address.h.
// Does not fail when the server is away: each call then says so. observer: told of every request,
// and outlives the store; may be null.
Result<std::unique_ptr<Store>> openRedisStore(const std::string& url, const std::string& run_id,
                                              uint64_t timeout_ms = 5000,
                                              StoreObserver* observer = nullptr);
// The run that was created last under this experiment name, if any.
Result<std::optional<std::string>> findRun(const std::string& url, const std::string& experiment);
// The same; if there is none, `fresh` is noted as the newest run, which createRun is then to make.
// Whoever asks at the same moment gets the same run.
Result<std::string> findOrNameRun(const std::string& url, const std::string& experiment,
                                  const std::string& fresh);
// Experiment name -> newest run id.
Result<std::map<std::string, std::string>> listRuns(const std::string& url);

}  // namespace allot
