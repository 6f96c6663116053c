#pragma once
// EpisodeEngine: what WorkerLoop needs of whoever decodes and grades. Engine is the real one; the
// simulation has one that costs nothing. One thread.
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/result.h"
#include "core/spec/choices.h"

namespace allot {

// Whether evaluateTogether() may have both: answers to the same questions by the same methods.
inline bool answeredTogether(const v1::EvaluationUnit& a, const v1::EvaluationUnit& b) {
  return measureOf(a) == Measure::kAccuracy && measureOf(b) == Measure::kAccuracy &&
         a.method() == b.method() && prefillOf(a) == prefillOf(b) && a.chunk() == b.chunk() &&
         a.first_question() == b.first_question() && a.question_count() == b.question_count();
}

class EpisodeEngine {
 public:
  virtual ~EpisodeEngine() = default;

  // Runs the episodes of all tickets as one batch under `policy`. Result ids, worker and build are
  // left to the caller.
  virtual Result<std::vector<v1::EpisodeResult>> rollOut(const v1::PolicySnapshot& policy,
                                                         const std::string& policy_sha256,
                                                         const std::vector<uint64_t>& tickets) = 0;
  // Evaluates one unit. kData if the unit does not fit this experiment.
  virtual Result<v1::EvaluationResult> evaluate(const v1::EvaluationUnit& unit) = 0;
  // The same of several units that answeredTogether() holds for, one result each in their order:
  // what can shares decode steps among them, and every result but its times is as it is alone.
  virtual Result<std::vector<v1::EvaluationResult>> evaluateTogether(
      const std::vector<v1::EvaluationUnit>& units) {
    std::vector<v1::EvaluationResult> results;
    for (const v1::EvaluationUnit& unit : units) {
      ALLOT_ASSIGN(v1::EvaluationResult result, evaluate(unit));
      results.push_back(std::move(result));
    }
    return results;
  }
  // Evaluation chunks whose first prompt is in memory: cheaper here than elsewhere.
  virtual std::vector<uint32_t> warmChunks() const = 0;
  // Questions that are worth answering at once: the rows that a decode step takes in hardly more
  // time than one, and where answers are of many lengths others that take the place of the first.
  virtual uint32_t rowsAtOnce() const { return 1; }
  // What computes: "cpu" or a GPU's name.
  virtual std::string deviceName() const { return "cpu"; }

  // `asked` is called before each decode step and each prompt, and says whether to give up what is
  // in hand: the call under way then ends with an error and leaves nothing behind.
  void interruptWhen(std::function<bool()> asked) { interrupted_ = std::move(asked); }

 protected:
  // The error to end with, once that is asked for.
  Status checkInterrupted() const {
    if (!interrupted_ || !interrupted_()) return {};
    return fail(ErrorCode::kUnavailable, "the work in hand was given up, as asked");
  }

 private:
  std::function<bool()> interrupted_;
};

}  // namespace allot
