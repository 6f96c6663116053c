// allot card.
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/method_card.h"
#include "cli/run_status.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/files/files.h"

namespace allot {
namespace {

constexpr uint64_t kMostBenchBytes = uint64_t{64} << 20;

struct CardOptions {
  std::string method;
  std::vector<std::string> folders;
  std::vector<std::string> benches;
  RunChoice choice;
};

// The table has the cells' questions, by which they are compared.
struct MeasuredRun {
  std::unique_ptr<EvaluationTable> table;
  CardRun run;
};

Result<MeasuredRun> measuredOf(RunAccess* access, const std::string& name) {
  ALLOT_ASSIGN(const RunHead head, access->source().readHead());
  const v1::Experiment& experiment = head.image.spec.experiment;
  auto table = std::make_unique<EvaluationTable>(experiment);
  FidelityTable fidelity(fidelityQuestions(experiment.spec()));
  ALLOT_TRY(eachEvaluation(&access->source(), head, [&](const v1::EvaluationResult& result) {
    table->add(result);
    fidelity.add(result);
  }));
  CardRun run{name, experiment, table->cells(), {}, fidelity.summaries()};
  run.difference = [compared = table.get()](const EvaluationCell& a, const EvaluationCell& b) {
    return compared->difference(a, b);
  };
  return MeasuredRun{std::move(table), std::move(run)};
}

Result<nlohmann::json> readBench(const std::string& path) {
  ALLOT_ASSIGN(const std::string text, readWholeFile(path, kMostBenchBytes));
  auto bench = nlohmann::json::parse(text, nullptr, false);
  if (bench.is_discarded() || !bench.is_object()) return badInput(path + ": is no JSON object");
  return bench;
}

Status showCard(const CardOptions& options) {
  std::vector<std::unique_ptr<EvaluationTable>> tables;
  std::vector<CardRun> runs;
  std::vector<std::string> folders = options.folders;
  const bool elsewhere = !(options.choice.redis + options.choice.context).empty();
  // The newest run, or that of the store.
  if (folders.empty() && (elsewhere || options.benches.empty())) folders = {""};
  for (const std::string& folder : folders) {
    RunChoice choice = options.choice;
    choice.folder = folder;
    ALLOT_TRY(withRun(choice, StoreAccount::kReader, [&](RunAccess* access) -> Status {
      const auto name = access->folder().empty()
                            ? access->runId()
                            : std::filesystem::path(access->folder()).filename().string();
      ALLOT_ASSIGN(MeasuredRun measured, measuredOf(access, name));
      tables.push_back(std::move(measured.table));
      runs.push_back(std::move(measured.run));
      return {};
    }));
  }
  std::vector<BreakEven> break_evens;
  for (const std::string& path : options.benches) {
    ALLOT_ASSIGN(const nlohmann::json bench, readBench(path));
    auto found = breakEvens(bench, options.method);
    if (!found) return badInput(path + ": " + found.error().message);
    break_evens.insert(break_evens.end(), found->begin(), found->end());
  }
  ALLOT_ASSIGN(const std::string card, methodCard(options.method, runs, break_evens));
  std::printf("%s", card.c_str());
  return {};
}

}  // namespace

void addCardCommand(CLI::App* app, Action* action) {
  auto options = std::make_shared<CardOptions>();
  auto* card = app->add_subcommand(
      "card", "What a method promises, reads and costs, from runs that measured it (Markdown)");
  card->group(kLookUpGroup);
  card->add_option("METHOD", options->method, "As `allot methods` names it, without parameters")
      ->required();
  card->add_option("RUN", options->folders,
                   "Folders of runs or exports [runs/latest, unless --bench is given]");
  addRunChoice(card, &options->choice, false);
  card->add_option("--bench", options->benches,
                   "What `allot bench kernels --json FILE` wrote: from which length on the method "
                   "is faster than dense attention")
      ->allow_extra_args(false);
  card->footer(
      "Accuracies are of complete cells, differences from dense attention on the same questions. "
      "Others at equal bytes are the two best of the run's other methods under uniform schedules, "
      "between their budgets that read less and more.\n\n"
      "Examples:\n"
      "  allot card s2anta-q4\n"
      "  allot card s2anta-q4 runs/sweep runs/fidelity --bench h200.json > q4.md");
  card->callback([=] { *action = [options] { return exitCodeOf(showCard(*options)); }; });
}

}  // namespace allot
