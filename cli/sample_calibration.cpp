#include "cli/sample_calibration.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "allot/kernels/method.h"
#include "cli/run_folder.h"
#include "cli/terminal.h"
#include "core/build.h"
#include "core/files/files.h"
#include "core/json_text.h"
#include "core/spec/choices.h"
#include "core/spec/spec.h"
#include "core/spec/spec_change.h"
#include "core/spec/spec_rules.h"
#include "core/spec/spec_yaml.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr uint64_t kMostOfSummary = uint64_t{64} << 20;
constexpr double kFastShare = 0.9;  // of the best accuracy
constexpr double kRounding = 1e-9;  // of shares of questions
constexpr uint64_t kLeastSelection = 64, kMostSelection = 4096;

Result<std::string> absolutePath(const char* key, const std::string& path,
                                 const std::string& experiment_file) {
  if (path.empty()) return path;
  ALLOT_ASSIGN(const std::string found, findNamedPath(key, path, experiment_file));
  std::error_code ignored;
  return fs::absolute(found, ignored).lexically_normal().string();
}

// Returns the experiment of all classes: the file's model and questions, dense decode, no updates.
Result<v1::Experiment> experimentOf(const SampleCalibrationOptions& options) {
  const std::string& file = options.run.experiment_file;
  const auto text = readBeginning(file, kMostYamlBytes + 1);
  if (!text) return badInput(file + ": cannot be read: is the path right?");
  ALLOT_ASSIGN(auto experiment, parseStoredExperiment(*text, file, options.run.set));
  v1::Spec& spec = *experiment.mutable_spec();
  if (!options.run.model.empty()) spec.mutable_model()->set_path(options.run.model);
  experiment.set_name("calibration");
  spec.set_seed(options.seed.value_or(spec.seed() + 1));
  ALLOT_ASSIGN(*spec.mutable_model()->mutable_path(),
               absolutePath("spec.model.path", spec.model().path(), file));
  v1::Task& task = *spec.mutable_task();
  ALLOT_ASSIGN(*task.mutable_path(), absolutePath("spec.task.path", task.path(), file));
  ALLOT_ASSIGN(*task.mutable_held_out_path(),
               absolutePath("spec.task.heldOutPath", task.held_out_path(), file));
  task.set_train_questions(0);
  task.clear_confirm_questions();
  if (options.questions > 0) task.set_held_out_questions(options.questions);
  spec.clear_update();
  spec.mutable_stop()->Clear();
  spec.mutable_policy()->set_min_per_layer(0);
  v1::Attention& attention = *spec.mutable_attention();
  attention.set_prefill("dense");
  attention.set_decode("dense");
  attention.clear_prefill_profile();
  ALLOT_TRY(embedProfiles(&experiment, file));
  v1::Evaluation& evaluation = *spec.mutable_evaluation();
  evaluation.clear_schedules();
  evaluation.add_schedules()->set_kind(std::string(wordOf(ScheduleKind::kUniform)));
  evaluation.clear_budgets();
  evaluation.add_budgets(spec.policy().total_budget());
  evaluation.clear_methods();
  evaluation.add_methods("dense");
  evaluation.clear_measures();
  evaluation.add_measures(std::string(wordOf(Measure::kAccuracy)));
  evaluation.set_answers(std::string(wordOf(KeptAnswers::kNone)));
  return experiment;
}

// Returns the settings in the folder's summary.json; nothing unless all of `prefills` are measured.
std::optional<std::vector<MeasuredSetting>> measuredIn(const std::string& folder,
                                                       const std::vector<std::string>& prefills,
                                                       uint32_t questions) {
  const auto text = readWholeFile(folder + "/summary.json", kMostOfSummary);
  if (!text) return std::nullopt;
  const auto summary = parseJson(*text, "summary.json");
  if (!summary) return std::nullopt;
  std::vector<MeasuredSetting> settings;
  try {
    for (const std::string& prefill : prefills) {
      for (const json& row : summary->at("evaluations")) {
        if (row.at("prefill") != prefill || row.at("n") != questions) continue;
        const double density =
            row.at("prefill_density").is_number() ? row["prefill_density"].get<double>() : 1;
        settings.push_back({prefill, row.at("accuracy").get<double>(),
                            row.at("ci95").at(0).get<double>(), row["ci95"].at(1).get<double>(),
                            density, row.value("interval", "")});
        break;
      }
    }
  } catch (const json::exception&) {
    return std::nullopt;
  }
  if (settings.size() != prefills.size()) return std::nullopt;
  return settings;
}

// Runs or resumes one part, unless it is measured already. Sets `code` to the exit code of `allot
// run`, which has printed its error.
Result<std::vector<MeasuredSetting>> runPart(const SampleCalibrationOptions& options,
                                             const v1::Experiment& experiment,
                                             const std::string& folder, int* code) {
  const auto& listed = experiment.spec().evaluation().prefills();
  const std::vector<std::string> prefills(listed.begin(), listed.end());
  const uint32_t questions = experiment.spec().task().held_out_questions();
  const std::string file = folder + ".yaml", yaml = experimentYaml(experiment);
  std::error_code ignored;
  if (fs::exists(file, ignored)) {
    ALLOT_ASSIGN(const std::string there, readWholeFile(file, kMostYamlBytes));
    if (there != yaml) {
      return badInput(options.run.dir +
                      " holds a calibration with other settings: remove it, or name another --dir");
    }
  } else {
    ALLOT_TRY(writeWholeFile(file, yaml));
  }
  if (auto there = measuredIn(folder, prefills, questions)) return std::move(*there);
  RunOptions run = options.run;
  run.set.clear();
  run.model.clear();
  run.experiment_file = file;
  run.dir = folder;
  run.resume = holdsRun(folder);
  *code = runCommand(run);
  if (*code != 0) return fail(ErrorCode::kInternal, "");
  if (auto there = measuredIn(folder, prefills, questions)) return std::move(*there);
  return fail(ErrorCode::kUnavailable, folder + " was stopped; the same command goes on from here");
}

ordered_json settingJson(const MeasuredSetting& setting) {
  return {{"prefill", setting.prefill},
          {"accuracy", setting.accuracy},
          {"ci95", {setting.low, setting.high}},
          {"interval", setting.interval},
          {"density", setting.density}};
}

struct Class {
  uint64_t tokens = 0;
  MeasuredSetting dense;
  std::vector<MeasuredSetting> settings;
};

Result<Class> runClass(const SampleCalibrationOptions& options, v1::Experiment experiment,
                       uint64_t tokens, int* code) {
  Class one;
  one.tokens = tokens;
  experiment.mutable_spec()->mutable_task()->set_context_tokens(static_cast<uint32_t>(tokens));
  std::vector<std::string> wanted = {"dense"};
  for (std::string& setting : settingsOf(options, tokens)) wanted.push_back(std::move(setting));
  auto& prefills = *experiment.mutable_spec()->mutable_evaluation()->mutable_prefills();
  for (size_t from = 0, part = 1; from < wanted.size(); from += kMaxListEntries, ++part) {
    const size_t end = std::min(from + kMaxListEntries, wanted.size());
    prefills.Clear();
    for (size_t i = from; i < end; ++i) *prefills.Add() = wanted[i];
    const std::string folder =
        options.run.dir + "/" + std::to_string(tokens) + "-" + std::to_string(part);
    ALLOT_ASSIGN(const auto measured, runPart(options, experiment, folder, code));
    one.settings.insert(one.settings.end(), measured.begin(), measured.end());
  }
  one.dense = one.settings.front();
  one.settings.erase(one.settings.begin());
  return one;
}

Status writeOutcome(const SampleCalibrationOptions& options, const v1::Experiment& experiment,
                    const std::vector<Class>& classes) {
  const v1::Task& task = experiment.spec().task();
  ordered_json outcome = {
      {"kind", "sample-attention-calibration"},
      {"build", buildText()},
      {"model", fs::path(experiment.spec().model().path()).filename().string()},
      {"task", task.suite()},
      {"tasks", std::vector<std::string>(task.tasks().begin(), task.tasks().end())},
      {"questions", task.held_out_questions()},
      {"seed", experiment.spec().seed()},
      {"fastest", "the least density with at least 0.9 of the best accuracy"},
      {"classes", ordered_json::array()}};
  TextTable table(
      {"tokens", "chosen for", "setting", "accuracy", "95 % interval", "by", "density"});
  const auto add = [&](uint64_t tokens, const char* what, const MeasuredSetting& setting) {
    table.add({std::to_string(tokens), what, setting.prefill, formatted("%.3f", setting.accuracy),
               formatted("[%.3f, %.3f]", setting.low, setting.high), setting.interval,
               formatted("%.1f %%", 100 * setting.density)});
  };
  for (const Class& one : classes) {
    const ChosenSettings chosen = chooseSettings(one.settings);
    ordered_json own = {{"contextTokens", one.tokens},
                        {"dense", settingJson(one.dense)},
                        {"accurate", settingJson(chosen.accurate)},
                        {"fast", settingJson(chosen.fast)},
                        {"settings", ordered_json::array()}};
    for (const MeasuredSetting& setting : one.settings) {
      own["settings"].push_back(settingJson(setting));
    }
    outcome["classes"].push_back(std::move(own));
    add(one.tokens, "comparison", one.dense);
    add(one.tokens, "accuracy", chosen.accurate);
    add(one.tokens, "speed", chosen.fast);
  }
  ALLOT_TRY(writeWholeFile(options.output, outcome.dump(1) + "\n"));
  std::printf("\n%s\nsettings: %s\n", table.text(usesColour()).c_str(), options.output.c_str());
  return {};
}

Status calibrate(const SampleCalibrationOptions& options, int* code) {
  ALLOT_ASSIGN(const v1::Experiment experiment, experimentOf(options));
  std::vector<uint64_t> tokens = options.tokens;
  if (tokens.empty()) tokens.push_back(experiment.spec().task().context_tokens());
  std::error_code error;
  fs::create_directories(options.run.dir, error);
  if (error) {
    return badInput("cannot make " + options.run.dir + " (" + error.message() +
                    "): name another folder with --dir");
  }
  std::vector<Class> classes;
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::printf("%s%zu of %zu length classes: %llu tokens, %zu settings\n", i > 0 ? "\n" : "",
                i + 1, tokens.size(), static_cast<unsigned long long>(tokens[i]),
                settingsOf(options, tokens[i]).size());
    std::fflush(stdout);
    ALLOT_ASSIGN(Class one, runClass(options, experiment, tokens[i], code));
    classes.push_back(std::move(one));
  }
  return writeOutcome(options, experiment, classes);
}

}  // namespace

uint32_t selectionTokens(uint64_t tokens, uint64_t chunks) {
  const uint64_t wanted =
      std::clamp(tokens / std::max<uint64_t>(chunks, 1), kLeastSelection, kMostSelection);
  const uint64_t below = std::bit_floor(wanted);
  return static_cast<uint32_t>(wanted * wanted > 2 * below * below ? 2 * below : below);
}

std::vector<std::string> settingsOf(const SampleCalibrationOptions& options, uint64_t tokens) {
  std::vector<std::string> settings;
  kernels::MethodOptions method;
  method.method = kernels::Method::kSampleAttention;
  method.block = options.block;
  for (const uint64_t chunks : options.chunks) {
    method.chunk = selectionTokens(tokens, chunks);
    for (const double column : options.columns) {
      for (const double slash : options.slashes) {
        method.alpha_column = column;
        method.alpha_slash = slash;
        const std::string text = kernels::methodText(method);
        if (std::find(settings.begin(), settings.end(), text) == settings.end()) {
          settings.push_back(text);
        }
      }
    }
  }
  return settings;
}

ChosenSettings chooseSettings(const std::vector<MeasuredSetting>& settings) {
  const auto better = [](const MeasuredSetting& a, const MeasuredSetting& b) {
    return a.accuracy != b.accuracy ? a.accuracy > b.accuracy : a.density < b.density;
  };
  ChosenSettings chosen{settings.front(), {}};
  for (const MeasuredSetting& setting : settings) {
    if (better(setting, chosen.accurate)) chosen.accurate = setting;
  }
  chosen.fast = chosen.accurate;
  for (const MeasuredSetting& setting : settings) {
    if (setting.accuracy + kRounding < kFastShare * chosen.accurate.accuracy) continue;
    const bool fewer = setting.density < chosen.fast.density;
    const bool equal = setting.density == chosen.fast.density;
    if (fewer || (equal && setting.accuracy > chosen.fast.accuracy)) chosen.fast = setting;
  }
  return chosen;
}

int calibrateSampleAttention(const SampleCalibrationOptions& options) {
  SampleCalibrationOptions own = options;
  if (own.run.dir.empty()) own.run.dir = own.output + ".runs";
  int code = 0;
  const Status done = calibrate(own, &code);
  if (done) return 0;
  if (code != 0) return code;  // `allot run` has said why
  std::fprintf(stderr, "allot: %s\n", printable(done.error().message, kLongestMessage).c_str());
  return done.error().exitCode();
}

}  // namespace allot
