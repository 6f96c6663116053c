#include "cli/preflight.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>
#include <tuple>

#include "aggregator/page/run_view.h"
#include "cli/child_process.h"
#include "cli/terminal.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/files/files.h"
#include "core/json_text.h"
#include "core/learning/measured.h"
#include "core/learning/policy.h"
#include "core/learning/priced_schedule.h"
#include "core/learning/update.h"
#include "core/spec/choices.h"
#include "core/spec/spec.h"
#include "core/spec/spec_rules.h"
#include "core/spec/spec_yaml.h"
#include "core/spec/task_catalogue.h"
#include "store/store_room.h"

namespace allot {
namespace {

constexpr uint64_t kLeastMib = 64;  // for keys and values, unless a person wishes less

using nlohmann::json;

constexpr uint64_t kPreflightKvMib = 64;

// Prints the sentences of allot-worker that tell mistakes, except the last, which it returns; "" if
// there is none.
std::string lastMistake(const std::string& told) {
  constexpr std::string_view kStart = "allot-worker: ";
  std::string last;
  std::stringstream lines(told);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kStart)) continue;
    if (!last.empty())
      std::fprintf(stderr, "allot: %s\n", printable(last, kLongestMessage).c_str());
    last = line.substr(kStart.size());
  }
  return last;
}

Result<json> factsOf(const RunOptions& options) {
  Command command{
      siblingProgram("allot-worker"),
      {"--check", options.experiment_file, "--kv-memory", std::to_string(kPreflightKvMib)},
      {{"OPENBLAS_NUM_THREADS", "1"}, {"OMP_NUM_THREADS", "1"}}};
  for (const std::string& set : options.set) {
    command.arguments.insert(command.arguments.end(), {"--set", set});
  }
  if (!options.model.empty()) {
    command.arguments.insert(command.arguments.end(), {"--model", options.model});
  }
  if (options.resume) command.arguments.emplace_back("--stored");
  if (options.allow_code_execution) command.arguments.emplace_back("--allow-code-execution");
  ALLOT_ASSIGN(const Output output, capture(command));
  if (output.status != 0) {
    std::string line = lastMistake(output.err);
    if (line.empty()) line = lastLine(output.err);
    if (output.status == 127) line = command.program + " is missing: build it beside allot";
    if (line.empty()) line = "allot-worker ended with status " + std::to_string(output.status);
    return fail(output.status == 65 || output.status == 74 || output.status == 70
                    ? static_cast<ErrorCode>(output.status)
                    : ErrorCode::kUsage,
                line);
  }
  auto facts = parseJson(lastLine(output.out), "the answer of allot-worker --check");
  if (!facts) return fail(ErrorCode::kInternal, facts.error().message);
  if (!facts->contains("model_folder")) {
    return fail(ErrorCode::kInternal, "allot-worker --check answered something else than facts");
  }
  return facts;
}

uint64_t mibOf(uint64_t bytes) { return (bytes + (uint64_t{1} << 20) - 1) >> 20; }

Result<WorkerSizes> sizesOf(const RunOptions& options, const Preflight& preflight) {
  const json& facts = preflight.facts;
  WorkerNeeds needs;
  needs.gpu = preflight.onGpu();
  needs.gpus = facts.value("gpus", 1U);
  needs.cores = std::thread::hardware_concurrency();
  needs.weights_mib = mibOf(facts.value("weights_bytes", uint64_t{0}));
  needs.least_kv_mib = mibOf(facts.value("least_kv_bytes", uint64_t{0}));
  // What a GPU had free was measured beside one worker's weights, keys and values.
  needs.free_mib =
      needs.gpu ? facts.value("gpu_memory_mib", uint64_t{0}) + needs.weights_mib + kPreflightKvMib
                : availableMib();
  return sizeWorkers(needs, options.workers, options.kv_mib);
}

// Returns "oneHot" for "oneHot-03": there is such a schedule for each layer.
std::string kindOfSchedule(const std::string& name) {
  const size_t dash = name.find('-');
  return dash == std::string::npos ? name : name.substr(0, dash);
}

// Cells of one measure, method and kind of schedule.
struct CellGroup {
  std::set<uint64_t> budgets;
  std::set<std::pair<std::string, uint64_t>> cells;  // by schedule and budget
  uint64_t answers = 0;                              // in one evaluation
};
using CellGroups = std::map<std::tuple<std::string, std::string, std::string>, CellGroup>;

CellGroups groupsOf(const std::vector<v1::EvaluationUnit>& units) {
  CellGroups groups;
  for (const v1::EvaluationUnit& unit : units) {
    CellGroup& group = groups[{std::string(wordOf(measureOf(unit))), methodsName(unit),
                               kindOfSchedule(unit.schedule_name())}];
    if (unit.total_budget() > 0) group.budgets.insert(unit.total_budget());
    group.cells.emplace(unit.schedule_name(), unit.total_budget());
    group.answers += unit.question_count();
  }
  return groups;
}

void addGroups(const CellGroups& groups, uint64_t times, json* cells) {
  for (const auto& [key, group] : groups) {
    const auto& [measure, method, schedule] = key;
    cells->push_back({{"measure", measure},
                      {"method", method},
                      {"schedule", schedule},
                      {"total_budgets", group.budgets},
                      {"cells", group.cells.size()},
                      {"answers", group.answers},
                      {"times", times}});
  }
}

// The evaluation units of a run: those at version 0, and those of each later evaluation, by the
// plan for the last one.
struct Grid {
  std::vector<v1::EvaluationUnit> first, later;
  uint64_t times = 0;  // later evaluations

  uint64_t units() const { return first.size() + times * later.size(); }
};

ModelShape shapeOf(const json& facts) {
  return {facts.value("layers", 1U), facts.value("kv_heads", 1U), facts.value("heads", 1U),
          facts.value("head_dim", 64U)};
}

Grid gridOf(const v1::Experiment& experiment, const json& facts) {
  const ModelShape shape = shapeOf(facts);
  v1::AggregatorState state = initialState(experiment, shape);
  Grid grid;
  // A measurement of nothing has the measured cells, whose schedules are not shown.
  v1::Measurement unknown;
  for (const uint32_t reads : kMeasuredReads) {
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      v1::LayerLoss& loss = *unknown.add_losses();
      loss.set_layer(layer);
      loss.set_reads(reads);
    }
  }
  grid.first = planEvaluation(experiment, state.policy(), {.result = &unknown});
  const v1::Spec& spec = experiment.spec();
  if (!spec.has_update()) return grid;
  const uint64_t most = spec.update().max_updates();
  const uint64_t every = spec.evaluation().every_updates();
  // An evaluation every everyUpdates updates, and one after the last update.
  grid.times = every == 0 ? 1 : most / every + (most % every > 0 ? 1 : 0);
  state.mutable_policy()->set_version(most);
  grid.later = planEvaluation(experiment, state.policy());
  return grid;
}

json cellsJson(const Grid& grid) {
  json cells = json::array();
  addGroups(groupsOf(grid.first), 1, &cells);
  if (grid.times > 0) addGroups(groupsOf(grid.later), grid.times, &cells);
  return cells;
}

// Returns the total budgets that buy no uniform schedule.
std::vector<std::string> budgetsWithoutUniform(const v1::Spec& spec, const ModelShape& shape) {
  const PriceList prices = priceListOf(spec, shape);
  std::vector<std::string> lacking;
  for (const uint32_t total : totalBudgets(spec.policy())) {
    if (prices.empty() || uniformWithin(unitsOf(total, shape.layers), shape.layers, prices))
      continue;
    lacking.push_back(budgetText(spec.policy(), total));
  }
  return lacking;
}

// Returns a sentence if no total budget has fresh questions for a single pair; else "".
std::string whyNoPair(const v1::Spec& spec, const ModelShape& shape) {
  if (!learnsByBudgets(spec) || pairsWithQuestions(spec, v1::PolicySnapshot()) > 0) return "";
  const uint64_t budgets = totalBudgets(spec.policy()).size();
  const uint64_t of_pair = std::max(1u, spec.rollout().questions_per_episode());
  const char* published = "uniform";
  if (budgetsWithoutUniform(spec, shape).size() == budgets) {
    published = "measured";
  } else if (learnsFromMeasurement(spec)) {
    published = measureQuestions(spec) > 0
                    ? "the best guess, uniform or measured,"
                    : "uniform or, in a fork of a measured run, the best guess";
  }
  return "spec.task.confirmQuestions: " + counted(spec.task().confirm_questions(), "question") +
         " confirm no schedule, so that " + published + " is all that is published: set at least " +
         std::to_string(of_pair * budgets) + ", spec.rollout.questionsPerEpisode (" +
         std::to_string(of_pair) + ") for each total budget";
}

// Returns a sentence that names the budgets that buy no uniform schedule; "" if there are none.
std::string whyNoUniform(const v1::Spec& spec, const ModelShape& shape) {
  const std::vector<std::string> lacking = budgetsWithoutUniform(spec, shape);
  if (lacking.empty()) return "";
  uint32_t least = kPriceUnits;
  for (const auto& [reads, price] : priceListOf(spec, shape)) {
    if (reads > 0) least = std::min(least, price);
  }
  return "spec.policy.totalBudgets: " + joined(lacking) + (lacking.size() > 1 ? " buy" : " buys") +
         " no uniform schedule, the least of which costs " +
         budgetText(spec.policy(), shareOf(least * shape.layers, shape.layers)) +
         ": nothing is evaluated as uniform there" +
         (spec.has_update() ? ", and what is learned is compared with measured" : "");
}

// Returns a sentence if prices are of the bytes of many more keys than the longest prompt with its
// answer has; else "". rows: of that prompt and answer, 0 if unknown.
std::string whyTooDear(const v1::Spec& spec, uint64_t rows) {
  const uint64_t keys = spec.task().context_tokens();
  if (priceOf(spec.policy()) != Price::kBytes || rows == 0 || 4 * rows >= 3 * keys) return "";
  return "spec.task.contextTokens: prices are those of " + std::to_string(keys) +
         " keys, but the longest prompt with its answer has " + std::to_string(rows) +
         ": lower it to that, or shares are of bytes that no prompt reads";
}

// Returns a sentence for each value that is lawful and yet hardly meant.
std::vector<std::string> warningsOf(const v1::Spec& spec, const json& facts, const Grid& grid) {
  std::vector<std::string> all;
  const uint64_t layers = facts.value("layers", uint64_t{0});
  uint32_t answer = 0;
  for (const std::string& task : spec.task().tasks()) {
    answer = std::max(answer, longestAnswer(spec.task(), task));
  }
  const uint64_t rows = facts.value("longest_prompt", uint64_t{0}) + answer;
  std::map<uint64_t, std::string> keys;  // by budget: the first key that has it
  const auto add = [&](const char* key, const auto& budgets) {
    for (const uint32_t budget : budgets) keys.try_emplace(budget, key);
  };
  // Prices are checked against the model.
  if (spec.has_update() && !hasPrices(spec.policy())) {
    add(spec.policy().total_budgets().empty() ? "spec.policy.totalBudget"
                                              : "spec.policy.totalBudgets",
        totalBudgets(spec.policy()));
  }
  for (const v1::EvaluationUnit& unit : grid.first) {
    if (measureOf(unit) == Measure::kLayerLoss || hasPrices(spec.policy())) continue;
    if (unit.total_budget() > 0) keys.try_emplace(unit.total_budget(), "spec.evaluation.budgets");
  }
  for (const auto& [budget, key] : keys) {
    const std::string reads =
        key + ": " + counted(budget, "read") + " over " + counted(layers, "layer") + " ";
    if (budget < layers) {
      all.push_back(reads +
                    "leave some layers without any, whatever the schedule; "
                    "spec.policy.zeroReads says what these give");
    } else if (rows > 0 && budget > rows * layers) {
      all.push_back(reads + "are more than the " + std::to_string(rows) +
                    " rows that the longest prompt with its answer has in each: dense attention "
                    "reads less");
    }
  }
  for (int i = 0; rows > 0 && i < spec.evaluation().schedules_size(); ++i) {
    const auto& samples = spec.evaluation().schedules(i).samples();
    const auto most = std::max_element(samples.begin(), samples.end());
    if (most == samples.end() || *most <= rows) continue;
    all.push_back("spec.evaluation.schedules[" + std::to_string(i) + "]: " +
                  counted(*most, "read") + " in layer " + std::to_string(most - samples.begin()) +
                  " are more than the " + std::to_string(rows) +
                  " rows that the longest prompt with its answer has there: dense attention reads "
                  "less");
  }
  if (const std::string why = whyNoUniform(spec, shapeOf(facts)); !why.empty()) all.push_back(why);
  if (const std::string why = whyNoPair(spec, shapeOf(facts)); !why.empty()) all.push_back(why);
  const uint64_t known = facts.value("longest_prompt", uint64_t{0}) > 0 ? rows : 0;
  if (const std::string why = whyTooDear(spec, known); !why.empty()) all.push_back(why);
  const uint64_t bytes = bytesOfUpdate(0, 0, static_cast<double>(grid.units()), 0);
  if (bytes > kClusterStoreBytes) {
    all.push_back("spec.evaluation: the grid's " + counted(grid.units(), "unit") + " take about " +
                  std::to_string(bytes >> 20) + " MiB of the store, and that of a cluster has " +
                  std::to_string(kClusterStoreBytes >> 20) +
                  " MiB: raise spec.evaluation.everyUpdates, or measure fewer cells");
  }
  for (const std::string warning : facts.value("warnings", json::array())) all.push_back(warning);
  return all;
}

json learningJson(const v1::Spec& spec) {
  if (!spec.has_update()) return nullptr;
  return {{"learner", wordOf(learnerOf(spec.update()))},
          {"total_budgets", totalBudgets(spec.policy())},
          {"updates", spec.update().max_updates()},
          {"episodes_per_update", spec.update().episodes_per_update()},
          {"questions_per_episode", spec.rollout().questions_per_episode()}};
}

std::string budgetsText(const json& budgets, const std::string& unit) {
  std::vector<std::string> words;
  for (const json& budget : budgets) {
    words.push_back(std::to_string(budget.get<uint64_t>()) + unit);
  }
  return joined(words);
}

std::string textOf(const json& object, const char* key) {
  return printable(object.value(key, std::string()), 300);
}

}  // namespace

Result<WorkerSizes> sizeWorkers(const WorkerNeeds& needs, unsigned workers, uint64_t kv_mib) {
  if (kv_mib > 0 && kv_mib < needs.least_kv_mib) {
    return badInput("--kv-memory: " + std::to_string(kv_mib) +
                    " MiB do not hold the keys and values of the longest question with its "
                    "answer: raise --kv-memory to at least " +
                    std::to_string(needs.least_kv_mib));
  }
  const uint64_t each = needs.weights_mib + needs.least_kv_mib;
  WorkerSizes sizes;
  // A worker keeps one core or one GPU busy. Two on a GPU take turns with their kernels, and each
  // has the weights.
  const unsigned memories = needs.gpu ? std::max(1U, needs.gpus) : 1;
  const unsigned usual = needs.gpu ? memories : std::max(1U, needs.cores);
  const uint64_t fit =
      memories * std::max<uint64_t>(1, needs.free_mib / std::max<uint64_t>(1, each));
  sizes.workers = workers > 0 ? workers : static_cast<unsigned>(std::min<uint64_t>(usual, fit));
  sizes.by_memory = workers == 0 && sizes.workers < usual;
  const uint64_t sharing = (sizes.workers + memories - 1) / memories;
  const uint64_t weights = needs.weights_mib * sharing;
  const uint64_t left = needs.free_mib > weights ? needs.free_mib - weights : 0;
  sizes.kv_mib =
      kv_mib > 0 ? kv_mib : std::max({kLeastMib, needs.least_kv_mib, left / 2 / sharing});
  return sizes;
}

std::vector<std::string> gpusOfWorkers(unsigned seen, const std::optional<std::string>& visible,
                                       unsigned workers) {
  if (seen < 2) return {};
  // CUDA numbers the GPUs in the order of these entries.
  std::vector<std::string> gpus;
  std::stringstream entries(visible.value_or(""));
  for (std::string entry; gpus.size() < seen && std::getline(entries, entry, ',');) {
    gpus.push_back(entry);
  }
  if (gpus.size() < seen) {
    gpus.clear();
    for (unsigned i = 0; i < seen; ++i) gpus.push_back(std::to_string(i));
  }
  std::vector<std::string> chosen;
  for (unsigned i = 0; i < workers; ++i) chosen.push_back(gpus[i % seen]);
  return chosen;
}

std::string gpusText(unsigned seen, unsigned workers) {
  if (seen < 2) return "";
  const std::string gpus = std::to_string(seen) + " GPUs";
  if (workers == seen) return gpus + ", a worker on each";
  if (workers < seen)
    return gpus + ", of which " + std::to_string(workers) +
           (workers == 1 ? " is used" : " are used");
  return gpus + ", which the " + std::to_string(workers) + " workers go round";
}

uint64_t availableMib() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  uint64_t kib = 0;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kib >> 10;
  }
  return 2048;
}

Result<v1::Experiment> readExperiment(const RunOptions& options, uint32_t schema) {
  const auto text = readBeginning(options.experiment_file, kMostYamlBytes + 1);
  ALLOT_ASSIGN(auto experiment, parseStoredExperiment(text.value_or(""), options.experiment_file,
                                                      options.set, schema));
  ALLOT_TRY(embedProfiles(&experiment, options.experiment_file));
  if (options.synchronous && !experiment.spec().has_update()) {
    return badInput(
        "--synchronous needs spec.update: an evaluation alone has no policy to wait for");
  }
  return experiment;
}

Result<Preflight> checkBeforeRun(const RunOptions& options) {
  Preflight preflight;
  ALLOT_ASSIGN(preflight.facts, factsOf(options));
  ALLOT_ASSIGN(preflight.experiment, readExperiment(options));
  ALLOT_ASSIGN(preflight.sizes, sizesOf(options, preflight));
  return preflight;
}

json preflightJson(const Preflight& preflight, const std::string& file) {
  const json& facts = preflight.facts;
  const Grid grid = gridOf(preflight.experiment, facts);
  const v1::Spec& spec = preflight.experiment.spec();
  const v1::Task& task = spec.task();
  return {{"file", file},
          {"experiment", preflight.experiment.name()},
          {"model",
           {{"folder", facts.value("model_folder", "")},
            {"architecture", facts.value("architecture", "")},
            {"end_tokens", facts.value("end_tokens", json::array())},
            {"layers", facts.value("layers", 0U)},
            {"parameters", facts.value("parameters", uint64_t{0})},
            {"weights_bytes", facts.value("weights_bytes", uint64_t{0})},
            {"weights_sha256", facts.value("weights_sha256", "")},
            {"model_sha256", facts.value("model_sha256", "")}}},
          {"questions",
           {{"suite", task.suite()},
            {"tasks", std::vector<std::string>(task.tasks().begin(), task.tasks().end())},
            {"train", task.train_questions()},
            {"confirm", task.confirm_questions()},
            {"held_out", task.held_out_questions()},
            {"longest_prompt", facts.value("longest_prompt", uint64_t{0})},
            {"dataset_sha256", facts.value("dataset_sha256", "")}}},
          {"price", wordOf(priceOf(spec.policy()))},
          {"learning", learningJson(spec)},
          {"evaluation", cellsJson(grid)},
          {"warnings", warningsOf(spec, facts, grid)},
          {"device", facts.value("device", "cpu")},
          {"workers",
           {{"count", preflight.sizes.workers},
            {"limited_by_memory", preflight.sizes.by_memory},
            {"kv_memory_mib", preflight.sizes.kv_mib},
            {"least_kv_bytes", facts.value("least_kv_bytes", uint64_t{0})}}}};
}

std::string preflightText(const json& check, bool colour) {
  const json& model = check["model"];
  const json& questions = check["questions"];
  const json& learning = check["learning"];
  const json& workers = check["workers"];
  const std::string unit = budgetUnit(check);
  std::vector<std::string> tasks = questions["tasks"];
  const auto number = [](const json& object, const char* key) {
    return std::to_string(object.value(key, uint64_t{0}));
  };
  std::string text =
      toned(textOf(check, "experiment"), Tone::kBold, colour) + "  " + textOf(check, "file") + "\n";
  text += "model:     " + textOf(model, "architecture") + ", " + number(model, "layers") +
          formatted(" layers, %.1f M parameters, ",
                    static_cast<double>(model.value("parameters", uint64_t{0})) / 1e6) +
          textOf(model, "folder") + "\n";
  text += "questions: " + textOf(questions, "suite") + " (" + printable(joined(tasks), 300) +
          "), " + number(questions, "train") + " to learn from, " +
          (questions.value("confirm", 0U) > 0
               ? number(questions, "confirm") + " to confirm a schedule with, "
               : "") +
          number(questions, "held_out") + " held out, prompts of up to " +
          number(questions, "longest_prompt") + " tokens\n";
  if (learning.is_null()) {
    text += "learning:  none, it only measures\n";
  } else {
    text += "learning:  " + textOf(learning, "learner") + ", " +
            counted(learning["updates"], "update") + " of " +
            counted(learning["episodes_per_update"], "episode") + " with " +
            counted(learning["questions_per_episode"], "question") + ", at a total budget of " +
            budgetsText(learning["total_budgets"], unit.empty() ? "" : " %") +
            (unit.empty() ? "" : " of dense attention's " + std::string(wordOf(priceWith(unit)))) +
            "\n";
  }
  const std::vector<std::string> ends = model["end_tokens"];
  text += "answers:   end with " +
          (ends.empty() ? "no token: their length alone ends them" : printable(joined(ends), 300)) +
          "\n";
  text += "memory:    " + std::to_string(mibOf(model.value("weights_bytes", uint64_t{0}))) +
          " MiB of weights and " + number(workers, "kv_memory_mib") +
          " MiB for keys and values, each worker (a question needs " +
          std::to_string(mibOf(workers.value("least_kv_bytes", uint64_t{0}))) + ")\n";
  text += "device:    " + textOf(check, "device") + "\n";
  text += "workers:   " + number(workers, "count") +
          (workers.value("limited_by_memory", false) ? " (memory for no more)" : "") + "\n";
  TextTable table({"measure", "method", "schedule", "total budgets", "cells", "answers", "times"});
  uint64_t answers = 0;
  for (const json& group : check["evaluation"]) {
    const uint64_t each = group["answers"], times = group["times"];
    answers += each * times;
    // Layers are measured at reads.
    const bool has_price = textOf(group, "measure") != wordOf(Measure::kLayerLoss);
    table.add({textOf(group, "measure"), textOf(group, "method"), textOf(group, "schedule"),
               budgetsText(group["total_budgets"], has_price ? unit : ""), number(group, "cells"),
               std::to_string(each), std::to_string(times)});
  }
  text += "evaluation: " + counted(answers, "answer") + " to held-out questions\n";
  if (!table.empty()) text += table.text(colour);
  for (const std::string warning : check["warnings"]) {
    text += toned("warning:   ", Tone::kAttention, colour) + printable(warning, 300) + "\n";
  }
  return text;
}

}  // namespace allot
