// allot-aggregator: the one learner of a run, and the page that shows it.
#include <google/protobuf/util/json_util.h>
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>

#include "aggregator/aggregator.h"
#include "aggregator/http_server.h"
#include "aggregator/report.h"
#include "aggregator/run_view.h"
#include "core/spec.h"
#include "core/ulid.h"
#include "store/archive.h"

namespace allot {
namespace {

using std::chrono::milliseconds;

std::atomic<bool> draining{false};

// In --dir: where the page is.
constexpr char kPageUrlFile[] = "page.url";

struct Options {
  std::string redis;
  std::string run_id;
  std::string experiment_file;
  std::vector<std::string> set;
  std::string origin;
  std::string dir;
  std::string listen = "127.0.0.1";
  uint16_t port = 9464;
  bool any_port = false;
  uint64_t lease_ms = 15'000;
  bool synchronous = false;
};

template <typename ClockType>
uint64_t msOf() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<milliseconds>(ClockType::now().time_since_epoch()).count());
}
uint64_t unixMs() { return msOf<std::chrono::system_clock>(); }
uint64_t steadyMs() { return msOf<std::chrono::steady_clock>(); }

// The view that the page's thread serves; replaced by the main thread.
class SharedView {
 public:
  void set(std::string text) {
    const std::lock_guard lock(mutex_);
    text_ = std::move(text);
  }
  std::string get() const {
    const std::lock_guard lock(mutex_);
    asked_ = steadyMs();
    return text_;
  }
  // True if somebody has a page open, which asks every two seconds.
  bool isWatched() const {
    const std::lock_guard lock(mutex_);
    return asked_ != 0 && steadyMs() - asked_ < 5000;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_ = "{}";
  mutable uint64_t asked_ = 0;
};

Result<RunSpec> readRun(const Options& options) {
  std::ifstream file(options.experiment_file);
  if (!file) {
    return badInput(options.experiment_file + ": cannot be read: is the path right?");
  }
  std::stringstream text;
  text << file.rdbuf();
  ALLOT_ASSIGN(const auto experiment,
               parseExperiment(text.str(), options.experiment_file, options.set));
  if (options.synchronous && !experiment.spec().has_update()) {
    return badInput(
        "--synchronous needs spec.update: an evaluation alone has no policy to wait for");
  }
  RunSpec run{experiment, specDigest(experiment), options.synchronous, unixMs(), {}};
  if (!options.origin.empty()) {
    std::ifstream origin(options.origin);
    std::stringstream json;
    json << origin.rdbuf();
    run.origin.emplace();
    if (!origin || !google::protobuf::util::JsonStringToMessage(json.str(), &*run.origin).ok() ||
        run.origin->state().policy().logits().empty()) {
      return badInput(options.origin + ": is not the origin of a fork: make it with `allot fork`");
    }
  }
  return run;
}

// The report and the run as files, in --dir. What has grown long is exported less often, so that no
// more than a twentieth of the time goes into it; at the end always.
class Artefacts {
 public:
  Artefacts(const Options& options, Store* store) : options_(options), store_(*store) {}

  Status write(Aggregator* aggregator, bool at_end) {
    if (options_.dir.empty()) return {};
    RunSnapshot snapshot = aggregator->snapshot();
    if (draining && !aggregator->finished()) snapshot.phase = "stopped";
    ALLOT_TRY(writeReport(options_.dir, runView(snapshot, unixMs(), options_.run_id)));
    const uint64_t start = steadyMs();
    if (!at_end && start < next_export_) return {};
    StoreSource source(&store_, options_.run_id);
    ALLOT_TRY(exportRun(&source, options_.dir));
    next_export_ = steadyMs() + 20 * (steadyMs() - start);
    return {};
  }

 private:
  const Options& options_;
  Store& store_;
  uint64_t next_export_ = 0;
};

// Ticks until the run ends or draining is set.
Status lead(const Options& options, Store* store, Aggregator* aggregator, SharedView* shared) {
  Artefacts artefacts(options, store);
  bool away = false;
  uint64_t shown = 0;
  std::string phase;
  while (!draining) {
    const Result<bool> more = aggregator->tick();
    if (!more && more.error().code != ErrorCode::kUnavailable) return tl::unexpected(more.error());
    if (!more) {
      if (!away) spdlog::warn("{}; waiting", more.error().message);
      away = true;
      std::this_thread::sleep_for(milliseconds(200));
      continue;
    }
    if (away) spdlog::info("the store is back");
    away = false;
    if (!*more || steadyMs() - shown >= 1000) {
      const RunSnapshot snapshot = aggregator->snapshot();
      // Names come from workers and may hold anything.
      shared->set(runView(snapshot, unixMs(), options.run_id)
                      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      shown = steadyMs();
      const bool evaluated = phase == "evaluating" && snapshot.phase != "evaluating";
      phase = snapshot.phase;
      if (*more && evaluated) {
        // The next evaluation or the end writes them again: no reason to stop learning.
        const Status written = artefacts.write(aggregator, false);
        if (!written) spdlog::warn("{}", written.error().message);
      }
    }
    if (!*more) break;
    if (phase == "starting") std::this_thread::sleep_for(milliseconds(50));
  }
  Status written = artefacts.write(aggregator, true);
  while (!written && written.error().code == ErrorCode::kUnavailable && !draining) {
    std::this_thread::sleep_for(milliseconds(500));
    written = artefacts.write(aggregator, true);
  }
  ALLOT_TRY(written);
  // An open page learns that the run has ended before its server goes.
  if (!draining && shared->isWatched()) std::this_thread::sleep_for(milliseconds(2500));
  return {};
}

std::string pageUrl(const Options& options, const HttpServer& server) {
  return "http://" + options.listen + ":" + std::to_string(server.port()) + "/";
}

Result<std::unique_ptr<HttpServer>> startPage(const Options& options, const SharedView* shared) {
  const auto serve = [shared](const std::string& path) { return servePage(path, shared->get()); };
  auto server = HttpServer::start(options.listen, options.port, serve);
  if (!server && options.any_port) server = HttpServer::start(options.listen, 0, serve);
  if (!server) return server;
  const std::string url = pageUrl(options, **server);
  spdlog::info("page {}", url);
  if (!options.dir.empty()) std::ofstream(options.dir + "/" + kPageUrlFile) << url << std::endl;
  return server;
}

Status aggregate(const Options& options) {
  ALLOT_ASSIGN(RunSpec run, readRun(options));
  SharedView shared;
  ALLOT_ASSIGN(const auto server, startPage(options, &shared));
  ALLOT_ASSIGN(const auto store, openRedisStore(options.redis, options.run_id));
  while (true) {
    auto begun = beginRun(store.get(), run);
    if (begun) {
      run = std::move(*begun);
      break;
    }
    if (begun.error().code != ErrorCode::kUnavailable) return tl::unexpected(begun.error());
    if (draining) return {};
    std::this_thread::sleep_for(milliseconds(200));
  }
  if (run.experiment.spec().staleness().mode() == "drop") {
    spdlog::warn(
        "staleness mode drop is biased: what takes long (slow workers, long answers) is refused "
        "more often; truncated-is is not");
  }

  std::random_device random;
  const std::string holder = "aggregator-" + makeUlid(unixMs(), random(), random());
  Aggregator aggregator(
      store.get(), run,
      {.holder = holder,
       .lease_ms = options.lease_ms,
       .page = pageUrl(options, *server),
       .now = steadyMs,
       .unix_now = unixMs,
       .rest = [](uint64_t ms) { std::this_thread::sleep_for(milliseconds(ms)); }});
  const Status led = lead(options, store.get(), &aggregator, &shared);
  if (led || led.error().code != ErrorCode::kFenced) (void)store->releaseLease(holder);
  return led;
}

int main(int argc, char** argv) {
  CLI::App app(
      "allot-aggregator: learns the schedule of one run and shows it.\n\n"
      "Example: allot-aggregator --redis redis://redis:6379 --run 01J9ZK3V5Q8XH2M4N6P7R8S9TA "
      "--experiment /config/experiment.yaml");
  Options options;
  app.add_option("--redis", options.redis, "unix:/path/redis.sock or redis://host:port")
      ->required();
  app.add_option("--run", options.run_id, "Run id (a ULID)")->required();
  app.add_option("--experiment", options.experiment_file, "Experiment file")->required();
  app.add_option("--set", options.set, "spec.key=value, replaces a value of the file")
      ->allow_extra_args(false);
  app.add_option("--origin", options.origin,
                 "Begin with the policy and optimiser in this file (allot fork writes it)");
  app.add_option("--dir", options.dir, "Write report, curve, policy and history here");
  app.add_option("--listen", options.listen, "Address of the page [127.0.0.1]");
  app.add_option("--port", options.port, "Port of the page, 0 for any [9464]");
  app.add_flag("--any-port", options.any_port, "Take any free port if --port is taken");
  app.add_option("--lease-ms", options.lease_ms,
                 "After so many ms of silence another aggregator may take over [15000]")
      ->check(CLI::Range(uint64_t{100}, uint64_t{3'600'000}));
  app.add_flag("--synchronous", options.synchronous,
               "Lag zero: episodes of an update are handed out only under its own policy");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorCode::kUsage);
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("allot-aggregator"));
  struct sigaction action {};
  action.sa_handler = [](int) { draining = true; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);

  const Status done = aggregate(options);
  if (done) return 0;
  std::fprintf(stderr, "allot-aggregator: %s\n", done.error().message.c_str());
  return done.error().exitCode();
}

}  // namespace
}  // namespace allot

int main(int argc, char** argv) {
  try {
    return allot::main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "allot-aggregator: %s\n", error.what());
    return 70;
  }
}
