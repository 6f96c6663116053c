#pragma once
// Engine: what a worker knows how to do, without where work comes from or results go to.
//
// Owns the model, the tokenizer, both datasets and the prefilled prompts of one experiment. Every
// result is a function of (experiment, policy, ticket) or (experiment, unit), never of what was
// computed before. One thread.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/result.h"
#include "core/spec/choices.h"
#include "core/spec/prefill_profile.h"
#include "worker/loop/episode_engine.h"
#include "worker/loop/worker_events.h"
#include "worker/model/chat_template.h"
#include "worker/model/compute_device.h"
#include "worker/model/decoder.h"
#include "worker/model/generation.h"
#include "worker/model/prompt_cache.h"
#include "worker/model/tokenizer.h"
#include "worker/tasks/task.h"

namespace allot {

struct EngineOptions {
  std::string model_folder;
  std::string task_path = {};      // where spec.task.path is; empty: there as it stands
  std::string held_out_path = {};  // the same of spec.task.heldOutPath
  // For keys and values, on the device; 0: a share of what is free there (KvPoolOptions).
  size_t kv_bytes = 0;
  // For copies of prompts that a GPU has no room for, in the host's memory; nothing: a share of
  // what is free there.
  std::optional<size_t> host_bytes = {};
  uint32_t rows_at_once = 0;          // EpisodeEngine::rowsAtOnce; 0: what suits the device
  bool allow_code_execution = false;  // graders may run programs that the model writes
  WorkerEvents* events = nullptr;     // told of the work; outlives the engine; may be null
};

class Engine final : public EpisodeEngine {
 public:
  // Loads the model and makes the datasets. kUsage errors name file or key.
  static Result<std::unique_ptr<Engine>> load(const v1::Experiment& experiment,
                                              const EngineOptions& options);

  // Works for another experiment from now on, with the model, the questions and the prompts that
  // are here. kFenced, and nothing changes, if that one needs others: a new process must do it.
  Status takeUp(const v1::Experiment& next);

  const v1::ModelFacts& facts() const { return facts_; }
  const Dataset& dataset() const { return dataset_; }
  Decoder& decoder() { return *decoder_; }
  const Decoder& decoder() const { return *decoder_; }

  // Runs the episodes of all tickets as one batch under `policy`. Result ids, worker and build are
  // left to the caller.
  Result<std::vector<v1::EpisodeResult>> rollOut(const v1::PolicySnapshot& policy,
                                                 const std::string& policy_sha256,
                                                 const std::vector<uint64_t>& tickets) override;

  // A schedule to answer training questions under. The ticket names what it draws.
  struct Episode {
    uint64_t ticket = 0;
    SampleSchedule schedule;  // [layers]
    std::vector<uint32_t> questions;
  };
  // The same for schedules that no policy drew: whatever names a policy is left out. kData if one
  // does not fit the model or the questions.
  Result<std::vector<v1::EpisodeResult>> answerUnder(const std::vector<Episode>& episodes);

  // A held-out question's tokens, and those of its answer with the one that ended it.
  struct Spelled {
    uint32_t question = 0;
    std::vector<int32_t> prompt, tokens;
    double score = 0;
  };
  // Held-out questions answered by `method` after dense prompts, token by token: how another
  // implementation is compared. Empty schedule: all layers read everything. kUsage if one of the
  // three does not fit the experiment or the model.
  Result<std::vector<Spelled>> spell(const std::vector<uint32_t>& questions,
                                     const std::string& method, SampleSchedule schedule);

  // Evaluates one unit. kData if the unit does not fit this experiment.
  Result<v1::EvaluationResult> evaluate(const v1::EvaluationUnit& unit) override;
  Result<std::vector<v1::EvaluationResult>> evaluateTogether(
      const std::vector<v1::EvaluationUnit>& units) override;

  // Evaluation chunks whose first prompt is in memory: cheaper here than elsewhere.
  std::vector<uint32_t> warmChunks() const override;

  uint32_t rowsAtOnce() const override { return rows_at_once_; }

  std::string deviceName() const override { return decoder_->deviceName(); }
  // What keys and values of the longest question and its answer take, or with fidelity those of the
  // questions that are measured together: with less memory no run ends.
  size_t leastKvBytes() const;
  // Bytes; 0 on the CPU.
  size_t freeGpuMemory() const { return device_ == Device::kCuda ? freeMemory(device_) : 0; }

  struct Times {
    double generation = 0;  // the decoder's steps included
    double grading = 0;
  };
  const Times& times() const { return times_; }

 private:
  // How a question is read and answered.
  struct Methods {
    kernels::MethodOptions prefill, decode;
    bool measures_kept_mass = false;  // of the prompt's blocks
  };
  // A question of a split with the schedule to answer it under.
  struct Row {
    bool held_out = false;
    uint32_t question = 0;
    SampleSchedule schedule;
    uint32_t sequence = 0;
  };
  struct Answered {
    std::vector<v1::QuestionScore> scores;  // one a row, as the next four
    std::vector<uint64_t> steps;
    std::vector<kernels::RowStatistics> statistics;
    std::vector<std::optional<v1::Answer>> answers;  // those that are kept
    std::vector<v1::PrefillCounts> prompts;
    double prefill_seconds = 0;
    double decode_seconds = 0;
  };

  Engine(const v1::Experiment& experiment, Tokenizer tokenizer, WorkerEvents* events);
  // A prompt by how it is read (spec.attention.protocol).
  struct Read {
    std::vector<int32_t> context;   // in the prefill
    std::vector<int32_t> question;  // in decode steps
  };
  Read readingOf(const Question& asked) const;
  // What is asked after the work in hand, as far as it is known: the prompts in memory that are
  // asked for last make room for others.
  struct Ahead {
    std::optional<uint64_t> ticket;  // episodes from this one on
    uint32_t first = 0, count = 0;   // a unit's held-out questions, by one method after the other
  };
  // Prompts by how soon they are asked for again after `row`.
  std::unordered_map<std::string, uint64_t> comingPrompts(const Row& row,
                                                          const Methods& methods) const;
  // The rows with their prompts in memory, and `spare` pages a row beyond what generation takes.
  Result<std::vector<GenerationRow>> prompted(std::span<const Row> rows, const Methods& methods,
                                              size_t spare);
  PromptReading promptReading(const Row& row, const Methods& methods) const;
  std::string promptKey(const Row& row, const PromptReading& reading) const;
  void takeProfile(const PrefillProfile& profile);
  // How many of the first rows the pool holds at once; at least one.
  size_t rowsThatFit(std::span<const Row> rows, const Methods& methods) const;
  void reportMemory();
  double secondsForPrompts() const {
    return decoder_->times().prefill + prompts_->secondsCopying();
  }
  GenerationOptions generationOptions(const kernels::MethodOptions& method) const;
  Result<Answered> answer(const std::vector<Row>& rows, const Methods& methods);
  // Adds to `answered`.
  Status answerBatch(std::span<const Row> rows, const Methods& methods, Answered* answered);
  // Units that fit the experiment, of equal methods; their questions are the rows, in order. Fills
  // all but the seconds.
  Status measureAccuracy(const std::vector<Row>& rows, const Methods& methods,
                         std::vector<v1::EvaluationResult>* results);
  // How the unit's questions are read and answered. kData if it does not fit the experiment.
  Result<Methods> methodsOf(const v1::EvaluationUnit& unit) const;
  Result<std::vector<Row>> rowsOf(const v1::EvaluationUnit& unit, const Methods& methods) const;
  // Fidelity or variance. Fills all but the unit and the seconds.
  Status compareOutputs(const std::vector<Row>& rows, const Methods& methods, Measure measure,
                        v1::EvaluationResult* result);
  const Question& question(bool held_out, uint32_t index) const;
  uint32_t taskOf(const Question& question) const;
  uint32_t longestAnswer(const Row& row) const;

  WorkerEvents nobody_;  // listens where the options name no one
  WorkerEvents& events_;
  v1::Experiment experiment_;
  Tokenizer tokenizer_;
  std::optional<ChatTemplate> chat_;  // of all suites but recall
  Device device_ = Device::kCpu;
  uint32_t rows_of_step_ = 1;  // at most
  uint32_t rows_at_once_ = 1;
  bool allow_code_execution_ = false;
  std::unique_ptr<Decoder> decoder_;
  Dataset dataset_;
  Methods rollout_methods_;
  std::vector<float> tau_;      // of the experiment's profile, [layers, heads]; empty: it has none
  std::string profile_digest_;  // tells prompts read by it from those read by another
  std::unique_ptr<PromptCache> prompts_;
  Ahead ahead_;
  v1::ModelFacts facts_;
  uint64_t answers_room_ = 0;               // bytes, of a unit's
  std::map<uint32_t, std::string> chunks_;  // seen so far: chunk -> key of its first prompt
  Times times_;
};

// Where spec.model.path, a folder or a GGUF file, is: as it stands, or below the nearest parent of
// `experiment_file`'s folder that has it. kUsage if nowhere.
Result<std::string> findModelFolder(const std::string& path, const std::string& experiment_file);

}  // namespace allot
