// allot-bench worker: episodes per second on this machine, and where the time goes.
//
// The real parts: redis-server with fsync on every write, an aggregator that updates the policy,
// one process a worker, metrics in all of them. Only the evaluation grid is left out. Prints one
// table; gates nothing.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "aggregator/learner/aggregator.h"
#include "aggregator/learner/aggregator_probe.h"
#include "core/learning/schedule.h"
#include "core/learning/update.h"
#include "core/spec/spec.h"
#include "core/telemetry/telemetry.h"
#include "store/store.h"
#include "store/store_probe.h"
#include "tests/bench/bench_redis.h"
#include "tests/bench/benches.h"
#include "tests/identity.h"
#include "worker/engine/engine.h"
#include "worker/worker_probe.h"

namespace allot {
namespace {

// What one worker process reports through its pipe: plain numbers.
struct Share {
  double prefill_seconds = 0, prefill_tokens = 0;
  double seconds = 0, episodes = 0, steps = 0;
  double projections = 0, attention = 0, sampling = 0, gpu_steps = 0;
  double text = 0, grading = 0, store = 0;
};

struct Bench {
  v1::Experiment experiment;
  std::string model_folder;
  std::string url;
  unsigned workers = 2;
  double seconds = 20;
};

[[noreturn]] void die(const Error& error) {
  std::fprintf(stderr, "allot-bench: %s\n", error.message.c_str());
  std::_Exit(error.exitCode());
}
template <typename T>
T must(Result<T> result) {
  if (!result) die(result.error());
  return std::move(*result);
}

// Every training prompt once, so that the timed part decodes only.
void prefillAll(const Bench& bench, Engine* engine, Share* share) {
  const uint32_t count = bench.experiment.spec().rollout().questions_per_episode();
  const uint32_t epoch = bench.experiment.spec().task().train_questions() / count;
  const auto state = initialState(bench.experiment, engine->facts().layers());
  for (uint32_t ticket = 0; ticket < epoch; ++ticket) {
    must(engine->rollOut(state.policy(), "", {ticket}));
  }
  share->prefill_seconds = engine->decoder().times().prefill;
  for (const Question& question : engine->dataset().train) {
    share->prefill_tokens += static_cast<double>(question.prompt_ids.size());
  }
}

// One worker: what WorkerLoop does for an episode, with a clock around each part.
Share work(const Bench& bench, unsigned number, int ready, int go) {
  Share share;
  const auto telemetry = must(Telemetry::start({}));
  StoreProbe store_probe(&telemetry->metrics(), &telemetry->health());
  WorkerProbe probe(&telemetry->metrics(), &telemetry->health());
  auto engine = must(Engine::load(
      bench.experiment,
      {.model_folder = bench.model_folder, .kv_bytes = size_t{4} << 30, .events = &probe}));
  auto store = must(openRedisStore(bench.url, "bench", 5000, &store_probe));
  const WorkerIdentity identity = identityOf(std::to_string(number));
  store->signAs(identity);
  must(store->readSpec());
  must(store->agreeOnModel(engine->facts()));
  prefillAll(bench, engine.get(), &share);
  engine->decoder().measureSampling();
  (void)!write(ready, "r", 1);
  char byte;
  (void)!read(go, &byte, 1);
  const auto decoder = engine->decoder().times();
  const auto times = engine->times();
  const auto start = Clock::now();
  uint64_t sequence = 0;
  while (secondsSince(start) < bench.seconds) {
    auto mark = Clock::now();
    const auto policy = must(store->readPolicy());
    const auto tickets = must(
        store->takeTickets({bench.experiment.spec().rollout().episodes_per_pull(), UINT64_MAX}));
    must(store->claimUnits({.holder = std::to_string(number), .lease_ms = 1000}));
    share.store += secondsSince(mark);
    auto results = must(engine->rollOut(policy->snapshot, policy->sha256, tickets));
    mark = Clock::now();
    for (auto& result : results) {
      result.set_result_id(std::to_string(number) + "-" + std::to_string(sequence++));
      result.set_worker(identity.name());
      must(store->pushResult(result, 1000));
      probe.episode(WorkOutcome::kPushed, &result);
      share.steps += static_cast<double>(result.counts().decode_steps());
      ++share.episodes;
    }
    share.store += secondsSince(mark);
  }
  share.seconds = secondsSince(start);
  const auto& after = engine->decoder().times();
  share.projections = after.projections - decoder.projections;
  share.sampling = after.sampling - decoder.sampling;
  share.attention = after.attention - decoder.attention - share.sampling;
  share.gpu_steps = after.gpu_steps - decoder.gpu_steps;
  share.text = engine->times().generation - times.generation - share.projections - share.attention -
               share.sampling - share.gpu_steps;
  share.grading = engine->times().grading - times.grading;
  return share;
}

struct WorkerProcess {
  pid_t pid = -1;
  int from = -1;
  int to = -1;
};

WorkerProcess startWorker(const Bench& bench, unsigned number) {
  int up[2], down[2];
  if (pipe(up) != 0 || pipe(down) != 0) die({ErrorCode::kIo, "cannot make a pipe"});
  const pid_t pid = fork();
  if (pid == 0) {
    const Share share = work(bench, number, up[1], down[0]);
    (void)!write(up[1], &share, sizeof share);
    std::_Exit(0);
  }
  close(up[1]);
  close(down[0]);
  return {pid, up[0], down[1]};
}

double cpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void print(const Bench& bench, const std::vector<Share>& shares, double aggregator_share) {
  Share sum;
  for (const Share& share : shares) {
    for (const auto part :
         {&Share::prefill_seconds, &Share::prefill_tokens, &Share::seconds, &Share::episodes,
          &Share::steps, &Share::projections, &Share::attention, &Share::sampling,
          &Share::gpu_steps, &Share::text, &Share::grading, &Share::store}) {
      sum.*part += share.*part;
    }
  }
  const v1::Spec& spec = bench.experiment.spec();
  std::printf(
      "%u workers, %u-token contexts, %u questions an episode, method %s, total budget %u\n",
      bench.workers, spec.task().context_tokens(), spec.rollout().questions_per_episode(),
      spec.attention().decode().c_str(), spec.policy().total_budget());
  std::printf("prefill: %.0f tokens/s a worker (%.1f ms a prompt), once a prompt\n",
              sum.prefill_tokens / sum.prefill_seconds,
              1000 * sum.prefill_seconds / (bench.workers * spec.task().train_questions()));
  std::printf("episodes: %.1f a second (%.1f ms each on one worker, %.0f decoded tokens)\n",
              sum.episodes / sum.seconds * bench.workers, 1000 * sum.seconds / sum.episodes,
              sum.steps / sum.episodes);
  const auto line = [&](const char* name, double seconds) {
    std::printf("  %-34s %5.1f %%\n", name, 100 * seconds / sum.seconds);
  };
  line("projections", sum.projections);
  line("attention: scores, softmax, values", sum.attention);
  line("sampling", sum.sampling);
  if (sum.gpu_steps > 0) line("steps on the GPU", sum.gpu_steps);
  line("batching, argmax, text", sum.text);
  line("grading", sum.grading);
  line("store", sum.store);
  std::printf("aggregator: %.1f %% of a core\n", 100 * aggregator_share);
}

void measure(Bench bench, const std::string& dir) {
  auto redis = must(startRedis(dir, "always"));
  bench.url = "unix:" + dir + "/redis.sock";
  // Forked before this process has a connection or a thread of its own.
  std::vector<WorkerProcess> workers;
  for (unsigned i = 0; i < bench.workers; ++i) workers.push_back(startWorker(bench, i));
  auto store = must(openRedisStore(bench.url, "bench"));
  const RunSpec run{bench.experiment, specDigest(bench.experiment), false, nowMs(), {}};
  if (const Status created = store->createRun(run); !created) die(created.error());
  const auto telemetry = must(Telemetry::start({}));
  AggregatorProbe probe(&telemetry->metrics(), &telemetry->health(), nowMs);
  Aggregator aggregator(store.get(), run,
                        {.holder = "bench", .now = nowMs, .unix_now = nowMs, .events = &probe});
  std::printf("prefilling %u prompts in each of %u workers\n",
              bench.experiment.spec().task().train_questions(), bench.workers);
  std::fflush(stdout);
  char byte;
  for (const WorkerProcess& worker : workers) {
    if (read(worker.from, &byte, 1) != 1) die({ErrorCode::kInternal, "a worker has died"});
  }
  must(aggregator.tick());
  for (const WorkerProcess& worker : workers) (void)!write(worker.to, "g", 1);
  const auto start = Clock::now();
  const double cpu = cpuSeconds();
  uint64_t shown = 0;
  while (secondsSince(start) < bench.seconds) {
    must(aggregator.tick());
    if (nowMs() - shown < 1000) continue;
    probe.lead(aggregator.snapshot());
    shown = nowMs();
  }
  const double aggregator_share = (cpuSeconds() - cpu) / secondsSince(start);
  std::vector<Share> shares(workers.size());
  for (size_t i = 0; i < workers.size(); ++i) {
    if (read(workers[i].from, &shares[i], sizeof(Share)) != sizeof(Share)) {
      die({ErrorCode::kInternal, "a worker has died"});
    }
    waitpid(workers[i].pid, nullptr, 0);
  }
  print(bench, shares, aggregator_share);
  stopRedis(&redis);
}

}  // namespace

int benchWorker(int argc, char** argv) {
  CLI::App app("Episodes per second and where the time goes.");
  app.footer(
      "Examples:\n"
      "  allot-bench worker\n"
      "  allot-bench worker my.yaml --workers 1 --set spec.policy.totalBudget=64");
  std::string file = "experiments/recall-layer-budget/experiment.yaml";
  std::vector<std::string> set;
  Bench bench;
  bench.workers = std::max(1u, std::thread::hardware_concurrency());
  app.add_option("experiment", file, "Experiment file [experiments/recall-layer-budget]");
  app.add_option("--workers", bench.workers, "Worker processes [one a core]");
  app.add_option("--seconds", bench.seconds, "Seconds to measure [20]");
  app.add_option("--set", set, "spec.key=value")->allow_extra_args(false);
  CLI11_PARSE(app, argc, argv);
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  set.push_back("spec.update.maxUpdates=1000000");
  bench.experiment = must(parseExperiment(text.str(), file, set));
  bench.model_folder = must(findModelFolder(bench.experiment.spec().model().path(), file));
  char dir[] = "/tmp/allot-bench-XXXXXX";
  if (!mkdtemp(dir)) die({ErrorCode::kIo, "cannot make a folder in /tmp"});
  measure(bench, dir);
  std::filesystem::remove_all(dir);
  return 0;
}

}  // namespace allot
