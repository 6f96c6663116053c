#include "aggregator/learner/experiment_file.h"

#include <spdlog/spdlog.h>

#include "aggregator/learner/begin_run.h"
#include "core/files/files.h"
#include "core/learning/exact_math.h"
#include "core/learning/learning_checks.h"
#include "core/learning/policy.h"
#include "core/spec/spec.h"
#include "core/spec/spec_yaml.h"
#include "store/archive/exact_json.h"

namespace allot {
namespace {

constexpr uint64_t kLargestOrigin = uint64_t{64} << 20;

// Returns true if the error counts as the file's, and not as one of the store.
bool isRefusal(const Error& error) { return error.code == ErrorCode::kUsage; }

}  // namespace

std::optional<std::string> ExperimentFile::content() const {
  auto text = readBeginning(options_.path, kMostYamlBytes + 1);
  if (!text) return std::nullopt;
  return std::move(*text);
}

Result<RunSpec> ExperimentFile::parse(const std::optional<std::string>& content,
                                      uint32_t schema) const {
  if (!content) return badInput(options_.path + ": cannot be read: is the path right?");
  ALLOT_ASSIGN(auto file, parseFileOfRun(*content, options_.path, options_.set, schema));
  v1::Experiment& experiment = file.experiment;
  ALLOT_TRY(embedProfiles(&experiment, options_.path));
  if (options_.synchronous && !experiment.spec().has_update()) {
    return badInput(
        "--synchronous needs spec.update: an evaluation alone has no policy to wait for");
  }
  RunSpec run{experiment, specDigest(experiment), options_.synchronous, options_.unix_now()};
  run.arithmetic = kArithmetic;
  run.schema = file.schema;
  run.build = options_.build;
  if (!options_.origin.empty()) {
    const auto origin = readWholeFile(options_.origin, kLargestOrigin);
    run.origin.emplace();
    if (!origin || !parseExactJson(*origin, &*run.origin) ||
        run.origin->state().policy().logits().empty()) {
      return badInput(options_.origin + ": is not the origin of a fork: make it with `allot fork`");
    }
    const v1::AggregatorState& state = run.origin->state();
    // The number of heads and prices are checked once the model is known.
    const uint32_t heads = entriesPerLayer(state.policy());
    const ModelShape shape(static_cast<uint32_t>(state.policy().logits_size()), heads, heads, 0);
    if (const Status same = checkBudgets(experiment, shape, state); !same) {
      return badInput(options_.path +
                      ": the run that it forks learned otherwise: " + same.error().message +
                      "; keep spec.seed, spec.task, spec.update.learner, spec.policy and "
                      "spec.rollout as they were, or "
                      "begin anew");
    }
  }
  return run;
}

Result<RunSpec> ExperimentFile::read() { return parse(content(), kSpecSchema); }

Result<RunSpec> ExperimentFile::apply(Store* store, const std::optional<std::string>& content) {
  ALLOT_ASSIGN(const auto stored, store->readSpec());
  ALLOT_ASSIGN(const RunSpec wanted, parse(content, stored ? stored->schema : kSpecSchema));
  // A run that was stored with a goal beyond its reach, say, goes on with it.
  if (!stored || checkEffects(stored->experiment, options_.path)) {
    ALLOT_TRY(checkEffects(wanted.experiment, options_.path));
  }
  return beginRun(store, wanted);
}

Result<RunSpec> ExperimentFile::begin(Store* store, bool stay) {
  auto now = content();
  auto run = apply(store, now);
  if (run) run_sha256_ = run->sha256;
  if (run || !stay || !isRefusal(run.error())) {
    seen_ = std::move(now);
    return run;
  }
  ALLOT_ASSIGN(auto stored, store->readSpec());
  if (!stored) return run;
  run_sha256_ = stored->sha256;
  seen_ = std::move(now);
  refused_ = run.error().message;
  spdlog::warn("the run goes on as it is stored: {}", refused_);
  return std::move(*stored);
}

Result<std::optional<RunSpec>> ExperimentFile::follow(Store* store) {
  auto now = content();
  if (now == seen_) return std::nullopt;
  auto run = apply(store, now);
  if (!run && !isRefusal(run.error())) return tl::unexpected(run.error());
  seen_ = std::move(now);
  const std::string why = run ? "" : run.error().message;
  if (!why.empty()) spdlog::warn("an edit is refused, the run stays as it is: {}", why);
  if (why.empty() && !refused_.empty()) spdlog::info("the experiment file is in order again");
  refused_ = why;
  if (!run || run->sha256 == run_sha256_) return std::nullopt;
  run_sha256_ = run->sha256;
  return std::move(*run);
}

Result<std::string> chooseRun(const std::string& redis, const std::string& run_id,
                              const Result<RunSpec>& file, const std::string& fresh_id) {
  if (!run_id.empty()) return run_id;
  if (file) return findOrNameRun(redis, file->experiment.name(), fresh_id);
  ALLOT_ASSIGN(const auto runs, listRuns(redis));
  if (runs.size() != 1) return tl::unexpected(file.error());
  return runs.begin()->second;
}

}  // namespace allot
