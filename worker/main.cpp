// allot-worker: one worker process of a run.
#include <openssl/rand.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "core/build.h"
#include "core/clocks.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/files/files.h"
#include "core/spec/spec.h"
#include "core/spec/spec_yaml.h"
#include "core/spec/task_catalogue.h"
#include "core/telemetry/log.h"
#include "core/telemetry/process.h"
#include "core/worker_identity.h"
#include "store/store_probe.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_settings.h"
#include "worker/engine/measure_again.h"
#include "worker/engine/schedule_answers.h"
#include "worker/loop/loading_beats.h"
#include "worker/loop/run_finder.h"
#include "worker/loop/worker_loop.h"
#include "worker/model/compute_device.h"
#include "worker/model/model_config.h"
#include "worker/tasks/python_tests.h"
#include "worker/worker_probe.h"

namespace allot {
namespace {

// How long to wait for the last counts, of work given up or dropped, to be scraped. A little more
// than the 15 s between two scrapes, and within the 20 s that a pod has beyond --grace.
constexpr std::chrono::seconds kLastScrape{16};
// Redis time-out of a heartbeat during loading. It is short, since the next heartbeat follows soon.
constexpr uint64_t kLoadingTimeoutMs = 1000;

struct Options {
  std::string redis;
  std::string run_id;
  std::string wanted;  // the experiment whose newest run to work for
  std::string name;
  std::string model;
  std::string task_path;
  std::string held_out_path;
  std::string check;
  std::string schedules;
  std::string measure;
  std::string beside;
  std::vector<std::string> set;
  uint64_t kv_mib = 0;
  std::optional<uint64_t> host_mib;
  uint32_t rows_at_once = 0;
  bool stored = false;
  bool any_model = false;
  bool stay = false;
  bool allow_code_execution = false;
  uint64_t grace_s = 15;
  TelemetryFlags telemetry;
};

// The metrics and health of this process.
struct ProcessTelemetry {
  explicit ProcessTelemetry(Telemetry* of)
      : telemetry(*of),
        store(&of->metrics(), &of->health(), StoreProbe::Detail::kTotals),
        worker(&of->metrics(), &of->health()) {}
  Telemetry& telemetry;
  StoreProbe store;
  WorkerProbe worker;
};

const std::string& modelPath(const v1::Experiment& experiment, const Options& options) {
  return options.model.empty() ? experiment.spec().model().path() : options.model;
}

struct TaskPaths {
  std::string path;
  std::string held_out_path;
};

Result<TaskPaths> taskPaths(const v1::Experiment& experiment, const Options& options,
                            const std::string& experiment_file) {
  const v1::Task& task = experiment.spec().task();
  const auto found = [&](const char* key, const std::string& option, const std::string& named) {
    return findNamedPath(key, option.empty() ? named : option, experiment_file);
  };
  TaskPaths paths;
  ALLOT_ASSIGN(paths.path, found("spec.task.path", options.task_path, task.path()));
  ALLOT_ASSIGN(paths.held_out_path,
               found("spec.task.heldOutPath", options.held_out_path, task.held_out_path()));
  return paths;
}

Result<std::unique_ptr<Engine>> loadEngine(const v1::Experiment& experiment, const Options& options,
                                           const std::string& experiment_file,
                                           WorkerEvents* events = nullptr) {
  const v1::Task& task = experiment.spec().task();
  ALLOT_TRY(mayRunCode(task, options.allow_code_execution));
  if (runsCode(task)) ALLOT_TRY(checkPrograms());
  ALLOT_ASSIGN(const std::string folder,
               findModelFolder(modelPath(experiment, options), experiment_file));
  ALLOT_ASSIGN(const TaskPaths tasks, taskPaths(experiment, options, experiment_file));
  std::optional<size_t> host_bytes;
  if (options.host_mib) host_bytes = *options.host_mib << 20;
  return Engine::load(experiment, {.model_folder = folder,
                                   .task_path = tasks.path,
                                   .held_out_path = tasks.held_out_path,
                                   .kv_bytes = options.kv_mib << 20,
                                   .host_bytes = host_bytes,
                                   .rows_at_once = options.rows_at_once,
                                   .allow_code_execution = options.allow_code_execution,
                                   .events = events});
}

// Logs the mistakes but the last, which it returns.
Status lastOf(const std::vector<std::string>& mistakes) {
  if (mistakes.empty()) return {};
  for (size_t i = 0; i + 1 < mistakes.size(); ++i) logLastWords("allot-worker", mistakes[i]);
  return badInput(mistakes.back());
}

// Returns a sentence for what is lawful and yet hardly meant.
std::vector<std::string> warningsOf(const Engine& engine, const v1::Spec& spec) {
  std::vector<std::string> all;
  if (const auto& unused = engine.decoder().unusedTensors(); !unused.empty()) {
    all.push_back("spec.model.path: tensors without a use, as in transformers: " + unused.front() +
                  (unused.size() > 1 ? " and " + std::to_string(unused.size() - 1) + " more" : "") +
                  "; does config.json belong to them?");
  }
  if (spec.task().suite() != "jsonl") return all;
  const bool rendered = spec.model().chat_template() == "rendered";
  size_t bare = 0, marked = 0, prompts = 0;
  for (const auto* split : {&engine.dataset().train, &engine.dataset().held_out}) {
    for (const Question& question : *split) {
      ++prompts;
      if (!rendered) {
        marked += marksInData(engine.tokenizer(), question.prompt, question.prompt_ids) > 0;
        continue;
      }
      // Without a special token it is the same text as data.
      bare += engine.tokenizer().encode(question.prompt, Specials::kText) == question.prompt_ids;
    }
  }
  if (bare > 0) {
    all.push_back("spec.model.chatTemplate: rendered: " + std::to_string(bare) + " of " +
                  std::to_string(prompts) + " prompts hold no special token, and have no turns");
  }
  if (marked > 0) {
    all.push_back("spec.task.path: " + std::to_string(marked) + " of " + std::to_string(prompts) +
                  " prompts hold the text of special tokens, which stays text; if they have the "
                  "model's turns already, write spec.model.chatTemplate: rendered");
  }
  return all;
}

// --check: checks an experiment file, its model and its questions, and prints what was found.
// Checks without the weights come first.
Status check(const Options& options) {
  std::error_code ignored;
  if (std::filesystem::is_directory(options.check, ignored)) {
    return badInput(options.check + ": is a folder; name the experiment file in it");
  }
  const auto text = readBeginning(options.check, kMostYamlBytes + 1);
  if (!text) return badInput(options.check + ": cannot be read: is the path right?");
  std::vector<std::string> mistakes;
  auto read = options.stored ? parseStoredExperiment(*text, options.check, options.set)
                             : parseExperiment(*text, options.check, options.set, &mistakes);
  ALLOT_TRY(lastOf(mistakes));
  ALLOT_ASSIGN(v1::Experiment experiment, std::move(read));
  ALLOT_TRY(embedProfiles(&experiment, options.check));
  ALLOT_ASSIGN(const std::string folder,
               findModelFolder(modelPath(experiment, options), options.check));
  ALLOT_ASSIGN(const TaskPaths tasks, taskPaths(experiment, options, options.check));
  if (const auto shape = ModelConfig::load(folder)) {  // loadEngine reports an error of it
    const auto layers = static_cast<uint32_t>(shape->layers);
    for (const Status& fits :
         {checkAgainstModel(experiment, shapeOf(*shape)), checkGrid(experiment, layers),
          options.stored ? Status() : checkEffects(experiment, layers)}) {
      if (!fits) mistakes.push_back(fits.error().message);
    }
    ALLOT_TRY(lastOf(mistakes));
  }
  ALLOT_ASSIGN(const auto engine, loadEngine(experiment, options, options.check));
  const v1::ModelFacts& facts = engine->facts();
  std::vector<std::string> ends;
  for (const int32_t id : engine->endTokens())
    ends.push_back(engine->tokenizer().decode({id}, false));
  const nlohmann::json json = {{"architecture", facts.architecture()},
                               {"layers", facts.layers()},
                               {"heads", facts.heads()},
                               {"kv_heads", facts.kv_heads()},
                               {"head_dim", facts.head_dim()},
                               {"parameters", facts.parameters()},
                               {"weights_sha256", facts.weights_sha256()},
                               {"model_sha256", facts.model_sha256()},
                               {"dataset_sha256", facts.dataset_sha256()},
                               {"longest_prompt", facts.longest_prompt()},
                               {"weights_bytes", engine->decoder().weightBytes()},
                               {"least_kv_bytes", engine->leastKvBytes()},
                               {"model_folder", folder},
                               {"end_tokens", ends},
                               {"warnings", warningsOf(*engine, experiment.spec())},
                               {"task_path", tasks.path},
                               {"held_out_path", tasks.held_out_path},
                               {"device", engine->deviceName()},
                               {"gpu_memory_mib", engine->freeGpuMemory() >> 20},
                               {"host_memory_mib", freeMemory(Device::kCpu) >> 20},
                               {"gpus", cudaDevices()}};
  std::printf("%s\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  return {};
}

// --schedules: answers under schedules from standard input, for an experiment file without a run.
Status answer(const Options& options) {
  const auto text = readBeginning(options.schedules, kMostYamlBytes + 1);
  if (!text) return badInput(options.schedules + ": cannot be read: is the path right?");
  ALLOT_ASSIGN(auto experiment, parseExperiment(*text, options.schedules, options.set));
  ALLOT_TRY(embedProfiles(&experiment, options.schedules));
  ALLOT_ASSIGN(const auto engine, loadEngine(experiment, options, options.schedules));
  return answerSchedules(experiment, engine.get(), &std::cin, &std::cout, options.any_model);
}

// --measure: answers recorded results again, and writes the scores to FILE.answers.
Status answerAgain(const Options& options) {
  constexpr uint64_t kLongestLine = uint64_t{64} << 20;  // an experiment with a prefill profile
  ALLOT_ASSIGN(LineReader asked, LineReader::open(options.measure, kLongestLine));
  ALLOT_ASSIGN(const v1::Experiment experiment, readAskedExperiment(&asked));
  ALLOT_ASSIGN(const auto engine, loadEngine(experiment, options, options.beside));
  std::ofstream answers(options.measure + ".answers", std::ios::trunc);
  return measureAgain(engine.get(), buildText(), &asked, &answers);
}

Status agreeOnModel(const RunFinder& finder, Store* store, const Engine& engine) {
  const v1::ModelFacts& mine = engine.facts();
  ALLOT_ASSIGN(const v1::ModelFacts agreed,
               finder.patiently([&] { return store->agreeOnModel(mine); }));
  if (agreed.weights_sha256() != mine.weights_sha256()) {
    return badInput("this worker's model weights (" + mine.weights_sha256().substr(0, 12) +
                    ") are not those of the run (" + agreed.weights_sha256().substr(0, 12) +
                    "): give every worker the same model folder");
  }
  // An earlier build that joined first named none.
  if (!agreed.model_sha256().empty() && agreed.model_sha256() != mine.model_sha256()) {
    return badInput("this worker's config.json, generation_config.json or tokenizer (" +
                    mine.model_sha256().substr(0, 12) + ") are not those of the run (" +
                    agreed.model_sha256().substr(0, 12) +
                    "): give every worker the same model folder");
  }
  if (agreed.dataset_sha256() != mine.dataset_sha256()) {
    return badInput(
        "this worker's questions are not those of the run: give every worker the same "
        "build, tokenizer.json and files of spec.task");
  }
  return {};
}

void reportTimes(const Engine& engine) {
  const auto& decoder = engine.decoder().times();
  const auto& times = engine.times();
  spdlog::info(
      "seconds: prefill {:.1f}, projections {:.1f}, attention {:.1f}, steps on a GPU {:.1f}, "
      "sampling and text {:.1f}, grading {:.2f}",
      decoder.prefill, decoder.projections, decoder.attention, decoder.gpu_steps,
      // Measurements of fidelity make steps outside of a generation.
      std::max(times.generation - decoder.projections - decoder.attention - decoder.gpu_steps, 0.0),
      times.grading);
}

// Works until the run ends, or with --stay until there is another one.
Status workOn(const Options& options, const std::string& name, FoundRun* run, Engine* engine,
              const RunFinder& finder, WorkerEvents* events) {
  std::random_device random;
  WorkerLoop loop(run->store.get(), run->store.get(), engine, run->spec,
                  {.name = name,
                   .build = buildText(),
                   .jitter_seed = random(),
                   .stay = options.stay,
                   .grace_ms = options.grace_s * 1000,
                   .moved = [&finder] { return finder.moved(); },
                   .now = steadyMs,
                   .unix_now = unixMs,
                   .events = events},
                  &draining);
  spdlog::info("{} works on run {}", options.name, run->id);
  return loop.run();
}

v1::WorkerBeat beatOf(const std::string& name) {
  v1::WorkerBeat beat;
  beat.set_worker(name);
  beat.set_build(buildText());
  return beat;
}

// Makes `engine` one for this run. Heartbeats tell the run that this worker is loading.
Status load(const Options& options, const std::string& name, const FoundRun& run,
            WorkerEvents* events, std::unique_ptr<Engine>* engine) {
  if (*engine) return (*engine)->switchTo(run.spec.experiment);
  const WeightFiles files(
      findModelFolder(modelPath(run.spec.experiment, options), "").value_or(""));
  ALLOT_ASSIGN(auto store, openRedisStore(options.redis, run.id, kLoadingTimeoutMs));
  const LoadingBeats beats(
      std::move(store), beatOf(name), [&] { return files.loaded(); }, unixMs);
  ALLOT_ASSIGN(*engine, loadEngine(run.spec.experiment, options, "", events));
  const KvPool& pool = (*engine)->decoder().pool();
  const size_t has = pool.totalPages() * pool.bytesPerPage(), least = (*engine)->leastKvBytes();
  if (has >= least) return {};
  return badInput("the memory for keys and values, " + std::to_string(has >> 20) +
                  " MiB, does not hold the longest question with its answer: raise --kv-memory to "
                  "at least " +
                  std::to_string((least >> 20) + 1));
}

// Makes the identity of this process in one run: a name and a key that no process had before.
Result<WorkerIdentity> newIdentity(const std::string& name) {
  std::string seed(kIdentitySeedBytes, '\0');
  if (RAND_priv_bytes(reinterpret_cast<unsigned char*>(seed.data()),
                      static_cast<int>(seed.size())) != 1) {
    return fail(ErrorCode::kInternal, "OpenSSL has no random numbers for this worker's key");
  }
  return WorkerIdentity::make(name, seed);
}

// Works for one run, from loading the model to the run's end.
Status workFor(const Options& options, FoundRun* run, const RunFinder& finder,
               ProcessTelemetry* shown, std::unique_ptr<Engine>* engine) {
  Health& health = shown->telemetry.health();
  ALLOT_ASSIGN(const WorkerIdentity identity, newIdentity(options.name));
  const std::string& name = identity.name();
  Store& store = *run->store;
  store.signAs(identity);
  const Status worked = [&]() -> Status {
    health.loading("the model is being loaded");
    ALLOT_TRY(load(options, name, *run, &shown->worker, engine));
    const Status agreed = agreeOnModel(finder, &store, **engine);
    if (!agreed && draining) return {};
    // The run's experiment was replaced while the model was loading: find the run again.
    if (!agreed && agreed.error().code == ErrorCode::kFenced && options.stay) return {};
    ALLOT_TRY(agreed);
    health.ready();
    (void)store.leave(options.name);  // removes the failure of an earlier process
    return workOn(options, name, run, engine->get(), finder, &shown->worker);
  }();
  if (worked) return {};
  (void)store.leave(name);
  // Under the name that the next process will also have: only the newest failure is kept.
  beatFailure(&store, beatOf(options.name), worked.error().message, unixMs());
  return worked;
}

Status work(const Options& options) {
  ALLOT_ASSIGN(const auto telemetry, Telemetry::start(options.telemetry.options));
  ProcessTelemetry shown(telemetry.get());
  telemetry->setRun("", options.wanted);
  RunFinder finder(options.redis, options.run_id, options.wanted, &draining, &shown.store,
                   [&](const std::string& why) { telemetry->health().waiting(why); });
  std::unique_ptr<Engine> engine;
  Status done;
  do {
    telemetry->health().loading("it looks for its run");
    ALLOT_ASSIGN(auto run, finder.find());
    if (!run) return {};
    telemetry->setRun(run->id, run->spec.experiment.name());
    done = workFor(options, &*run, finder, &shown, &engine);
    if (engine) reportTimes(*engine);
  } while (done && options.stay && !draining);
  if (draining && shown.worker.hasLost()) telemetry->waitForScrape(kLastScrape);
  return done;
}

// Returns an error if the output could not be written: output is the result of these commands.
Status printed(Status done) {
  if (!done) return done;
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout.flush();
  if (!lost) return {};
  return fail(ErrorCode::kIo, "the output could not be written whole: is the disk full?");
}

// Does the kind of work that the options name.
Status run(const Options& options) {
  if (!options.check.empty() || !options.schedules.empty() || !options.measure.empty()) {
    // These commands hold nothing of a run: a signal ends them at once.
    std::signal(SIGTERM, SIG_DFL);
    std::signal(SIGINT, SIG_DFL);
  }
  if (!options.check.empty()) return printed(check(options));
  if (!options.schedules.empty()) return printed(answer(options));
  if (!options.measure.empty()) return answerAgain(options);
  if (options.redis.empty() || options.run_id.empty() == options.wanted.empty()) {
    return badInput("--redis and either --run or --experiment are needed: see --help");
  }
  const Status done = work(options);
  // A complete log ends with this line: not every kubelet reports the exit code of a deleted pod.
  if (done) spdlog::info("ended, exit code 0");
  return done;
}

int main(int argc, char** argv) {
  CLI::App app(
      "allot-worker: decodes and grades for one run until the run ends.\n\n"
      "Examples:\n"
      "  allot-worker --redis redis://redis:6379 --run 01J9ZK3V5Q8XH2M4N6P7R8S9TA\n"
      "  allot-worker --redis redis://redis:6379 --experiment recall-layer-budget --stay");
  app.set_version_flag("--version", buildText());
  Options options;
  options.name = "worker";
  if (const char* host = std::getenv("HOSTNAME")) options.name = host;
  app.add_option("--redis", options.redis, "unix:/path/redis.sock or redis://host:port");
  app.add_option("--run", options.run_id, "Run id, as `allot run` prints it");
  app.add_option("--experiment", options.wanted,
                 "Instead of --run: the newest run of this experiment, once there is one");
  app.add_option("--name", options.name, "Name of this worker [the host's name]");
  app.add_option("--model", options.model, "Model folder, instead of spec.model.path");
  app.add_option("--task-path", options.task_path, "File or folder, instead of spec.task.path");
  app.add_option("--held-out-path", options.held_out_path,
                 "File, instead of spec.task.heldOutPath");
  app.add_option("--kv-memory", options.kv_mib,
                 "MiB for keys and values [a quarter of the device's free memory]");
  app.add_option("--host-memory", options.host_mib,
                 "MiB of the host's memory for copies of prompts that the GPU has no room for [a "
                 "quarter of what is free; on a CPU 0]");
  app.add_option("--rows", options.rows_at_once,
                 "Most questions that are answered at once, by taking several episodes [64 on a "
                 "CPU, 512 on a GPU, where a step has 256]")
      ->check(CLI::Range(uint32_t{1}, uint32_t{4096}));
  app.add_flag("--allow-code-execution", options.allow_code_execution,
               "Graders may run programs that the model writes (suite humaneval), in a sandbox");
  app.add_flag("--stay", options.stay,
               "At the run's end: wait, model loaded, and work again when the run goes on or, with "
               "--experiment, a newer one begins");
  app.add_option("--grace", options.grace_s,
                 "On SIGTERM: seconds for the episode in hand, which is then dropped whole [15]")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1'000'000}));
  app.add_option("--check", options.check,
                 "Check this experiment file, its model and its questions, print what was found "
                 "and exit");
  app.add_option(
      "--schedules", options.schedules,
      "Instead of a run: answer questions of this experiment file under the schedules "
      "that standard input has, one JSON object a line (worker/engine/schedule_answers.h)");
  app.add_flag("--any-model", options.any_model,
               "With --schedules: take a policy.json that was made for another model");
  app.add_option("--measure", options.measure,
                 "Instead of a run: answer the recorded results of this file again, for `allot "
                 "verify --measure` (worker/engine/measure_again.h)");
  app.add_option("--beside", options.beside,
                 "With --measure: a file or folder; relative paths of the experiment are found "
                 "from it as from the experiment file");
  app.add_option("--set", options.set,
                 "With --check or --schedules: spec.key=value, replaces a value of the file")
      ->allow_extra_args(false);
  app.add_flag("--stored", options.stored,
               "With --check: the file is of a run that goes on, which keeps what is refused for "
               "new ones");
  options.telemetry.add(&app);
  return runProcess("allot-worker", &app, options.telemetry, argc, argv,
                    [&] { return run(options); });
}

}  // namespace
}  // namespace allot

int main(int argc, char** argv) { return allot::main(argc, argv); }
