#include "cli/run_comparison.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "core/digest.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/printable.h"
#include "core/spec/choices.h"
#include "core/spec/spec_change.h"

namespace allot {
namespace {

constexpr size_t kDigestShown = 12;

// Returns why the answers of these runs are not to the same questions by the same model; "" if they
// are. Paths and the chat template do not count where both runs have the digests that say what they
// stand for: that of a dataset is of its prompts as the model reads them.
std::string difference(const RunHead& a, const RunHead& b) {
  const v1::ModelFacts none;
  const v1::ModelFacts &mine = a.image.model ? *a.image.model : none,
                       &others = b.image.model ? *b.image.model : none;
  const auto differ = [](const std::string& what, const std::string& one,
                         const std::string& other) {
    return what + " is " + printable(one, 60) + " in A and " + printable(other, 60) + " in B";
  };
  const auto both = [&](const std::string& (v1::ModelFacts::*digest)() const) {
    return !(mine.*digest)().empty() && !(others.*digest)().empty();
  };
  const bool data_known = both(&v1::ModelFacts::dataset_sha256);
  const bool all_known =
      data_known && both(&v1::ModelFacts::weights_sha256) && both(&v1::ModelFacts::model_sha256);
  for (const SpecChange& change : specChanges(a.image.spec.experiment, b.image.spec.experiment)) {
    const std::string& key = change.path;
    const std::string differs = differ(key, change.from, change.to);
    if (key == "spec.task.path" || key == "spec.task.heldOutPath") {
      if (!data_known) return differs + ", and a digest of the questions is missing";
    } else if (key == "spec.model.path" || key == "spec.model.chatTemplate") {
      if (!all_known) return differs + ", and a digest of the model or of the questions is missing";
    } else if (key.starts_with("spec.task.") || key == "spec.seed" || key == "spec.policy.price" ||
               key == "spec.policy.stepTimes") {
      return differs;
    }
  }
  for (const auto& [what, digest] :
       {std::pair{"the dataset's digest", &v1::ModelFacts::dataset_sha256},
        {"the digest of the model's weights", &v1::ModelFacts::weights_sha256},
        {"the digest of the model's configuration and tokenizer", &v1::ModelFacts::model_sha256}}) {
    const std::string &one = (mine.*digest)(), &other = (others.*digest)();
    if (one.empty() || other.empty() || one == other) continue;
    return differ(what, one.substr(0, kDigestShown), other.substr(0, kDigestShown));
  }
  if (a.image.model && b.image.model && mine.layers() != others.layers()) {
    return differ("the model's number of layers", std::to_string(mine.layers()),
                  std::to_string(others.layers()));
  }
  return "";
}

std::string cellName(const EvaluationCell& cell, const v1::Policy& policy) {
  std::string name = cell.method;
  if (cell.total_budget > 0) {
    name += ", " + cell.schedule_name + ", budget " + budgetText(policy, cell.total_budget);
  }
  return name;
}

PredictionSide sideOf(const EvaluationCell& cell) { return {cell.all.mean(), cell.all.interval}; }

}  // namespace

Result<MeasuredRun> measuredRun(std::string name, RunHead head, EvaluationTable table,
                                std::optional<uint64_t> version) {
  std::map<std::tuple<std::string, std::string, uint64_t>, EvaluationCell> newest;
  std::string learned;  // versions
  for (EvaluationCell& cell : table.cells()) {
    if (!cell.complete) continue;
    if (cell.schedule_name == kLearnedSchedule) {
      const std::string one = std::to_string(cell.version);
      if (!learned.ends_with(one)) learned += (learned.empty() ? "" : ", ") + one;
      if (version && cell.version != *version) continue;
    }
    newest[{cell.method, cell.schedule_name, cell.total_budget}] = std::move(cell);
  }
  const bool found = std::any_of(newest.begin(), newest.end(), [&](const auto& entry) {
    return !version || entry.second.schedule_name == kLearnedSchedule;
  });
  if (!found) {
    return badInput("run " + name + " has no complete evaluation" +
                    (version ? " of version " + std::to_string(*version) : std::string()) +
                    (learned.empty() ? ": `allot status` says what it waits for"
                                     : "; it has versions " + learned));
  }
  MeasuredRun run{std::move(name), std::move(head), std::move(table), {}};
  for (auto& [key, cell] : newest) run.cells.push_back(std::move(cell));
  return run;
}

Result<MeasuredRun> readMeasuredRun(RunChoice choice, const std::string& text) {
  ALLOT_ASSIGN(const RunAtVersion run, runAtVersion(text, text));
  const bool local = choice.redis.empty() && choice.context.empty();
  (local ? choice.folder : choice.run) = run.run;
  std::optional<MeasuredRun> read;
  ALLOT_TRY(withRun(choice, StoreAccount::kReader, [&](RunAccess* access) -> Status {
    ALLOT_ASSIGN(RunHead head, access->source().readHead());
    EvaluationTable table(head.image.spec.experiment);
    ALLOT_TRY(eachEvaluation(&access->source(), head, [&](const auto& one) { table.add(one); }));
    ALLOT_ASSIGN(read, measuredRun(text, std::move(head), std::move(table), run.version));
    return {};
  }));
  return std::move(*read);
}

std::vector<std::string> modelDifferences(const MeasuredRun& a, const MeasuredRun& b) {
  std::vector<std::string> differences;
  for (const SpecChange& change :
       specChanges(a.head.image.spec.experiment, b.head.image.spec.experiment)) {
    if (change.path != "spec.model.kvDtype" && change.path != "spec.model.kvProfile" &&
        change.path != "spec.model.dtype") {
      continue;
    }
    const auto shown = [](const std::string& yaml) {
      if (yaml == "\"\"") return std::string("none");
      if (yaml.find("kv-profile") == std::string::npos) return printable(yaml, 60);
      return "a profile, SHA-256 " + sha256Hex(yaml).substr(0, kDigestShown);
    };
    differences.push_back(change.path + " is " + shown(change.from) + " in A and " +
                          shown(change.to) + " in B");
  }
  return differences;
}

Result<PredictionComparison> compareRuns(const MeasuredRun& a, const MeasuredRun& b) {
  const std::string differs = difference(a.head, b.head);
  if (!differs.empty()) {
    return badInput("these runs are not of the same questions, model and seed: " + differs);
  }
  PredictionComparison comparison;
  comparison.of_runs = true;
  const v1::Policy& policy = a.head.image.spec.experiment.spec().policy();  // of b's price, too
  const auto key = [](const EvaluationCell& cell) {
    return std::tie(cell.method, cell.schedule_name, cell.total_budget);
  };
  for (const EvaluationCell& one : a.cells) {
    const auto other = std::find_if(b.cells.begin(), b.cells.end(),
                                    [&](const auto& cell) { return key(cell) == key(one); });
    if (other == b.cells.end()) continue;
    const auto differences = b.table.differences(*other, a.table, one);
    if (!differences) continue;
    PredictionRow row{
        cellName(one, policy), differences->size(), sideOf(one), sideOf(*other), {}, {}};
    // One stream for all rows, so that runs in the other order give the mirror image.
    row.difference =
        pairedDifference(*differences, RandomStream(RunStreams{}, Purpose::kBootstrap, 1));
    comparison.rows.push_back(std::move(row));
  }
  if (comparison.rows.empty()) {
    return badInput("the runs have no method, schedule and budget in common: " + a.name + " has " +
                    cellName(a.cells.front(), policy) + ", " + b.name + " " +
                    cellName(b.cells.front(), policy));
  }
  if (comparison.rows.size() > 1) {
    std::vector<PairedDifference*> family;
    for (PredictionRow& row : comparison.rows) family.push_back(&row.difference);
    applyHolm(family);
  }
  return comparison;
}

}  // namespace allot
