#pragma once
// RunSource: a run to be read from its beginning, from a store or from exported files.
//
// What export, import, verify and the leaderboard have in common. A run that goes on meanwhile is
// read as it was at readHead(). One thread; memory does not grow with the run.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/evaluation/evaluation_check.h"
#include "core/result.h"
#include "store/store.h"

namespace allot {

// All of a run but its history and evaluations.
struct RunHead {
  std::string run_id;
  RunImage image;             // open units: some of them may be among the evaluations, too
  std::string policy_sha256;  // as published; "" before the run began
  std::map<std::string, uint64_t> refused;  // by kind
  uint64_t waiting_results = 0;             // in the inbox

  // What its evaluations are held against.
  EvaluationBounds bounds() const {
    return boundsOf(image.spec.experiment, image.model ? image.model->layers() : 0);
  }
  // 0 before the run began.
  uint64_t version() const { return image.state ? image.state->policy().version() : 0; }
};

class RunSource {
 public:
  virtual ~RunSource() = default;

  // Comes first. kUsage if there is no run, kData if what is there cannot be one.
  virtual Result<RunHead> readHead() = 0;
  // The next updates, in order, up to the head's version; empty after the last. kData if one is
  // missing or unreadable.
  virtual Result<std::vector<v1::IterationRecord>> nextRecords() = 0;
  // From now on evaluations come with their answers; else they may be without.
  void askForAnswers() { with_answers_ = true; }
  // The next evaluations, of versions up to the head's; empty after the last.
  virtual Result<std::vector<v1::EvaluationResult>> nextEvaluations() = 0;
  // After the last record: kData if there are more although the policy has not moved on.
  virtual Status checkEnd() = 0;
  // For messages.
  virtual std::string name() const = 0;

 protected:
  bool with_answers_ = false;
};

// Reads a store, which must outlive it.
class StoreSource final : public RunSource {
 public:
  StoreSource(RunReader* store, std::string run_id) : store_(*store), run_id_(std::move(run_id)) {}

  Result<RunHead> readHead() override;
  Result<std::vector<v1::IterationRecord>> nextRecords() override;
  Result<std::vector<v1::EvaluationResult>> nextEvaluations() override;
  Status checkEnd() override;
  std::string name() const override { return "run " + run_id_; }

 private:
  Status readPolicy(RunHead* head);

  RunReader& store_;
  const std::string run_id_;
  uint64_t version_ = 0;  // of the head
  uint64_t read_ = 0;     // last version handed out
  std::string evaluations_read_;
  EvaluationBounds bounds_;
};

// Records with version > after, oldest first, at most `count`, however large they are: for a few.
Result<std::vector<v1::IterationRecord>> readUpdates(RunReader* store, uint64_t after,
                                                     size_t count);

// Version 0 of a run: its origin's state, or the initial one. kData if the origin does not fit the
// model or contradicts itself.
Result<v1::AggregatorState> firstState(const RunSpec& spec, const v1::ModelFacts& model);

}  // namespace allot
