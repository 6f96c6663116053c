// The part of Aggregator that loads a run from the store.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "aggregator/learner/aggregator.h"
#include "core/learning/learning_checks.h"
#include "core/learning/policy.h"
#include "core/learning/update.h"

namespace allot {
namespace {

// Bytes after which a tick that catches up ends, so that lease, page and probes have their turn.
constexpr uint64_t kBytesInTick = 8 * 1024 * 1024;
constexpr size_t kPoliciesInSlice = 256;
constexpr size_t kRecordsInSlice = 64;

uint64_t bytesOf(const std::vector<v1::IterationRecord>& records) {
  uint64_t bytes = 1;  // never 0, which means that all is read
  for (const auto& record : records) bytes += record.ByteSizeLong();
  return bytes;
}

}  // namespace

Status Aggregator::load() {
  Status loaded = tryLoad();
  // The pieces may belong to two versions, since a late update of ours or one of another aggregator
  // may take effect between two reads.
  for (int tries = 1; !loaded && loaded.error().code == ErrorCode::kData && tries < 3; ++tries) {
    ALLOT_TRY(takeLease());
    loaded = tryLoad();
  }
  return loaded;
}

Status Aggregator::tryLoad() {
  ALLOT_ASSIGN(const auto state, store_.readState());
  ALLOT_ASSIGN(const auto policy, store_.readPolicy());
  if (!state || !policy) {
    return fail(ErrorCode::kData, "the store has a run without policy or state: restore it");
  }
  const uint64_t version = state->policy().version();
  ALLOT_ASSIGN(const uint64_t recorded, lastRecorded(version));
  if (policy->snapshot.version() != version || recorded != version ||
      policyDigest(state->policy()) != policy->sha256) {
    return fail(ErrorCode::kData, "the store disagrees with itself: policy version " +
                                      std::to_string(policy->snapshot.version()) + ", state " +
                                      std::to_string(version) + ", history " +
                                      std::to_string(recorded) +
                                      (version == recorded ? " (with other logits)" : "") +
                                      ": restore all of it from one backup or export");
  }
  ALLOT_TRY(checkLearners(run_.experiment, shapeOf(*model_), *state));
  state_ = *state;
  // Kept by a process that loads again: it does not read accepted evaluations again.
  if (!layer_losses_) layer_losses_.emplace(run_.experiment, model_->layers());
  plans_.clear();  // measured cells may be planned since
  policies_.clear();
  history_.clear();
  history_to_read_ = HistorySample::versionsToLoad(version);
  history_read_ = tickets_reached_ = 0;
  evaluations_caught_up_ = evaluations_settled_ = false;
  ALLOT_TRY(store_.reopenInbox());
  next_ticket_ = 0;
  if (run_.synchronous) {
    ALLOT_TRY(leadership_->resetTickets(version * episodesPerUpdate()));
  }
  held_.clear();
  held_tickets_.clear();
  ALLOT_TRY(restoreAudits());
  progressed();
  last_evaluated_ = last_progress_;
  loaded_ = true;
  if (version > 0) spdlog::info("continues after update {}", version);
  return {};
}

// Returns the version of the first record after `version`, else of the record of `version`; 0 if
// there is neither. One record a request: two may be too large for one answer.
Result<uint64_t> Aggregator::lastRecorded(uint64_t version) {
  ALLOT_ASSIGN(const auto beyond, store_.readHistory(version, 1));
  if (!beyond.empty()) return beyond.back().version();
  if (version == 0) return 0;
  ALLOT_ASSIGN(const auto last, store_.readHistory(version - 1, 1));
  return last.empty() ? 0 : last.back().version();
}

// What a start needs beside state and policy grows with the run. It is read in slices, over several
// ticks, before anything is learned. Returns true once all is read.
Result<bool> Aggregator::catchUp() {
  for (uint64_t bytes = 0; bytes < kBytesInTick;) {
    ALLOT_TRY(lead());
    if (!loaded_) return false;  // a key was broken and mended
    ALLOT_ASSIGN(const uint64_t read, catchUpOnce());
    if (read == 0) return true;
    bytes += read;
  }
  progressed();
  return false;
}

// Reads one slice. Returns its approximate bytes; 0 if all is read.
Result<uint64_t> Aggregator::catchUpOnce() {
  const uint64_t version = state_.policy().version();
  if (policies_.empty() || policies_.back().version() < version) return readOldPolicies();
  if (history_read_ < history_to_read_.size()) return readSample();
  if (!evaluations_caught_up_) return readSomeEvaluations();
  return 0;
}

// Reads the next slice of the window of policies, ascending. An import does not write policies:
// they are then read from the history, and version 0 is computed.
Result<uint64_t> Aggregator::readOldPolicies() {
  const uint64_t version = state_.policy().version();
  const uint64_t oldest =
      version < options_.policy_window ? 0 : version + 1 - options_.policy_window;
  const auto next = [&] { return policies_.empty() ? oldest : policies_.back().version() + 1; };
  ALLOT_ASSIGN(auto kept, store_.readPolicies(
                              next(), std::min<uint64_t>(kPoliciesInSlice, version + 1 - next())));
  uint64_t bytes = 1;
  for (v1::PolicySnapshot& policy : kept) {
    if (policy.version() != next()) break;
    bytes += policy.ByteSizeLong();
    policies_.push_back(std::move(policy));
  }
  if (bytes > 1) return bytes;
  if (next() == 0) {
    const v1::Origin* origin = run_.origin ? &*run_.origin : nullptr;
    policies_.push_back(initialState(run_.experiment, shapeOf(*model_), origin).policy());
    return bytes;
  }
  ALLOT_ASSIGN(const auto records, store_.readHistory(next() - 1, kRecordsInSlice));
  for (const auto& record : records) {
    if (record.version() == next() && next() <= version) policies_.push_back(record.policy());
  }
  if (records.empty() || records.front().version() > next()) {
    return fail(ErrorCode::kData, "update " + std::to_string(next()) +
                                      " is missing in the history: restore the run from a backup "
                                      "or export");
  }
  return bytesOf(records);
}

// Reads the next records of the sample, those of consecutive versions with one request.
Result<uint64_t> Aggregator::readSample() {
  const auto first = history_to_read_.begin() + static_cast<std::ptrdiff_t>(history_read_);
  size_t wanted = 1;
  while (wanted < kRecordsInSlice &&
         first + static_cast<std::ptrdiff_t>(wanted) < history_to_read_.end() &&
         first[static_cast<std::ptrdiff_t>(wanted)] == *first + wanted) {
    ++wanted;
  }
  ALLOT_ASSIGN(auto records, store_.readHistory(*first - 1, wanted));
  if (records.empty()) {
    return fail(ErrorCode::kData, "update " + std::to_string(*first) +
                                      " is missing in the history: restore the run from a backup "
                                      "or export");
  }
  const uint64_t bytes = bytesOf(records);
  history_read_ += records.size();
  for (auto& record : records) {
    tickets_reached_ = ticketsReached(tickets_reached_, record);
    history_.add(std::move(record));
  }
  return bytes;
}

}  // namespace allot
