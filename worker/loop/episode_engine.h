#pragma once
// EpisodeEngine: the interface through which WorkerLoop decodes and grades. Engine implements it on
// a model, the simulation without one. One thread.
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/learning/schedule.h"
#include "core/result.h"
#include "core/spec/choices.h"

namespace allot {

// Returns true if evaluateTogether() may take both units: they are answers to the same questions by
// the same methods.
inline bool answeredTogether(const v1::EvaluationUnit& a, const v1::EvaluationUnit& b) {
  return measureOf(a) == Measure::kAccuracy && measureOf(b) == Measure::kAccuracy &&
         a.method() == b.method() && prefillOf(a) == prefillOf(b) && a.chunk() == b.chunk() &&
         a.first_question() == b.first_question() && a.question_count() == b.question_count();
}

class EpisodeEngine {
 public:
  // A schedule, and the training questions to answer under it. The ticket seeds its draws.
  struct Episode {
    uint64_t ticket = 0;
    SampleSchedule schedule;  // in the form of a ScheduleView
    std::vector<uint32_t> questions;
    // The questions to answer, by place: `count` from `first` on; 0: all from there on. They get
    // the answers that they get among all.
    uint32_t first = 0;
    uint32_t count = 0;
  };

  virtual ~EpisodeEngine() = default;

  // Runs the episodes of all tickets together under `policy`. The caller sets result ids, worker,
  // build and the time of the end. kData if the policy does not fit the model.
  // Requires: there is a ticket.
  virtual Result<std::vector<v1::EpisodeResult>> rollOut(const v1::PolicySnapshot& policy,
                                                         const std::string& policy_sha256,
                                                         const std::vector<uint64_t>& tickets) = 0;
  // Runs episodes under given schedules instead of a policy's. The results name no policy, and have
  // scores of the questions that are to be answered. kData if an episode does not fit the model or
  // the questions.
  // Requires: each episode has a question to answer.
  virtual Result<std::vector<v1::EpisodeResult>> answerUnder(
      const std::vector<Episode>& episodes) = 0;
  // Evaluates one unit. kData if the unit does not fit this experiment.
  virtual Result<v1::EvaluationResult> evaluate(const v1::EvaluationUnit& unit) = 0;
  // Evaluates several units and returns their results in order. An engine may share decode steps
  // among the units; only the times of a result differ from a separate evaluation.
  // Requires: there is a unit, and answeredTogether() for each pair of units.
  virtual Result<std::vector<v1::EvaluationResult>> evaluateTogether(
      const std::vector<v1::EvaluationUnit>& units) {
    std::vector<v1::EvaluationResult> results;
    for (const v1::EvaluationUnit& unit : units) {
      ALLOT_ASSIGN(v1::EvaluationResult result, evaluate(unit));
      results.push_back(std::move(result));
    }
    return results;
  }
  // Returns the chunks of evaluated units whose first prompt is still in memory: they are cheaper
  // for this engine.
  virtual std::vector<uint32_t> warmChunks() const = 0;
  // Returns how many questions to answer at once to use the device well. The number may include
  // rows that wait for the place of an ended one.
  virtual uint32_t rowsAtOnce() const { return 1; }
  // Returns "cpu" or the name of the GPU.
  virtual std::string deviceName() const { return "cpu"; }
  // Returns the name of the code that computes. Results of equal names and builds have equal bits.
  virtual std::string arithmetic() const { return ""; }

  // Sets a callback that is called before each decode step and each prefill, and while programs
  // are graded. If it returns true, the current call returns kUnavailable and no results.
  void interruptWhen(std::function<bool()> asked) { interrupted_ = std::move(asked); }

 protected:
  // Returns the error to end with, once the callback has returned true.
  Status checkInterrupted() const {
    if (!interrupted_ || !interrupted_()) return {};
    return fail(ErrorCode::kUnavailable, "the work in hand was given up, as asked");
  }

 private:
  std::function<bool()> interrupted_;
};

}  // namespace allot
