#pragma once
// Measures recorded results again, for `allot verify --measure`: chooses results, has worker
// processes answer them with the recorded schedules, questions and seeds, and compares the scores.
// One thread.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "allot/v1/result.pb.h"
#include "cli/terminal.h"
#include "core/evaluation/measured_again.h"
#include "core/result.h"
#include "store/archive/run_source.h"

namespace allot {

struct MeasureAgainOptions {
  std::optional<uint64_t> answers;  // least number to measure; nothing: all answers
  uint64_t seed = 0;                // chooses the results
  std::string model;                // folder; "": the experiment's
  std::string beside;    // a file or folder that the experiment's relative paths start from
  unsigned workers = 0;  // processes; 0: one a core, or one with a GPU
  bool allow_code_execution = false;
};

// A random sample of a run's results: episodes, and evaluations of measure accuracy. Each result
// gets a random key; the results with the smallest keys are kept.
class ResultSample {
 public:
  // An episode or an evaluation: one is set.
  struct Item {
    uint64_t key = 0;
    std::optional<v1::EpisodeResult> episode;
    std::optional<v1::EvaluationResult> evaluation;
    int answers() const { return episode ? episode->scores_size() : evaluation->scores_size(); }
    // Returns the evaluation's version and cell, as in "version 3, s2anta/learned/8"; "" for an
    // episode.
    std::string cell() const;
  };

  // Keeps the fewest results, by key, that have `answers` answers together, and of each cell the
  // fewest that have kAgainFloor, or all; nothing: all results.
  ResultSample(std::optional<uint64_t> answers, uint64_t seed) : answers_(answers), random_(seed) {}

  void add(const v1::EpisodeResult& result);
  void add(const v1::EvaluationResult& result);

  // Returns the sample, in which evaluations with equal prompts are neighbours, and empties it.
  std::vector<Item> take();
  uint64_t seenAnswers() const { return seen_answers_; }
  // Returns the number of evaluations of other measures, which are not measured again.
  uint64_t passedOver() const { return passed_over_; }

 private:
  using Shared = std::shared_ptr<const Item>;
  // The results with the smallest keys that have enough answers together.
  struct Smallest {
    std::map<uint64_t, Shared> items;
    uint64_t answers = 0;
    // least: nothing keeps all.
    void keep(const Shared& item, std::optional<uint64_t> least);
  };
  void keep(Item item);

  const std::optional<uint64_t> answers_;
  std::mt19937_64 random_;
  Smallest of_all_;
  std::map<std::string, Smallest> of_cells_;
  uint64_t seen_answers_ = 0;
  uint64_t passed_over_ = 0;
};

struct MeasureSummary {
  MeasuredAgain compared;
  uint64_t seen_answers = 0;  // of the run
  uint64_t passed_over = 0;   // evaluations of other measures
  uint64_t seed = 0;
  std::string arithmetic;  // of the worker processes here
  bool exact = true;       // every score was added as exact (MeasuredAgain::add)
};

// Answers the sample again and empties it. kUsage if the model or the questions are not the run's.
Result<MeasureSummary> measureAgain(const RunHead& head, ResultSample* sample,
                                    const MeasureAgainOptions& options);

// Return the comparison as a sentence and as fields.
std::string measureText(const MeasureSummary& summary);
nlohmann::json measureJson(const MeasureSummary& summary);
// Returns kData with measureText(), the suspect workers and the suspect cells if the verdict is
// kDisagrees.
Status measureOutcome(const MeasureSummary& summary);

}  // namespace allot
