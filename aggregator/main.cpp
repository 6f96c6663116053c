// allot-aggregator: the one learner of a run, and the page that shows it. Parses the options,
// chooses the run and creates or continues it; leadRun() does the rest.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <random>
#include <thread>

#include "aggregator/leader.h"
#include "aggregator/learner/experiment_file.h"
#include "aggregator/report/report.h"
#include "core/build.h"
#include "core/clocks.h"
#include "core/files/files.h"
#include "core/spec/choices.h"
#include "core/telemetry/process.h"
#include "core/ulid.h"
#include "store/outage.h"

namespace allot {
namespace {

using std::chrono::milliseconds;

// The file in --dir with the URL of the page.
constexpr char kPageUrlFile[] = "page.url";

struct Options {
  LeadOptions lead;
  std::string experiment_file;
  std::vector<std::string> set;
  std::string origin;
  TelemetryFlags telemetry{.options = {.port = 9464}};
  bool synchronous = false;
};

Result<std::unique_ptr<Telemetry>> startTelemetry(const Options& options, SharedView* shared,
                                                  const Result<RunSpec>& wanted) {
  ALLOT_ASSIGN(auto telemetry,
               Telemetry::start(options.telemetry.options,
                                [shared, dir = options.lead.dir](const std::string& path) {
                                  if (isReportPath(path)) return serveReport(path, dir);
                                  return shared->reply(path);
                                }));
  if (wanted) telemetry->setRun(options.lead.run_id, wanted->experiment.name());
  const std::string& url = telemetry->url();
  spdlog::info("page {}", url);
  const std::string& dir = options.lead.dir;
  if (!dir.empty()) ALLOT_TRY(writeWholeFile(dir + "/" + kPageUrlFile, url + "\n"));
  return telemetry;
}

// Repeats `call` every 200 ms while it fails with kUnavailable, until draining.
template <typename Call>
auto patiently(const Call& call) -> decltype(call()) {
  Outage outage;
  while (true) {
    auto result = call();
    if (result || result.error().code != ErrorCode::kUnavailable || draining) return result;
    const Error& error = result.error();
    if (outage.isNew(error.message)) spdlog::warn("{}; waiting", error.message);
    std::this_thread::sleep_for(milliseconds(200));
  }
}

Status aggregate(Options options) {
  ExperimentFile file({.path = options.experiment_file,
                       .set = options.set,
                       .origin = options.origin,
                       .build = buildText(),
                       .synchronous = options.synchronous,
                       .unix_now = unixMs});
  const Result<RunSpec> wanted = file.read();
  if (!wanted && !options.lead.stay) return tl::unexpected(wanted.error());
  SharedView shared(unixMs, steadyMs);
  ALLOT_ASSIGN(const auto telemetry, startTelemetry(options, &shared, wanted));
  LeaderTelemetry shown(telemetry.get());
  std::random_device device;
  const auto random = [&] { return uint64_t{device()} << 32 | device(); };
  const std::string fresh = makeUlid(unixMs(), random(), random());
  auto run_id =
      patiently([&] { return chooseRun(options.lead.redis, options.lead.run_id, wanted, fresh); });
  if (!run_id && draining) return {};
  ALLOT_ASSIGN(options.lead.run_id, run_id);
  ALLOT_ASSIGN(const auto store, openRedisStore(options.lead.redis, options.lead.run_id,
                                                kStoreTimeoutMs, &shown.store));
  auto begun = patiently([&] { return file.begin(store.get(), options.lead.stay); });
  if (!begun && draining) return {};
  ALLOT_ASSIGN(const RunSpec run, begun);
  telemetry->setRun(options.lead.run_id, run.experiment.name());
  spdlog::info("run {} of {}", options.lead.run_id, run.experiment.name());
  if (modeOf(run.experiment.spec().staleness()) == StalenessMode::kDrop) {
    spdlog::warn(
        "staleness mode drop is biased: what takes long (slow workers, long answers) is refused "
        "more often; truncated-is is not");
  }
  return leadRun(options.lead, run, store.get(), &file, &shared, &shown, draining);
}

int main(int argc, char** argv) {
  CLI::App app(
      "allot-aggregator: learns the schedule of one run and shows it.\n\n"
      "Example: allot-aggregator --redis redis://redis:6379 --experiment /config/experiment.yaml "
      "--stay");
  app.set_version_flag("--version", buildText());
  Options options;
  app.add_option("--redis", options.lead.redis, "unix:/path/redis.sock or redis://host:port")
      ->required();
  app.add_option("--run", options.lead.run_id,
                 "Run id (a ULID) [the experiment's newest run, or one that begins now]");
  app.add_option("--experiment", options.experiment_file, "Experiment file")->required();
  app.add_option("--set", options.set, "spec.key=value, replaces a value of the file")
      ->allow_extra_args(false);
  app.add_option("--origin", options.origin,
                 "Begin with the policy and optimiser in this file (allot fork writes it)");
  app.add_option("--dir", options.lead.dir, "Write report, curve, policy and history here");
  options.telemetry.add(&app);
  app.add_flag("--any-port", options.telemetry.options.any_port,
               "Take any free port if --port is taken");
  app.add_option("--lease-ms", options.lead.lease_ms,
                 "Milliseconds of silence after which another aggregator may take over [15000]")
      ->check(CLI::Range(uint64_t{100}, uint64_t{3'600'000}));
  app.add_flag("--stay", options.lead.stay,
               "Do not exit at the run's end: go on when it does; take up edits of the experiment "
               "file meanwhile, as far as a run can");
  app.add_flag("--synchronous", options.synchronous,
               "Lag zero: episodes of an update are handed out only under its own policy");
  return runProcess("allot-aggregator", &app, options.telemetry, argc, argv,
                    [&] { return aggregate(options); });
}

}  // namespace
}  // namespace allot

int main(int argc, char** argv) { return allot::main(argc, argv); }
