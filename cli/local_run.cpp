#include "cli/local_run.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "cli/run_access.h"
#include "cli/run_folder.h"
#include "cli/terminal.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kMaxRestarts = 5;
// A child that lived this long has its restarts counted anew.
constexpr auto kLongLife = seconds(30);
// Free bytes below which a full disk is named as the cause.
constexpr uintmax_t kLeastRoom = 1 << 20;

}  // namespace

LocalRun::LocalRun(LocalRunPlan plan) : plan_(std::move(plan)) {
  socket_ = socketPath(plan_.dir, plan_.run_id);
  const std::string url = "unix:" + socket_;
  redis_.name = "redis";
  redis_.command = redisCommand(plan_.options.redis_server, plan_.dir, socket_);
  aggregator_.name = "aggregator";
  aggregator_.command = {
      siblingProgram("allot-aggregator"),
      {"--redis", url, "--run", plan_.run_id, "--experiment", plan_.options.experiment_file,
       "--dir", plan_.dir, "--lease-ms", "3000", "--target-file", targetFileOf(aggregator_)},
      {}};
  const bool any_port = plan_.options.port < 0;
  aggregator_.command.arguments.insert(
      aggregator_.command.arguments.end(),
      {"--port", std::to_string(any_port ? 9464 : plan_.options.port)});
  if (any_port) aggregator_.command.arguments.push_back("--any-port");
  for (const std::string& set : plan_.options.set) {
    aggregator_.command.arguments.insert(aggregator_.command.arguments.end(), {"--set", set});
  }
  // A fork has it; it is read only until the run is in the store.
  const std::string origin = plan_.dir + "/" + kOriginFile;
  if (std::error_code ignored; fs::exists(origin, ignored)) {
    aggregator_.command.arguments.insert(aggregator_.command.arguments.end(), {"--origin", origin});
  }
  if (plan_.options.synchronous) aggregator_.command.arguments.push_back("--synchronous");
  for (unsigned i = 1; i <= plan_.workers; ++i) {
    Child worker;
    worker.name = "worker-" + std::to_string(i);
    worker.command = {siblingProgram("allot-worker"),
                      {"--redis", url, "--run", plan_.run_id, "--name", worker.name, "--model",
                       plan_.model_folder, "--kv-memory", std::to_string(plan_.kv_mib),
                       "--host-memory", std::to_string(plan_.host_mib), "--listen", "127.0.0.1",
                       "--port", "0", "--target-file", targetFileOf(worker)},
                      {{"OPENBLAS_NUM_THREADS", "1"}, {"OMP_NUM_THREADS", "1"}}};
    for (const auto& [option, path] : {std::pair{"--task-path", &plan_.task_path},
                                       std::pair{"--held-out-path", &plan_.held_out_path}}) {
      if (path->empty()) continue;
      worker.command.arguments.insert(worker.command.arguments.end(), {option, *path});
    }
    if (!plan_.gpus.empty()) {
      worker.command.environment["CUDA_VISIBLE_DEVICES"] = plan_.gpus[i - 1];
    }
    if (plan_.options.rows_of_step > 0) {
      worker.command.arguments.insert(worker.command.arguments.end(),
                                      {"--rows", std::to_string(plan_.options.rows_of_step)});
    }
    if (plan_.options.allow_code_execution) {
      worker.command.arguments.emplace_back("--allow-code-execution");
    }
    workers_.push_back(std::move(worker));
  }
}

LocalRun::~LocalRun() { stop(); }

std::string LocalRun::logOf(const Child& child) const {
  return plan_.dir + "/" + child.name + ".log";
}

std::string LocalRun::targetFileOf(const Child& child) const {
  return plan_.dir + "/" + kTargetsFolder + "/" + child.name + ".json";
}

std::string LocalRun::pageUrl() const { return lastLineOfFile(plan_.dir + "/page.url"); }

Status LocalRun::startStore() {
  std::error_code ignored;
  fs::remove(plan_.dir + "/page.url", ignored);  // of an earlier `allot run`
  fs::remove_all(plan_.dir + "/" + kTargetsFolder, ignored);
  fs::create_directory(plan_.dir + "/" + kTargetsFolder, ignored);
  ALLOT_TRY(waitUntilUnserved(socket_));
  ALLOT_TRY(launch(&redis_));
  ALLOT_ASSIGN(store_, openRedisStore("unix:" + socket_, plan_.run_id));
  return waitForRedis(store_.get(), &*redis_.process, logOf(redis_));
}

Status LocalRun::startAggregator() { return launch(&aggregator_); }

bool LocalRun::aggregatorLives() { return aggregator_.process && !aggregator_.process->poll(); }

Status LocalRun::startWorkers(bool wanted) {
  if (!wanted) workers_.clear();
  for (Child& worker : workers_) ALLOT_TRY(launch(&worker));
  return {};
}

Status LocalRun::launch(Child* child) {
  ALLOT_ASSIGN(child->process, ChildProcess::start(child->command, logOf(*child)));
  child->started = std::chrono::steady_clock::now();
  return {};
}

tl::unexpected<Error> LocalRun::gaveUp(const Child& child, int status) const {
  const std::string ended = child.name + " ended " + std::to_string(kMaxRestarts + 1) +
                            " times in a row, last with status " + std::to_string(status);
  const std::string resume =
      "`allot run --resume --dir " + shellWord(plan_.dir) + "` goes on once ";
  std::error_code error;
  const fs::space_info room = fs::space(plan_.dir, error);
  if (!error && room.available < kLeastRoom) {
    return fail(ErrorCode::kIo, "the disk of " + plan_.dir + " is full: " + ended + "; " + resume +
                                    "there is room");
  }
  return fail(ErrorCode::kInternal,
              ended + ": see " + logOf(child) + "; " + resume + "that is mended");
}

Status LocalRun::revive(Child* child, int status) {
  const auto now = std::chrono::steady_clock::now();
  const auto code = static_cast<ErrorCode>(status);
  if (code == ErrorCode::kUsage || code == ErrorCode::kData || code == ErrorCode::kFenced) {
    const std::string line = lastLineOfFile(logOf(*child));
    const size_t colon = line.starts_with("allot-") ? line.find(": ") : std::string::npos;
    return fail(code, colon == std::string::npos ? line : line.substr(colon + 2));
  }
  if (child->start_after == std::chrono::steady_clock::time_point{}) {
    if (now - child->started >= kLongLife) child->restarts = 0;
    if (child->restarts == kMaxRestarts) return gaveUp(*child, status);
    std::fprintf(stderr, "%s%s ended with status %d and is started again; its log is %s\n",
                 isatty(STDERR_FILENO) ? "\r\033[K" : "", child->name.c_str(), status,
                 logOf(*child).c_str());
    child->start_after = now + milliseconds(200) * (1 << child->restarts);
    ++child->restarts;
  }
  if (now < child->start_after) return {};
  child->start_after = {};
  return launch(child);
}

Result<bool> LocalRun::watch() {
  if (const auto status = redis_.process->poll()) ALLOT_TRY(revive(&redis_, *status));
  if (const auto status = aggregator_.process->poll()) {
    if (*status == 0) return true;
    ALLOT_TRY(revive(&aggregator_, *status));
  }
  size_t alive = 0;
  for (Child& worker : workers_) {
    const auto status = worker.process->poll();
    // A worker ends with status 0 if it was asked to, or if the run is over.
    if (status && *status != 0) ALLOT_TRY(revive(&worker, *status));
    if (!status || *status != 0) ++alive;
  }
  if (alive == 0 && !workers_.empty()) {
    const auto control = store_->readControl();
    if (control && *control && (*control)->desired == Desired::kRunning &&
        !aggregator_.process->poll()) {
      return fail(ErrorCode::kUnavailable,
                  "every worker has been ended and nobody is left to do "
                  "the work: go on with --resume");
    }
  }
  return false;
}

void LocalRun::stopChild(Child* child, milliseconds patience) {
  if (!child->process) return;
  if (!child->process->waitFor(patience)) {
    child->process->signal(SIGKILL);
    child->process->waitFor(seconds(5));
  }
  child->process.reset();
}

void LocalRun::stop() {
  for (Child& worker : workers_) {
    if (worker.process) worker.process->signal(SIGTERM);
  }
  for (Child& worker : workers_) stopChild(&worker, seconds(20));
  if (aggregator_.process) aggregator_.process->signal(SIGTERM);
  stopChild(&aggregator_, seconds(10));
  store_.reset();
  if (redis_.process) redis_.process->signal(SIGTERM);
  stopChild(&redis_, seconds(10));
  unlink(socket_.c_str());
  // Killed processes leave their target files.
  std::error_code ignored;
  fs::remove_all(plan_.dir + "/" + kTargetsFolder, ignored);
}

}  // namespace allot
