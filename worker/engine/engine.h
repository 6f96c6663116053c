#pragma once
// Engine: runs episodes and evaluation units on one model. It knows neither the store nor the run.
//
// Owns the model, the tokenizer, both datasets and the prefilled prompts of one experiment. Apart
// from its times, a result is a function of (experiment, policy, ticket) or (experiment, unit),
// never of earlier work. One thread.
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
  std::string task_path = {};      // replaces spec.task.path; empty: the spec's path is used
  std::string held_out_path = {};  // replaces spec.task.heldOutPath in the same way
  // Bytes of device memory for keys and values; 0: a share of the free memory (KvPoolOptions).
  size_t kv_bytes = 0;
  // Bytes of host memory for copies of prompts that do not fit into a GPU's memory; nothing: a
  // quarter of the free memory, and on the CPU 0.
  std::optional<size_t> host_bytes = {};
  uint32_t rows_at_once = 0;          // EpisodeEngine::rowsAtOnce; 0: by device
  bool allow_code_execution = false;  // graders may run programs that the model writes
  WorkerEvents* events = nullptr;     // is told of the work; outlives the engine; may be null
};

class Engine final : public EpisodeEngine {
 public:
  // Loads the model and builds the datasets. kUsage errors name the file or the key.
  static Result<std::unique_ptr<Engine>> load(const v1::Experiment& experiment,
                                              const EngineOptions& options);

  // Switches to another experiment. kFenced if `next` needs another model, other questions, other
  // pool data or another device: only a new process can work for it. An error changes nothing.
  Status switchTo(const v1::Experiment& next);

  const v1::ModelFacts& facts() const { return facts_; }
  const Dataset& dataset() const { return dataset_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  // Returns the tokens that end an answer: the model's own, and that of the template's turns.
  std::vector<int32_t> endTokens() const;
  Decoder& decoder() { return *decoder_; }
  const Decoder& decoder() const { return *decoder_; }

  Result<std::vector<v1::EpisodeResult>> rollOut(const v1::PolicySnapshot& policy,
                                                 const std::string& policy_sha256,
                                                 const std::vector<uint64_t>& tickets) override;

  Result<std::vector<v1::EpisodeResult>> answerUnder(const std::vector<Episode>& episodes) override;

  // A held-out question's tokens, and the answer's tokens, with the token that ended the answer.
  struct Spelled {
    uint32_t question = 0;
    std::vector<int32_t> prompt, tokens;
    double score = 0;
  };
  // Answers held-out questions by `method` after dense prompts and returns all tokens, so that
  // another implementation can be compared. Empty schedule: the budget of each head is UINT32_MAX.
  // kUsage if an argument does not fit the experiment or the model.
  Result<std::vector<Spelled>> spell(const std::vector<uint32_t>& questions,
                                     const std::string& method, SampleSchedule schedule);

  Result<v1::EvaluationResult> evaluate(const v1::EvaluationUnit& unit) override;
  Result<std::vector<v1::EvaluationResult>> evaluateTogether(
      const std::vector<v1::EvaluationUnit>& units) override;

  std::vector<uint32_t> warmChunks() const override;

  uint32_t rowsAtOnce() const override { return rows_at_once_; }

  std::string deviceName() const override { return decoder_->deviceName(); }
  std::string arithmetic() const override {
    return device_ == Device::kCpu ? cpuArithmetic() : deviceName();
  }
  // Returns the bytes that keys and values of the longest question and its answer take. With
  // fidelity or variance: at least those of the questions of a chunk, which are measured together.
  size_t leastKvBytes() const;
  // Returns the GPU's free bytes; 0 on the CPU.
  size_t freeGpuMemory() const { return device_ == Device::kCuda ? freeMemory(device_) : 0; }

  struct Times {
    double generation = 0;  // decode steps included
    double grading = 0;
  };
  const Times& times() const { return times_; }

 private:
  // How the prompt of a question is read and how its answer is decoded.
  struct Methods {
    kernels::MethodOptions prefill, decode;
    bool measures_kept_mass = false;  // of the prompt's blocks
  };
  // A question of one of the two datasets, with the schedule to answer it under.
  struct Row {
    bool held_out = false;
    uint32_t question = 0;
    SampleSchedule schedule;
    uint32_t sequence = 0;
  };
  struct Answered {
    std::vector<v1::QuestionScore> scores;  // one a row, as are the next four
    std::vector<uint64_t> steps;
    std::vector<kernels::RowStatistics> statistics;
    std::vector<std::optional<v1::Answer>> answers;  // set for answers that are kept
    std::vector<v1::PrefillCounts> prompts;
    double prefill_seconds = 0;
    double decode_seconds = 0;
  };

  Engine(const v1::Experiment& experiment, Tokenizer tokenizer, WorkerEvents* events);
  // A prompt, divided by how its tokens are read (spec.attention.protocol).
  struct Read {
    std::vector<int32_t> context;   // in the prefill
    std::vector<int32_t> question;  // in decode steps
  };
  Read readingOf(const Question& asked) const;
  // The work that is expected next. Prompts that it needs last are the first to be dropped from
  // memory.
  struct Ahead {
    std::optional<uint64_t> ticket;  // of the first expected episode
    uint32_t first = 0, count = 0;   // held-out questions of a unit, by one method after another
  };
  // Returns ranks, by promptKey(), of the prompts expected after `row`: the lower, the sooner.
  std::unordered_map<std::string, uint64_t> comingPrompts(const Row& row,
                                                          const Methods& methods) const;
  // Returns the rows with loaded prompts. Keeps `spare` pages a row free beyond generation's pages.
  Result<std::vector<GenerationRow>> prompted(std::span<const Row> rows, const Methods& methods,
                                              size_t spare);
  PromptReading promptReading(const Row& row, const Methods& methods) const;
  std::string promptKey(const Row& row, const PromptReading& reading) const;
  void applyProfile(const PrefillProfile& profile);
  // Returns how many of the first rows the pool holds at once; at least one.
  size_t rowsThatFit(std::span<const Row> rows, const Methods& methods) const;
  void reportMemory();
  bool has_warned_of_saturation_ = false;
  double secondsForPrompts() const {
    return decoder_->times().prefill + prompts_->secondsCopying();
  }
  GenerationOptions generationOptions(const kernels::MethodOptions& method) const;
  Result<Answered> answer(const std::vector<Row>& rows, const Methods& methods);
  Result<std::vector<Grades>> gradesOf(std::span<const Row> rows,
                                       const std::vector<Generated>& generated) const;
  // Answers rows that fit the pool together, and appends to `answered`.
  Status answerBatch(std::span<const Row> rows, const Methods& methods, Answered* answered);
  // Measures the accuracy of units with equal methods. `rows` has the units' questions in order.
  // The caller fills unit, seconds, device and arithmetic of a result.
  // Requires: the units fit the experiment.
  Status measureAccuracy(const std::vector<Row>& rows, const Methods& methods,
                         std::vector<v1::EvaluationResult>* results);
  // Returns how the unit's questions are read and answered. kData if they do not fit the
  // experiment.
  Result<Methods> methodsOf(const v1::EvaluationUnit& unit) const;
  Result<std::vector<Row>> rowsOf(const v1::EvaluationUnit& unit, const Methods& methods) const;
  // Measures fidelity or variance. The caller fills unit, seconds, device and arithmetic.
  Status compareOutputs(const std::vector<Row>& rows, const Methods& methods, Measure measure,
                        v1::EvaluationResult* result);
  const Question& question(bool held_out, uint32_t index) const;
  uint32_t taskOf(const Question& question) const;
  uint32_t longestAnswer(const Row& row) const;

  WorkerEvents nobody_;  // used if the options name no listener
  WorkerEvents& events_;
  v1::Experiment experiment_;
  Tokenizer tokenizer_;
  std::optional<ChatTemplate> chat_;  // for all suites except recall
  Device device_ = Device::kCpu;
  uint32_t rows_of_step_ = 1;  // upper bound
  uint32_t rows_at_once_ = 1;
  bool allow_code_execution_ = false;
  std::unique_ptr<Decoder> decoder_;
  Dataset dataset_;
  Methods rollout_methods_;
  std::vector<float> tau_;      // [layers, heads] of the experiment's profile; empty: it has none
  std::string profile_digest_;  // separates prompts that were read with different profiles
  std::unique_ptr<PromptCache> prompts_;
  Ahead ahead_;
  v1::ModelFacts facts_;
  uint64_t answers_room_ = 0;               // bytes for the kept answers of a unit
  std::map<uint32_t, std::string> chunks_;  // chunk -> key of its first prompt, as far as seen
  Times times_;
};

// Finds the folder or GGUF file of spec.model.path: at the path itself, or, if the path is
// relative, below `experiment_file`'s folder or the nearest parent that contains it. kUsage if it
// is nowhere.
Result<std::string> findModelFolder(const std::string& path, const std::string& experiment_file);

}  // namespace allot
