#pragma once
// How much room a run has left in the store, in updates. Pure functions, any thread.
#include <cstdint>
#include <optional>
#include <string>

#include "store/store.h"

namespace allot {

// Bytes that an update takes in the store for good, about: its record, the ids of its results, and
// its share of the evaluation units that are recorded, with the answers of each.
uint64_t bytesOfUpdate(uint64_t record_bytes, uint64_t results, double evaluation_units,
                       double answers_of_unit);

// How many more updates fit; nothing if the store has no limit or an update's size is not known.
std::optional<uint64_t> updatesUntilFull(const StoreFill& fill, uint64_t bytes_of_update);

// "312 of 384 MiB (81 %), full after about 9000 more updates"; "" if nothing is known.
std::string fillText(const StoreFill& fill, std::optional<uint64_t> updates);

// What to do if the updates that a run is still to make do not fit; "" if they do or nobody knows.
std::string whyTooSmall(std::optional<uint64_t> updates, uint64_t wanted);

}  // namespace allot
