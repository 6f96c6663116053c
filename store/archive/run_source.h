#pragma once
// RunSource: reads a run from its beginning, from a store or from exported files. One thread.
//
// A run that goes on meanwhile is read up to the version that it had at readHead(). Memory does not
// grow with the run.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/evaluation/evaluation_check.h"
#include "core/result.h"
#include "store/store.h"

namespace allot {

// The data of a run except its history and evaluations.
struct RunHead {
  std::string run_id;
  RunImage image;                           // nextEvaluations() may return some of open_units, too
  std::string policy_sha256;                // of the published policy; "" before the run began
  std::map<std::string, uint64_t> refused;  // by kind
  uint64_t waiting_results = 0;             // in the inbox

  // Returns the limits by which evaluations of the run are checked.
  EvaluationBounds bounds() const {
    return boundsOf(image.spec.experiment, image.model ? image.model->layers() : 0);
  }
  // Returns the version; 0 before the run began.
  uint64_t version() const { return image.state ? image.state->policy().version() : 0; }
};

class RunSource {
 public:
  virtual ~RunSource() = default;

  // Reads the head. kUsage if there is no run, kData if the stored data cannot be a run's.
  // Requires: no updates or evaluations were read before.
  virtual Result<RunHead> readHead() = 0;
  // Returns the next updates, in order, up to the head's version; empty after the last. kData if
  // one is missing or unreadable.
  virtual Result<std::vector<v1::IterationRecord>> nextRecords() = 0;
  // Makes nextEvaluations() read answers. Without this call evaluations may lack them.
  void askForAnswers() { with_answers_ = true; }
  // Returns the next evaluations, of versions up to the head's; empty after the last.
  virtual Result<std::vector<v1::EvaluationResult>> nextEvaluations() = 0;
  // Returns kData if a store's history goes on beyond the head's version although the published
  // policy does not, if exported updates were changed since, or if exported files go on behind the
  // run's last update or evaluation.
  // Requires: nextRecords() and nextEvaluations() returned all.
  virtual Status checkEnd() = 0;
  // Returns the name of the run or folder, for messages.
  virtual std::string name() const = 0;

 protected:
  bool with_answers_ = false;
};

// Reads a store. Leaves out evaluations that are impossible, and impossible answers.
// Requires: the store outlives the source.
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
  uint64_t version_ = 0;          // of the head
  uint64_t read_ = 0;             // last version returned
  std::string evaluations_read_;  // id of the last entry read
  EvaluationBounds bounds_;
};

// Returns the records with version > after, oldest first, at most `count`, without readHistory()'s
// limit of bytes.
Result<std::vector<v1::IterationRecord>> readUpdates(RunReader* store, uint64_t after,
                                                     size_t count);

// Returns version 0 of a run: its origin's state, or the initial one. kData if experiment or origin
// does not fit the model, or the origin contradicts itself.
Result<v1::AggregatorState> firstState(const RunSpec& spec, const v1::ModelFacts& model);

}  // namespace allot
