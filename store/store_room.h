#pragma once
// Estimates how many more updates of a run fit into the store. Pure functions, any thread.
#include <cstdint>
#include <optional>
#include <string>

#include "store/store.h"

namespace allot {

// Memory of a cluster's store: maxmemory in k8s/base/redis.yaml.
inline constexpr uint64_t kClusterStoreBytes = uint64_t{384} << 20;

// Returns the approximate bytes that an update takes for good: its record, the ids of its results,
// and its share of the recorded evaluation units with their answers.
uint64_t bytesOfUpdate(uint64_t record_bytes, uint64_t results, double evaluation_units,
                       double answers_of_unit);

// Returns how many more updates fit; nothing if the store has no limit or bytes_of_update is 0.
std::optional<uint64_t> updatesUntilFull(const StoreFill& fill, uint64_t bytes_of_update);

// Returns "312 of 384 MiB (81 %), full after about 9000 more updates"; "" if used_bytes is 0.
std::string fillText(const StoreFill& fill, std::optional<uint64_t> updates);

// Checks that the store keeps what it is given. kUsage if it evicts keys once its memory is full.
Status checkKeepsKeys(const StoreFill& fill);

// Returns advice if fewer updates fit (`updates`) than are still to come (`wanted`). Returns "" if
// enough fit or `updates` is unknown.
std::string whyTooSmall(std::optional<uint64_t> updates, uint64_t wanted);

}  // namespace allot
