#include "store/store_room.h"

namespace allot {
namespace {

// Bytes in Redis, measured: a result id in `seen`, a unit in `eval` and `units_done`.
constexpr uint64_t kSeenBytes = 75;
constexpr double kUnitBytes = 1024;

std::string mib(uint64_t bytes) { return std::to_string((bytes + (1 << 19)) >> 20); }

}  // namespace

uint64_t bytesOfUpdate(uint64_t record_bytes, uint64_t results, double evaluation_units,
                       double answers_of_unit) {
  return record_bytes + results * kSeenBytes +
         static_cast<uint64_t>(evaluation_units * (kUnitBytes + answers_of_unit));
}

std::optional<uint64_t> updatesUntilFull(const StoreFill& fill, uint64_t bytes_of_update) {
  if (fill.limit_bytes == 0 || bytes_of_update == 0) return std::nullopt;
  if (fill.used_bytes >= fill.limit_bytes) return 0;
  return (fill.limit_bytes - fill.used_bytes) / bytes_of_update;
}

std::string fillText(const StoreFill& fill, std::optional<uint64_t> updates) {
  if (fill.used_bytes == 0) return "";
  if (fill.limit_bytes == 0) return mib(fill.used_bytes) + " MiB, without a limit";
  const auto percent = static_cast<uint64_t>(100.0 * static_cast<double>(fill.used_bytes) /
                                             static_cast<double>(fill.limit_bytes));
  std::string text = mib(fill.used_bytes) + " of " + mib(fill.limit_bytes) + " MiB (" +
                     std::to_string(percent) + " %)";
  if (updates) text += ", full after about " + std::to_string(*updates) + " more updates";
  return text;
}

Status checkKeepsKeys(const StoreFill& fill) {
  // Other policies evict only keys with an expiry: a run has none.
  if (!fill.policy.starts_with("allkeys")) return {};
  return badInput("the store evicts keys once its memory is full (maxmemory-policy " + fill.policy +
                  "), and would lose the run: set it to noeviction");
}

std::string whyTooSmall(std::optional<uint64_t> updates, uint64_t wanted) {
  if (!updates || *updates >= wanted) return "";
  return "the store has room for about " + std::to_string(*updates) + " of the " +
         std::to_string(wanted) +
         " updates that are still to come: raise its maxmemory or lower spec.update.maxUpdates";
}

}  // namespace allot
