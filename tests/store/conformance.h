#pragma once
// The messages that the tests of the store are made of. Pure functions.
#include <string>
#include <vector>

#include "store/store.h"
#include "tests/results.h"

namespace allot::test {

inline v1::EpisodeResult result(const std::string& id, uint64_t ticket = 0) {
  v1::EpisodeResult out;
  out.set_result_id(id);
  out.set_ticket(ticket);
  out.set_reward(0.5);
  out.add_schedule(3);
  out.add_schedule(5);
  return out;
}

inline RunSpec runSpec(const std::string& sha256) {
  RunSpec spec;
  spec.experiment.set_name("recall");
  spec.experiment.mutable_spec()->set_seed(7);
  spec.sha256 = sha256;
  spec.synchronous = true;
  spec.started_unix_ms = 1'700'000'000'123;
  return spec;
}

inline v1::PolicySnapshot policy(uint64_t version) {
  v1::PolicySnapshot out;
  out.set_version(version);
  out.add_logits(0.1 * static_cast<double>(version));
  out.add_logits(-1.0);
  return out;
}

inline v1::AggregatorState state(uint64_t version, uint64_t episodes = 0) {
  v1::AggregatorState out;
  *out.mutable_policy() = policy(version);
  out.set_episodes(episodes);
  return out;
}

// The commit that makes version + 1 out of these entries.
inline Commit commitOf(uint64_t version, const std::vector<InboxEntry>& entries) {
  Commit out;
  out.expected_version = version;
  out.policy = policy(version + 1);
  out.state = state(version + 1, entries.size());
  out.record.set_version(version + 1);
  for (const InboxEntry& entry : entries) {
    out.record.add_results()->ParseFromString(entry.payload);
    out.consumed.emplace_back(entry.entry_id, entry.result_id);
  }
  return out;
}

inline v1::EvaluationUnit unit(uint64_t version, uint32_t chunk, const std::string& method) {
  v1::EvaluationUnit out;
  out.set_unit_id("v" + std::to_string(version) + "/c" + std::to_string(chunk) + "/" + method);
  out.set_policy_version(version);
  out.set_chunk(chunk);
  out.set_method(method);
  return out;
}

inline v1::EvaluationResult evaluationOf(const v1::EvaluationUnit& unit,
                                         const std::string& worker) {
  v1::EvaluationResult out;
  *out.mutable_unit() = unit;
  out.set_worker(worker);
  return out;
}

// With one answer to question 0, of which the result has a score.
inline v1::EvaluationResult answered(v1::EvaluationResult result, const std::string& text) {
  result.mutable_unit()->set_question_count(1);
  result.add_scores()->set_question(0);
  result.mutable_answers()->add_answers()->set_text(text);
  return result;
}

// Leads a run that has its version 0, by a lease that outlives the test.
inline Leadership lead(Store& store, const std::string& holder = "a") {
  const auto lease = valueOf(store.acquireLease(holder, 3'600'000));
  EXPECT_TRUE(lease.held);
  const Leadership leader(store, lease.epoch);
  EXPECT_THAT(leader.publishInitial(policy(0), state(0)), succeeds());
  return leader;
}

template <typename T>
Status statusOf(const Result<T>& result) {
  return result ? Status() : Status(tl::unexpected(result.error()));
}

inline std::vector<std::string> resultIds(const Result<std::vector<InboxEntry>>& entries) {
  std::vector<std::string> ids;
  if (entries)
    for (const InboxEntry& entry : *entries) ids.push_back(entry.result_id);
  return ids;
}

template <typename T>
::testing::AssertionResult failsWith(const Result<T>& result, ErrorCode code) {
  if (result) return ::testing::AssertionFailure() << "it succeeded";
  if (result.error().message.empty()) return ::testing::AssertionFailure() << "no message";
  if (result.error().code != code)
    return ::testing::AssertionFailure()
           << "code " << result.error().exitCode() << ": " << result.error().message;
  return ::testing::AssertionSuccess();
}

template <typename T>
::testing::AssertionResult succeeded(const Result<T>& result) {
  if (result) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << result.error().message;
}

}  // namespace allot::test
