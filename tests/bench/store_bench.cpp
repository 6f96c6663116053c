// allot-bench store: what the store and the aggregator sustain, without a model. Results pushed and
// updates committed a second; the aggregator's memory and its work a second after many updates with
// their evaluations and beside many workers; what resuming takes, with large updates, too.
// redis-server and this process, which is every worker and the aggregator, share one core. Prints
// figures; gates nothing.
#include <sched.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "aggregator/learner/aggregator.h"
#include "core/learning/questions.h"
#include "core/learning/schedule.h"
#include "core/spec/spec.h"
#include "store/store.h"
#include "tests/bench/bench_redis.h"
#include "tests/bench/benches.h"

namespace allot {
namespace {

constexpr uint32_t kLayers = 28;
constexpr size_t kResultBytes = 1024;
constexpr size_t kWorkers = 1000;
constexpr char kNothing[] = "{everyUpdates: 0, methods: [dense]}";
constexpr char kDefaultGrid[] =
    "{everyUpdates: 25, budgets: [8, 16, 32, 64, 128], schedules: [uniform, learned], "
    "methods: [dense, s2anta-sys]}";

double cpuSeconds(clockid_t clock = CLOCK_PROCESS_CPUTIME_ID) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The most that was resident since resetPeak().
double peakMib() {
  std::ifstream file("/proc/self/status");
  std::string word;
  double kib = 0;
  while (file >> word) {
    if (word == "VmHWM:") file >> kib;
  }
  return kib / 1024;
}
void resetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

double residentMib() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

Result<v1::Experiment> experimentWith(uint64_t episodes_per_update, const std::string& evaluation) {
  return parseExperiment(
      "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: bench}\nspec:\n"
      "  model: {path: none}\n  task: {suite: recall, tasks: [niah]}\n"
      "  policy: {totalBudget: 224}\n  rollout: {questionsPerEpisode: 16}\n"
      "  update: {learner: reinforce, episodesPerUpdate: " +
          std::to_string(episodes_per_update) + ", maxUpdates: 1000000}\n" +
          "  evaluation: " + evaluation + "\n",
      "bench");
}

// One run on one Redis; this process is every worker and the aggregator.
class StoreBench {
 public:
  StoreBench(std::string dir, std::string run, uint64_t episodes_per_update, size_t result_bytes,
             std::string evaluation = kNothing, uint64_t wait_ms = 0)
      : dir_(std::move(dir)),
        run_id_(std::move(run)),
        per_update_(episodes_per_update),
        result_bytes_(result_bytes),
        evaluation_(std::move(evaluation)),
        wait_ms_(wait_ms) {}

  Status open() {
    ALLOT_ASSIGN(store_, openRedisStore("unix:" + dir_ + "/redis.sock", run_id_));
    ALLOT_ASSIGN(const auto experiment, experimentWith(per_update_, evaluation_));
    run_ = {experiment, specDigest(experiment), false, 1, {}};
    ALLOT_TRY(store_->createRun(run_));
    v1::ModelFacts facts;
    facts.set_layers(kLayers);
    ALLOT_TRY(store_->agreeOnModel(facts));
    return restart();
  }
  // A new aggregator, up to its first tick with the state loaded; the seconds that took.
  Status restart() {
    if (store_ && aggregator_) ALLOT_TRY(store_->releaseLease("bench"));
    aggregator_.emplace(
        store_.get(), run_,
        AggregatorOptions{
            .holder = "bench", .wait_ms = wait_ms_, .page = "", .now = nowMs, .unix_now = nowMs});
    const auto start = Clock::now();
    const double cpu = cpuSeconds();
    // It has caught up once its snapshot has the newest update.
    do {
      ALLOT_TRY(aggregator_->tick());
    } while (aggregator_->snapshot().phase == Phase::kStarting);
    resume_seconds_ = secondsSince(start);
    resume_cpu_seconds_ = cpuSeconds() - cpu;
    return {};
  }
  // What the aggregator does each second beside updates: a tick and what metrics and page need.
  Result<double> cpuOfASecond() {
    constexpr int kTimes = 20;
    const double cpu = cpuSeconds();
    for (int i = 0; i < kTimes; ++i) {
      ALLOT_TRY(aggregator_->tick());
      (void)aggregator_->snapshot();
    }
    return (cpuSeconds() - cpu) / kTimes;
  }
  // Every open unit, as workers would do it.
  Status evaluate() {
    while (true) {
      ALLOT_ASSIGN(const auto units,
                   store_->claimUnits({.holder = "w", .count = 1000, .lease_ms = 60'000}));
      if (units.empty()) return {};
      for (const v1::EvaluationUnit& unit : units) {
        v1::EvaluationResult result;
        *result.mutable_unit() = unit;
        for (uint32_t i = 0; i < unit.question_count(); ++i) {
          auto* score = result.add_scores();
          score->set_question(unit.first_question() + i);
          score->set_score(i % 2);
        }
        result.set_seconds(0.1);
        result.set_worker("w");
        ALLOT_TRY(store_->pushEvaluation(result));
        ++evaluations_;
      }
    }
  }
  Status beat(size_t workers) {
    v1::WorkerBeat beat;
    beat.set_state("rollout");
    beat.set_device("NVIDIA H100 80GB HBM3");
    for (size_t i = 0; i < workers; ++i) {
      beat.set_worker("bench-worker-7d9f8b6c5-" + std::to_string(i));
      beat.set_episodes(i);
      ALLOT_TRY(store_->beat({.beat = beat, .ttl_ms = 3'600'000}));
    }
    return {};
  }
  uint64_t evaluations() const { return evaluations_; }
  double resumeCpuSeconds() const { return resume_cpu_seconds_; }
  // So many results of the newest policy, not yet pushed.
  Result<std::vector<v1::EpisodeResult>> results(uint64_t count) {
    ALLOT_ASSIGN(const auto policy, store_->readPolicy());
    if (!policy) return fail(ErrorCode::kInternal, "the aggregator has published no policy");
    const std::vector<double> logits(policy->snapshot.logits().begin(),
                                     policy->snapshot.logits().end());
    ALLOT_ASSIGN(const auto tickets, store_->takeTickets({count, UINT64_MAX}));
    std::vector<v1::EpisodeResult> made;
    for (const uint64_t ticket : tickets) {
      ticket_ = ticket;
      made.push_back(episode(*policy, logits));
    }
    return made;
  }
  Status push(uint64_t count) {
    ALLOT_ASSIGN(const auto made, results(count));
    for (const v1::EpisodeResult& result : made) {
      ALLOT_TRY(store_->pushResult(result, 1'000'000));
    }
    return {};
  }
  Status commit(uint64_t updates) {
    for (const uint64_t end = version_ + updates; version_ < end;) {
      ALLOT_TRY(aggregator_->tick());
      // Asked for at the end alone: a batch of 5000 results takes more than one tick to read.
      if (++ticks_ < updates) continue;
      ALLOT_ASSIGN(const auto policy, store_->readPolicy());
      if (!policy) return fail(ErrorCode::kInternal, "the aggregator has published no policy");
      version_ = policy->snapshot.version();
      if (version_ < end) continue;
      ticks_ = 0;
    }
    return {};
  }
  double resumeSeconds() const { return resume_seconds_; }

 private:
  v1::EpisodeResult episode(const PublishedPolicy& policy, const std::vector<double>& logits) {
    v1::EpisodeResult result;
    result.set_result_id("w-" + std::to_string(ticket_));
    result.set_ticket(ticket_);
    result.set_policy_version(policy.snapshot.version());
    result.set_policy_sha256(policy.sha256);
    const auto schedule =
        drawSchedule(softmax(logits), 224, 0, runStreams(run_.experiment.spec()), ticket_);
    *result.mutable_schedule() = {schedule.begin(), schedule.end()};
    result.set_behaviour_log_prob(logProbability(schedule, logits, 0));
    double sum = 0;
    for (const uint32_t question :
         episodeQuestions(runStreams(run_.experiment.spec()), ticket_, 16, 256)) {
      auto* score = result.add_scores();
      score->set_question(question);
      score->set_score((question + ticket_) % 2);
      sum += score->score();
    }
    result.set_reward(sum / 16);
    result.set_seconds(0.1);
    const size_t bytes = result.ByteSizeLong();
    if (bytes + 3 < result_bytes_) result.set_device(std::string(result_bytes_ - bytes - 3, 'x'));
    return result;
  }

  const std::string dir_;
  const std::string run_id_;
  const uint64_t per_update_;
  const size_t result_bytes_;
  const std::string evaluation_;
  const uint64_t wait_ms_;
  std::unique_ptr<Store> store_;
  RunSpec run_;
  std::optional<Aggregator> aggregator_;
  uint64_t ticket_ = 0;
  uint64_t version_ = 0;
  uint64_t ticks_ = 0;  // of this commit(); one update each, at most
  double resume_seconds_ = 0, resume_cpu_seconds_ = 0;
  uint64_t evaluations_ = 0;
};

Status throughput(const std::string& dir, const char* fsync, uint64_t updates, bool resume) {
  ALLOT_ASSIGN(auto redis, startRedis(dir, fsync));
  StoreBench bench(dir, "throughput", 10, kResultBytes);
  ALLOT_TRY(bench.open());
  double pushing = 0, committing = 0;
  // In slices: an inbox is short in life, too.
  for (uint64_t done = 0; done < updates; done += 100) {
    auto start = Clock::now();
    ALLOT_TRY(bench.push(1000));
    pushing += secondsSince(start);
    start = Clock::now();
    ALLOT_TRY(bench.commit(100));
    committing += secondsSince(start);
  }
  const double count = static_cast<double>(updates);
  std::printf("fsync %-7s %6.0f results/s pushed, %5.0f updates/s of 10 results committed\n", fsync,
              10 * count / pushing, count / committing);
  if (resume) {
    ALLOT_TRY(bench.restart());
    std::printf("resume from a history of %llu updates (%.0f MiB): %.2f s\n",
                static_cast<unsigned long long>(updates), count * 10 * kResultBytes / (1 << 20),
                bench.resumeSeconds());
  }
  stopRedis(&redis);
  return {};
}

Status memory(const std::string& dir, uint64_t updates) {
  ALLOT_ASSIGN(auto redis, startRedis(dir, "no"));
  StoreBench bench(dir, "memory", 2, 0);
  ALLOT_TRY(bench.open());
  std::printf("aggregator's resident memory after");
  const uint64_t tenth = std::max<uint64_t>(updates / 10, 500) / 500 * 500;
  for (uint64_t done = 0; done < updates;) {
    for (uint64_t slice = 0; slice < tenth && done < updates; slice += 500, done += 500) {
      ALLOT_TRY(bench.push(1000));
      ALLOT_TRY(bench.commit(500));
    }
    if (done == tenth || done == 5 * tenth || done >= updates) {
      std::printf(" %llu updates: %.1f MiB%s", static_cast<unsigned long long>(done), residentMib(),
                  done >= updates ? "\n" : ",");
      std::fflush(stdout);
    }
  }
  stopRedis(&redis);
  return {};
}

// A long run that is evaluated, beside many workers: what the aggregator costs at its end.
Status evaluated(const std::string& dir, uint64_t updates) {
  ALLOT_ASSIGN(auto redis, startRedis(dir, "no"));
  StoreBench bench(dir, "evaluated", 2, 0, kDefaultGrid);
  ALLOT_TRY(bench.open());
  ALLOT_TRY(bench.evaluate());
  for (uint64_t done = 0; done < updates; done += 25) {
    ALLOT_TRY(bench.push(50));
    ALLOT_TRY(bench.commit(25));
    ALLOT_TRY(bench.evaluate());
  }
  ALLOT_TRY(bench.beat(kWorkers));
  ALLOT_ASSIGN(const double second, bench.cpuOfASecond());
  std::printf(
      "%llu updates evaluated every 25 (%llu evaluations), %zu workers alive: aggregator's "
      "resident memory %.0f MiB, %.1f %% of a core beside its updates\n",
      static_cast<unsigned long long>(updates),
      static_cast<unsigned long long>(bench.evaluations()), kWorkers, residentMib(), 100 * second);
  std::fflush(stdout);
  resetPeak();
  ALLOT_TRY(bench.restart());
  std::printf("resume of that run: %.1f s of a core, at most %.0f MiB\n", bench.resumeCpuSeconds(),
              peakMib());
  stopRedis(&redis);
  return {};
}

using Fakes = std::vector<std::unique_ptr<Store>>;

// Each of the workers pushes one result, eight of them at a time.
Status pushTogether(const Fakes& fakes, const std::vector<v1::EpisodeResult>& results) {
  constexpr size_t kThreads = 8;
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (size_t at = next++; at < results.size(); at = next++) {
        if (!fakes[at % fakes.size()]->pushResult(results[at], 1'000'000)) failed = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failed ? fail(ErrorCode::kInternal, "a result was not pushed") : Status();
}

// A thousand workers, each with a connection of its own, and the aggregator at the same time.
Status crowd(const std::string& dir) {
  constexpr int kRounds = 20;
  constexpr uint64_t kPerUpdate = 100;
  ALLOT_ASSIGN(auto redis, startRedis(dir, "always"));
  StoreBench bench(dir, "crowd", kPerUpdate, kResultBytes, kNothing, 200);
  ALLOT_TRY(bench.open());
  ALLOT_TRY(bench.beat(kWorkers));
  Fakes fakes;
  for (size_t i = 0; i < kWorkers; ++i) {
    ALLOT_ASSIGN(auto fake, openRedisStore("unix:" + dir + "/redis.sock", "crowd"));
    fakes.push_back(std::move(fake));
  }
  double seconds = 0, cpu = 0;
  for (int round = 0; round < kRounds; ++round) {
    ALLOT_ASSIGN(const auto results, bench.results(kWorkers));
    const auto start = Clock::now();
    const double before = cpuSeconds(CLOCK_THREAD_CPUTIME_ID);
    Status pushed;
    std::thread workers([&] { pushed = pushTogether(fakes, results); });
    const Status committed = bench.commit(kWorkers / kPerUpdate);
    workers.join();
    ALLOT_TRY(pushed);
    ALLOT_TRY(committed);
    seconds += secondsSince(start);
    cpu += cpuSeconds(CLOCK_THREAD_CPUTIME_ID) - before;
  }
  std::printf(
      "%zu workers with a connection each, fsync always: %.0f results/s pushed and consumed, "
      "aggregator %.0f %% of a core meanwhile\n",
      kWorkers, kRounds * static_cast<double>(kWorkers) / seconds, 100 * cpu / seconds);
  std::fflush(stdout);
  stopRedis(&redis);
  return {};
}

// Updates of 5 MB each: a resume reads some at a time.
Status large(const std::string& dir) {
  constexpr uint64_t kResults = 5000, kUpdates = 70;
  ALLOT_ASSIGN(auto redis, startRedis(dir, "no"));
  StoreBench bench(dir, "large", kResults, kResultBytes);
  ALLOT_TRY(bench.open());
  resetPeak();
  for (uint64_t done = 0; done < kUpdates; ++done) {
    ALLOT_TRY(bench.push(kResults));
    ALLOT_TRY(bench.commit(1));
  }
  std::printf("updates of %llu results: at most %.0f MiB,",
              static_cast<unsigned long long>(kResults), peakMib());
  resetPeak();
  ALLOT_TRY(bench.restart());
  std::printf(" resume after %llu updates (%.0f MiB): %.1f s of a core, at most %.0f MiB\n",
              static_cast<unsigned long long>(kUpdates),
              static_cast<double>(kUpdates * kResults * kResultBytes) / (1 << 20),
              bench.resumeCpuSeconds(), peakMib());
  stopRedis(&redis);
  return {};
}

Status measure(const std::string& dir, uint64_t many_updates) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  sched_setaffinity(0, sizeof one, &one);  // redis-server inherits it
  std::printf(
      "store: results of %zu bytes, %u layers; redis-server, workers' pushes and aggregator on one "
      "core, unix socket; %.0f MiB are this program's own before it begins\n",
      kResultBytes, kLayers, residentMib());
  std::fflush(stdout);
  ALLOT_TRY(memory(dir + "/memory", many_updates));  // before others leave their memory here
  ALLOT_TRY(evaluated(dir + "/evaluated", many_updates));
  ALLOT_TRY(crowd(dir + "/crowd"));
  ALLOT_TRY(large(dir + "/large"));
  ALLOT_TRY(throughput(dir + "/no", "no", 10'000, true));
  return throughput(dir + "/always", "always", 1'000, false);
}

}  // namespace

int benchStore(int argc, char** argv) {
  CLI::App app("What the store and the aggregator sustain.");
  app.footer("Examples:\n  allot-bench store\n  allot-bench store --updates 10000");
  uint64_t updates = 100'000;
  app.add_option("--updates", updates, "Updates before the aggregator's memory is read [100000]");
  CLI11_PARSE(app, argc, argv);
  spdlog::set_level(spdlog::level::warn);
  char dir[] = "/tmp/allot-bench-XXXXXX";
  if (!mkdtemp(dir)) {
    std::fprintf(stderr, "allot-bench: cannot make a folder in /tmp\n");
    return 74;
  }
  const Status done = measure(dir, updates);
  std::filesystem::remove_all(dir);
  if (done) return 0;
  std::fprintf(stderr, "allot-bench: %s\n", done.error().message.c_str());
  return done.error().exitCode();
}

}  // namespace allot
