// allot-worker: one worker process of a run.
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "core/spec.h"
#include "core/ulid.h"
#include "worker/engine.h"
#include "worker/worker_loop.h"

namespace allot {
namespace {

std::atomic<bool> draining{false};

struct Options {
  std::string redis;
  std::string run_id;
  std::string name;
  std::string model;
  std::string check;
  std::vector<std::string> set;
  uint64_t kv_mib = 0;
};

template <typename ClockType>
uint64_t msOf() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(ClockType::now().time_since_epoch())
          .count());
}
uint64_t unixMs() { return msOf<std::chrono::system_clock>(); }
uint64_t steadyMs() { return msOf<std::chrono::steady_clock>(); }

// A quarter of the memory that is free now: several workers share a machine.
size_t defaultKvBytes() {
  const long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return size_t{1} << 30;
  return static_cast<size_t>(pages) * static_cast<size_t>(page) / 4;
}

Result<std::unique_ptr<Engine>> loadEngine(const v1::Experiment& experiment, const Options& options,
                                           const std::string& experiment_file) {
  const std::string& path =
      options.model.empty() ? experiment.spec().model().path() : options.model;
  ALLOT_ASSIGN(const std::string folder, findModelFolder(path, experiment_file));
  return Engine::load(experiment,
                      {.model_folder = folder,
                       .kv_bytes = options.kv_mib ? options.kv_mib << 20 : defaultKvBytes()});
}

// --check: everything that can be wrong with an experiment, before anything is started.
Status check(const Options& options) {
  std::ifstream file(options.check);
  if (!file) return badInput(options.check + ": cannot be read: is the path right?");
  std::stringstream text;
  text << file.rdbuf();
  ALLOT_ASSIGN(const auto experiment, parseExperiment(text.str(), options.check, options.set));
  ALLOT_ASSIGN(const auto engine, loadEngine(experiment, options, options.check));
  const v1::ModelFacts& facts = engine->facts();
  ALLOT_ASSIGN(
      const std::string folder,
      findModelFolder(options.model.empty() ? experiment.spec().model().path() : options.model,
                      options.check));
  const nlohmann::json json = {{"architecture", facts.architecture()},
                               {"layers", facts.layers()},
                               {"heads", facts.heads()},
                               {"kv_heads", facts.kv_heads()},
                               {"head_dim", facts.head_dim()},
                               {"parameters", facts.parameters()},
                               {"weights_sha256", facts.weights_sha256()},
                               {"dataset_sha256", facts.dataset_sha256()},
                               {"longest_prompt", facts.longest_prompt()},
                               {"model_folder", folder}};
  std::printf("%s\n", json.dump().c_str());
  return {};
}

// Repeats a store call until the store is there; gives up only when draining.
template <typename Call>
auto patiently(const Call& call) -> decltype(call()) {
  bool told = false;
  while (true) {
    auto result = call();
    if (result || result.error().code != ErrorCode::kUnavailable || draining) return result;
    if (!told) spdlog::warn("{}; waiting", result.error().message);
    told = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

Status work(const Options& options) {
  ALLOT_ASSIGN(auto store, openRedisStore(options.redis, options.run_id));
  std::optional<RunSpec> run;
  while (!run) {  // the aggregator creates the run
    ALLOT_ASSIGN(run, patiently([&] { return store->readSpec(); }));
    if (draining) return {};
    if (!run) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  ALLOT_ASSIGN(const auto engine, loadEngine(run->experiment, options, ""));
  ALLOT_ASSIGN(const v1::ModelFacts agreed,
               patiently([&] { return store->agreeOnModel(engine->facts()); }));
  if (agreed.weights_sha256() != engine->facts().weights_sha256()) {
    return badInput("this worker's model weights (" +
                    engine->facts().weights_sha256().substr(0, 12) +
                    ") are not those of the run (" + agreed.weights_sha256().substr(0, 12) +
                    "): give every worker the same model folder");
  }
  if (agreed.dataset_sha256() != engine->facts().dataset_sha256()) {
    return badInput(
        "this worker's questions are not those of the run: give every worker the same "
        "build and tokenizer.json");
  }
  std::random_device random;
  const std::string unique = makeUlid(unixMs(), random(), random());
  WorkerLoop loop(store.get(), engine.get(), *run,
                  {.name = options.name + "-" + unique.substr(16),
                   .build = ALLOT_BUILD,
                   .jitter_seed = random(),
                   .now = steadyMs,
                   .unix_now = unixMs},
                  &draining);
  spdlog::info("{} works on run {}", options.name, options.run_id);
  ALLOT_TRY(loop.run());
  const auto& decoder = engine->decoder().times();
  const auto& times = engine->times();
  spdlog::info(
      "seconds: prefill {:.1f}, projections {:.1f}, attention {:.1f}, sampling and text {:.1f}, "
      "grading {:.2f}",
      decoder.prefill, decoder.projections, decoder.attention,
      times.generation - decoder.projections - decoder.attention, times.grading);
  return {};
}

int main(int argc, char** argv) {
  CLI::App app(
      "allot-worker: decodes and grades for one run until the run ends.\n\n"
      "Example: allot-worker --redis redis://redis:6379 --run 01J9ZK3V5Q8XH2M4N6P7R8S9TA");
  Options options;
  options.name = "worker";
  if (const char* host = std::getenv("HOSTNAME")) options.name = host;
  app.add_option("--redis", options.redis, "unix:/path/redis.sock or redis://host:port");
  app.add_option("--run", options.run_id, "Run id, as `allot run` prints it");
  app.add_option("--name", options.name, "Name of this worker [the host's name]");
  app.add_option("--model", options.model, "Model folder, instead of spec.model.path");
  app.add_option("--kv-memory", options.kv_mib,
                 "MiB for keys and values [a quarter of the free memory]");
  app.add_option("--check", options.check,
                 "Check this experiment file, its model and its questions, print what was found "
                 "and exit");
  app.add_option("--set", options.set, "With --check: spec.key=value, replaces a value of the file")
      ->allow_extra_args(false);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorCode::kUsage);
  }

  spdlog::set_default_logger(spdlog::stderr_color_mt("allot-worker"));
  struct sigaction action {};
  action.sa_handler = [](int) { draining = true; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);

  Status done;
  if (!options.check.empty()) {
    done = check(options);
  } else if (options.redis.empty() || options.run_id.empty()) {
    done = badInput("--redis and --run are needed: see --help");
  } else {
    done = work(options);
  }
  if (done) return 0;
  std::fprintf(stderr, "allot-worker: %s\n", done.error().message.c_str());
  return done.error().exitCode();
}

}  // namespace
}  // namespace allot

int main(int argc, char** argv) {
  try {
    return allot::main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "allot-worker: %s\n", error.what());
    return 70;
  }
}
