// allot-calibrate: the program behind `allot calibrate sale` and `kv`, which need the model.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/build.h"
#include "core/digest.h"
#include "core/files/files.h"
#include "core/json_text.h"
#include "core/spec/choices.h"
#include "core/spec/spec.h"
#include "core/spec/spec_yaml.h"
#include "worker/engine/engine.h"
#include "worker/engine/kv_calibration.h"
#include "worker/engine/sale_calibration.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

volatile sig_atomic_t interrupted = 0;

constexpr size_t kMostState = size_t{256} << 20;
// Used without an experiment file: options fill in model and task.
constexpr char kNoExperiment[] =
    "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: calibration}\n"
    "spec:\n  model: {path: none}\n  policy: {totalBudget: 1}\n";

struct Options {
  std::string experiment;
  std::string model;
  std::string suite;
  std::vector<std::string> tasks;
  uint64_t tokens = 0;
  std::vector<std::string> set;
  uint32_t prompts = 5;
  std::optional<uint64_t> seed;
  std::string output;
  std::string select = "q4";
  SaleCalibrationOptions calibration;
};

// Returns an experiment with the options' model and questions, without methods or evaluation: for
// dense prompts on this machine's cores.
Result<v1::Experiment> experimentOf(const Options& options) {
  std::string yaml = kNoExperiment;
  if (!options.experiment.empty()) {
    std::error_code ignored;
    if (fs::is_directory(options.experiment, ignored)) {
      return badInput(options.experiment + ": is a folder; name the experiment file in it");
    }
    const auto text = readBeginning(options.experiment, kMostYamlBytes + 1);
    if (!text) return badInput(options.experiment + ": cannot be read: is the path right?");
    yaml = *text;
  } else if (options.model.empty() || options.tasks.empty()) {
    return badInput(
        "name an experiment file, or a model with --model and its questions with "
        "--suite and --tasks: see --help");
  }
  std::vector<std::string> set = options.set;
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) set.push_back(std::string("spec.") + key + "=" + value);
  };
  add("task.suite", options.suite);
  if (!options.tasks.empty()) add("task.tasks", "[" + joined(options.tasks) + "]");
  if (options.tokens > 0) add("task.contextTokens", std::to_string(options.tokens));
  const std::string place = options.experiment.empty() ? "--model" : options.experiment;
  ALLOT_ASSIGN(auto experiment, parseStoredExperiment(yaml, place, set));
  v1::Spec& spec = *experiment.mutable_spec();
  if (!options.model.empty()) spec.mutable_model()->set_path(options.model);
  // Questions that the experiment does not measure on.
  spec.set_seed(options.seed.value_or(spec.seed() + 1));
  spec.mutable_task()->set_train_questions(options.prompts);
  spec.mutable_task()->clear_confirm_questions();
  spec.mutable_task()->set_held_out_questions(1);
  spec.mutable_model()->set_device(std::string(wordOf(DeviceChoice::kCpu)));
  spec.mutable_model()->set_dtype(std::string(wordOf(Dtype::kFloat32)));
  spec.mutable_attention()->set_prefill("dense");
  spec.mutable_attention()->set_decode("dense");
  spec.mutable_attention()->clear_prefill_profile();
  spec.mutable_policy()->set_min_per_layer(0);
  v1::Evaluation& evaluation = *spec.mutable_evaluation();
  evaluation.clear_prefills();
  evaluation.clear_methods();
  evaluation.clear_schedules();
  evaluation.clear_measures();
  spec.clear_update();
  return experiment;
}

Result<std::unique_ptr<Engine>> loadEngine(const v1::Experiment& experiment,
                                           const Options& options) {
  const v1::Spec& spec = experiment.spec();
  EngineOptions engine;
  ALLOT_ASSIGN(engine.model_folder, findModelFolder(spec.model().path(), options.experiment));
  ALLOT_ASSIGN(engine.task_path,
               findNamedPath("spec.task.path", spec.task().path(), options.experiment));
  ALLOT_ASSIGN(
      engine.held_out_path,
      findNamedPath("spec.task.heldOutPath", spec.task().held_out_path(), options.experiment));
  return Engine::load(experiment, engine);
}

// The state is kept beside the file until the file is complete.
class StateFile {
 public:
  StateFile(const std::string& output, nlohmann::json settings)
      : path_(output + ".part"), settings_(std::move(settings)) {}

  // Resumes the calibration of an earlier process.
  Status restore(SaleCalibration* calibration) const {
    std::error_code ignored;
    if (!fs::exists(path_, ignored)) return {};
    const std::string mend = ": remove it, or name another --output";
    ALLOT_ASSIGN(const std::string text, readWholeFile(path_, kMostState));
    const auto state = parseJson(text, path_);
    if (!state || !state->is_object() || !state->contains("settings")) {
      return badInput(path_ + " is no state of a calibration" + mend);
    }
    if (state->at("settings") != settings_) {
      return badInput(path_ + " is of a calibration with other settings" + mend);
    }
    if (const Status restored = calibration->restore(*state); !restored) {
      return badInput(path_ + " " + restored.error().message + mend);
    }
    return {};
  }
  Status save(const SaleCalibration& calibration) const {
    nlohmann::json state = calibration.state();
    state["settings"] = settings_;
    return writeWholeFile(path_, state.dump() + "\n");
  }
  void remove() const { std::remove(path_.c_str()); }

 private:
  const std::string path_;
  const nlohmann::json settings_;
};

// Shows progress: on a terminal one live line, elsewhere a line every ten seconds.
class ProgressBar {
 public:
  explicit ProgressBar(const char* what) : what_(what) {}
  ~ProgressBar() { clear(); }
  void show(uint64_t done, uint64_t all) {
    const auto now = Clock::now();
    if (!terminal_ && now - shown_ < std::chrono::seconds(10)) return;
    shown_ = now;
    constexpr int kWidth = 30;
    const int full = static_cast<int>(kWidth * done / std::max<uint64_t>(all, 1));
    const std::string bar = std::string(static_cast<size_t>(full), '#') +
                            std::string(static_cast<size_t>(kWidth - full), '.');
    std::fprintf(stderr, "%s[%s] %llu of %llu %s%s", terminal_ ? "\r\033[K" : "", bar.c_str(),
                 static_cast<unsigned long long>(done), static_cast<unsigned long long>(all), what_,
                 terminal_ ? "" : "\n");
    std::fflush(stderr);
  }
  void clear() const {
    if (terminal_) std::fprintf(stderr, "\r\033[K");
  }

 private:
  const char* const what_;
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  Clock::time_point shown_ = Clock::now();
};

ProfileFacts factsOf(const v1::Experiment& experiment, const Engine& engine) {
  const v1::Task& task = experiment.spec().task();
  return {.build = buildText(),
          .weights_sha256 = engine.facts().weights_sha256(),
          .dataset_sha256 = engine.facts().dataset_sha256(),
          .task = task.suite() + ": " + joined(task.tasks()),
          .context_tokens = task.context_tokens(),
          .prompts = task.train_questions(),
          .seed = experiment.spec().seed()};
}

Status calibrateKv(const Options& options) {
  ALLOT_ASSIGN(auto experiment, experimentOf(options));
  v1::Model& model = *experiment.mutable_spec()->mutable_model();
  model.set_kv_dtype(std::string(wordOf(KvDtype::kFloat32)));
  model.clear_kv_profile();
  ALLOT_ASSIGN(const auto engine, loadEngine(experiment, options));
  const auto& questions = engine->dataset().train;
  KvCalibration calibration(engine->facts().layers(), engine->facts().kv_heads());
  {
    ProgressBar bar("prompts");
    for (size_t i = 0; i < questions.size(); ++i) {
      bar.show(i, questions.size());
      if (interrupted) return fail(ErrorCode::kUsage, "stopped; nothing was written");
      ALLOT_TRY(calibration.read(&engine->decoder(), questions[i].prompt_ids));
    }
  }
  ALLOT_TRY(writeWholeFile(options.output, calibration.file(factsOf(experiment, *engine))));
  std::printf("%s\nprofile: %s\n", calibration.table().c_str(), options.output.c_str());
  return {};
}

Status calibrateSale(Options options) {
  options.calibration.exact = options.select == "exact";
  options.calibration.threads =
      static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 64U));
  ALLOT_ASSIGN(auto experiment, experimentOf(options));
  ALLOT_TRY(embedProfiles(&experiment, options.experiment));
  ALLOT_ASSIGN(const auto engine, loadEngine(experiment, options));
  const v1::ModelFacts& facts = engine->facts();
  const ProfileFacts told = factsOf(experiment, *engine);
  std::vector<std::vector<int32_t>> prompts;
  for (const Question& question : engine->dataset().train) prompts.push_back(question.prompt_ids);
  SaleCalibration calibration(facts.layers(), facts.heads(), std::move(prompts),
                              options.calibration);
  const StateFile state(options.output,
                        {{"build", told.build},
                         {"weights", told.weights_sha256},
                         {"questions", told.dataset_sha256},
                         {"first_tau", options.calibration.first_tau},
                         {"theta", options.calibration.theta},
                         {"select", options.select},
                         {"kvDtype", experiment.spec().model().kv_dtype()},
                         {"kvProfile", sha256Hex(experiment.spec().model().kv_profile())}});
  ALLOT_TRY(state.restore(&calibration));
  {
    ProgressBar bar("heads and prompts");
    while (!calibration.isDone()) {
      bar.show(calibration.settled(), calibration.pairs());
      ALLOT_TRY(calibration.step(&engine->decoder()));
      ALLOT_TRY(state.save(calibration));
      if (interrupted && !calibration.isDone()) {
        return fail(ErrorCode::kUsage, "stopped; the same command goes on from here");
      }
    }
  }
  ALLOT_TRY(writeWholeFile(options.output, profileFile(calibration, options.calibration, told)));
  state.remove();
  std::printf("%s\nprofile: %s\n", profileTable(calibration).c_str(), options.output.c_str());
  return {};
}

// Adds the options that say which model is calibrated, and on which questions.
void addQuestions(CLI::App* command, Options* options) {
  command->add_option("experiment", options->experiment,
                      "Experiment file: its model and its questions");
  command->add_option("--model", options->model,
                      "Model folder or GGUF file, instead of the file's");
  command->add_option("--suite", options->suite, "Suite of the questions, instead of the file's");
  command->add_option("--tasks", options->tasks, "Tasks of the suite, instead of the file's")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--tokens", options->tokens, "Length of the prompts, instead of the file's")
      ->check(CLI::Range(uint64_t{16}, uint64_t{1048576}));
  command->add_option("--set", options->set, "spec.key=value, replaces a value of the file")
      ->allow_extra_args(false);
  command->add_option("--seed", options->seed,
                      "Which questions [the file's plus one: others than the experiment measures]");
}

void addKv(CLI::App* app, Options* options) {
  auto* kv = app->add_subcommand(
      "kv",
      "Scales of eight-bit keys and values: for each layer and KV head the smallest power of two "
      "by which no number of the prompts is beyond fp8's range");
  addQuestions(kv, options);
  kv->add_option("--prompts", options->prompts, "Prompts whose keys and values are read [5]")
      ->check(CLI::Range(1, 10000));
  kv->add_option("--output", options->output, "The profile [kv-profile.json]");
  kv->footer(
      "Examples:\n"
      "  allot calibrate kv my.yaml --prompts 32\n"
      "  allot run my.yaml --set spec.model.kvDtype=fp8 --set "
      "spec.model.kvProfile=kv-profile.json");
}

void addSale(CLI::App* app, Options* options) {
  auto* sale = app->add_subcommand(
      "sale",
      "SALE's threshold tau of each head: halved while its error is theta or more, on "
      "every prompt; what is done is kept in OUTPUT.part, and the same command goes on");
  addQuestions(sale, options);
  sale->add_option("--theta", options->calibration.theta,
                   "Largest error of a head, (1/n) sum |O - O'| over a prompt's n tokens [0.4]")
      ->check(CLI::PositiveNumber);
  sale->add_option("--first-tau", options->calibration.first_tau,
                   "Threshold to begin with; what comes to 0.0001 or less is 0 [0.008]")
      ->check(CLI::Range(0.0002, 0.99));
  sale->add_option("--prompts", options->prompts, "Prompts that it holds for [5]")
      ->check(CLI::Range(1, 10000));
  sale->add_option("--select", options->select,
                   "Blocks are chosen by scores in 4 bits, or exact "
                   "ones [q4]")
      ->check(CLI::IsMember({"q4", "exact"}));
  sale->add_option("--output", options->output, "The profile [sale-profile.json]");
  sale->footer(
      "Examples:\n"
      "  allot calibrate sale experiments/recall-sale/experiment.yaml --theta 0.4\n"
      "  allot calibrate sale --model models/X --suite ruler --tasks niah_multikey_2 --tokens "
      "16384\n"
      "  allot run my.yaml --set spec.attention.prefillProfile=sale-profile.json "
      "--set 'spec.evaluation.prefills=[dense, sale tau=profile]'");
}

int main(int argc, char** argv) {
  CLI::App app("allot calibrate: what a method's parameters should be for a model",
               "allot calibrate");
  app.require_subcommand(1);
  app.set_version_flag("--version", buildText());
  Options options;
  addSale(&app, &options);
  addKv(&app, &options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorCode::kUsage);
  }
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // a second one ends it at once: steps are long
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  const bool kv = app.got_subcommand("kv");
  if (options.output.empty()) options.output = kv ? "kv-profile.json" : "sale-profile.json";
  const Status done = kv ? calibrateKv(options) : calibrateSale(std::move(options));
  if (done) return 0;
  std::fprintf(stderr, "allot: %s\n", escaped(done.error().message, 4000).c_str());
  return interrupted ? 130 : done.error().exitCode();
}

}  // namespace
}  // namespace allot

int main(int argc, char** argv) {
  try {
    return allot::main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "allot: %s\n", error.what());
    return 70;
  }
}
