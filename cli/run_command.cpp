#include "cli/run_command.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "cli/local_run.h"
#include "cli/process.h"
#include "cli/progress.h"
#include "core/result.h"
#include "core/spec.h"
#include "core/ulid.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

volatile sig_atomic_t interrupts = 0;

uint64_t unixMs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

// An explicit --port must be free; without one the aggregator finds its own.
Status checkPort(int wanted) {
  if (wanted < 0) return {};
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(wanted));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  if (bound) return {};
  return badInput("port " + std::to_string(wanted) +
                  " on 127.0.0.1 is taken: choose another with --port, or leave it out for any");
}

// Has a worker check file, model and questions; nothing is written yet.
Result<json> preflight(const RunOptions& options) {
  std::error_code ignored;
  const fs::path self = fs::read_symlink("/proc/self/exe", ignored);
  Command command{(self.parent_path() / "allot-worker").string(),
                  {"--check", options.experiment_file, "--kv-memory", "64"},
                  {{"OPENBLAS_NUM_THREADS", "1"}, {"OMP_NUM_THREADS", "1"}}};
  for (const std::string& set : options.set) {
    command.arguments.insert(command.arguments.end(), {"--set", set});
  }
  if (!options.model.empty()) {
    command.arguments.insert(command.arguments.end(), {"--model", options.model});
  }
  ALLOT_ASSIGN(const Output output, capture(command));
  if (output.status != 0) {
    std::string line = lastLine(output.err);
    if (line.starts_with("allot-worker: ")) line = line.substr(14);
    if (output.status == 127) line = command.program + " is missing: build it beside allot";
    if (line.empty()) line = "allot-worker ended with status " + std::to_string(output.status);
    return fail(output.status == 65 || output.status == 74 || output.status == 70
                    ? static_cast<ErrorCode>(output.status)
                    : ErrorCode::kUsage,
                line);
  }
  json facts = json::parse(lastLine(output.out), nullptr, false);
  if (facts.is_discarded() || !facts.contains("model_folder")) {
    return fail(ErrorCode::kInternal, "allot-worker --check answered something else than facts");
  }
  return facts;
}

Status writeFile(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  std::ofstream file(temporary, std::ios::trunc);
  file << text;
  file.close();
  std::error_code error;
  if (file) fs::rename(temporary, path, error);
  if (!file || error) {
    return badInput("cannot write " + path + ": is the folder writable and the disk not full?");
  }
  return {};
}

// The run's folder: made, locked against a second `allot run`, and remembered by run.json.
class RunFolder {
 public:
  static Result<RunFolder> open(const RunOptions& options) {
    RunFolder folder;
    std::random_device random;
    const auto number = [&] { return uint64_t{random()} << 32 | random(); };
    folder.run_id_ = makeUlid(unixMs(), number(), number());
    fs::path path = options.dir;
    if (options.dir.empty()) {
      path = options.resume ? fs::path("runs/latest") : fs::path("runs") / folder.run_id_;
    }
    std::error_code error;
    const bool has_run = fs::exists(path / "run.json", error);
    if (options.resume && !has_run) {
      return badInput(path.string() + " holds no run to resume: name its folder with --dir");
    }
    if (!options.resume && has_run) {
      return badInput(path.string() +
                      " holds a run already: add --resume to go on with it, or name another --dir");
    }
    folder.is_new_ = !fs::exists(path, error);
    folder.is_ours_ =
        folder.is_new_ || (fs::is_directory(path, error) && fs::is_empty(path, error));
    fs::create_directories(path, error);
    if (error || access(path.c_str(), W_OK | X_OK) != 0) {
      return badInput("cannot write to " + path.string() + " (" +
                      (error ? error.message() : std::strerror(errno)) +
                      "): name another folder with --dir");
    }
    folder.path_ = fs::canonical(path, error).string();
    ALLOT_TRY(folder.lock());
    if (options.resume) {
      std::ifstream file(folder.path_ + "/run.json");
      const json run = json::parse(file, nullptr, false);
      if (!run.is_object() || !run.value("run_id", json()).is_string() ||
          !isUlid(run["run_id"].get<std::string>())) {
        return badInput(folder.path_ + "/run.json does not name a run: it cannot be resumed");
      }
      folder.run_id_ = run["run_id"].get<std::string>();
    } else {
      ALLOT_TRY(writeFile(
          folder.path_ + "/run.json",
          json{{"run_id", folder.run_id_}, {"experiment_file", options.experiment_file}}.dump(2) +
              "\n"));
    }
    return folder;
  }

  const std::string& path() const { return path_; }
  const std::string& runId() const { return run_id_; }

  // Points <parent>/latest here.
  void linkLatest() const {
    const fs::path here(path_);
    const fs::path temporary = here.parent_path() / (".latest-" + run_id_);
    std::error_code ignored;
    fs::create_directory_symlink(here.filename(), temporary, ignored);
    fs::rename(temporary, here.parent_path() / "latest", ignored);
    if (ignored) fs::remove(temporary, ignored);
  }

  // A run that never began leaves nothing behind.
  void discard() const {
    if (!is_ours_) return;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(path_, ignored)) {
      fs::remove_all(entry.path(), ignored);
    }
    if (is_new_) fs::remove(path_, ignored);
  }

 private:
  Status lock() {
    const int fd = ::open((path_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (fd >= 0) close(fd);
      return badInput(path_ + " is in use by another `allot run`: wait for it or stop it");
    }
    return {};  // held until the process ends
  }

  std::string path_;
  std::string run_id_;
  bool is_new_ = false;
  bool is_ours_ = false;  // new, or empty when we came
};

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

std::string percentCell(const json& row) {
  if (row.is_null()) return "-";
  char text[96];
  std::snprintf(text, sizeof text, "%.3f  [%.3f, %.3f]  n %llu", row.value("accuracy", 0.0),
                row["ci95"][0].get<double>(), row["ci95"][1].get<double>(),
                static_cast<unsigned long long>(row.value("n", uint64_t{0})));
  return text;
}

// The table at the end: one row a total budget, uniform and learned side by side.
void printTable(const json& summary) {
  for (const json& row : summary.value("evaluations", json::array())) {
    if (row["schedule"] == "dense") {
      std::printf("\ndense attention: accuracy %s\n", percentCell(row).c_str());
    }
  }
  std::vector<std::string> methods;
  for (const json& row : summary["evaluations"]) {
    const std::string method = row["method"];
    if (method != "dense" && std::find(methods.begin(), methods.end(), method) == methods.end()) {
      methods.push_back(method);
    }
  }
  for (const std::string& method : methods) {
    std::printf("\n%-24s %-34s %s\n", (method + ", total budget").c_str(),
                "uniform (95 % interval)", "learned (95 % interval)");
    std::map<uint64_t, std::map<std::string, json>> table;
    std::vector<json> others;
    for (const json& row : summary["evaluations"]) {
      if (row["method"] != method) continue;
      const std::string schedule = row["schedule"];
      if (schedule == "uniform" || schedule == "learned") {
        table[row["total_budget"].get<uint64_t>()][schedule] = row;
      } else {
        others.push_back(row);
      }
    }
    for (auto& [budget, cells] : table) {
      std::printf("%-24llu %-34s %s\n", static_cast<unsigned long long>(budget),
                  percentCell(cells["uniform"]).c_str(), percentCell(cells["learned"]).c_str());
    }
    for (const json& row : others) {
      std::printf("%-24s %s\n",
                  (row["schedule"].get<std::string>() + " " + row["total_budget"].dump()).c_str(),
                  percentCell(row).c_str());
    }
  }
  if (!summary.value("learned_schedule", json::array()).empty() &&
      summary.value("updates", 0) > 0) {
    std::printf("\nlearned schedule, samples per layer: %s\n",
                summary["learned_schedule"].dump().c_str());
  }
}

Status finish(const RunFolder& folder) {
  std::ifstream file(folder.path() + "/summary.json");
  const json summary = json::parse(file, nullptr, false);
  if (!summary.is_object() || !summary.contains("evaluations")) {
    return fail(ErrorCode::kInternal, "the run ended without " + folder.path() + "/summary.json");
  }
  printTable(summary);
  std::printf(
      "\n%llu updates, %llu episodes, %s, %.1f episodes/s while learning\nreport: %s/report.html\n",
      static_cast<unsigned long long>(summary.value("updates", uint64_t{0})),
      static_cast<unsigned long long>(summary.value("episodes", uint64_t{0})),
      duration(summary.value("wall_seconds", 0.0)).c_str(),
      summary.value("episodes_per_second", 0.0), folder.path().c_str());
  return {};
}

// Watches until the end; true if it is the run's own.
Result<bool> watchToEnd(LocalRun* run, Progress* progress, const RunFolder& folder) {
  bool linked = false;
  bool shown = false;
  while (interrupts == 0) {
    ALLOT_ASSIGN(const bool ended, run->watch());
    if (const std::string url = run->pageUrl(); !shown && !url.empty()) {
      progress->clear();
      std::printf("page:   %s\n", url.c_str());
      shown = true;
    }
    if (!linked) {
      const auto model = run->store().readModel();
      if (model && *model) {
        folder.linkLatest();
        linked = true;
      }
    }
    if (ended) return true;
    progress->show();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

Status run(const RunOptions& options) {
  ALLOT_ASSIGN(const json facts, preflight(options));
  if (!findProgram(options.redis_server)) {
    return badInput(options.redis_server +
                    " was not found: install redis-server (Debian: apt-get install redis-server) "
                    "or name it with --redis-server");
  }
  ALLOT_TRY(checkPort(options.port));
  std::ifstream file(options.experiment_file);
  std::stringstream text;
  text << file.rdbuf();
  ALLOT_ASSIGN(const v1::Experiment experiment,
               parseExperiment(text.str(), options.experiment_file, options.set));
  if (options.synchronous && !experiment.spec().has_update()) {
    return badInput(
        "--synchronous needs spec.update: an evaluation alone has no policy to wait for");
  }
  ALLOT_ASSIGN(const RunFolder folder, RunFolder::open(options));

  LocalRunPlan plan{.options = options,
                    .dir = folder.path(),
                    .run_id = folder.runId(),
                    .model_folder = facts["model_folder"].get<std::string>()};
  plan.options.experiment_file = fs::absolute(options.experiment_file).string();
  plan.model_folder = fs::absolute(plan.model_folder).string();
  plan.workers =
      options.workers ? options.workers : std::max(1u, std::thread::hardware_concurrency());
  plan.kv_mib =
      options.kv_mib ? options.kv_mib : std::max<uint64_t>(64, availableMib() / 2 / plan.workers);
  const v1::Spec& spec = experiment.spec();
  std::printf("%s %s: %s with %u layers, %.1f M parameters, %u workers\nfolder: %s\n",
              options.resume ? "resuming" : "running", experiment.name().c_str(),
              facts.value("architecture", std::string()).c_str(), facts.value("layers", 0u),
              static_cast<double>(facts.value("parameters", uint64_t{0})) / 1e6, plan.workers,
              folder.path().c_str());
  std::fflush(stdout);

  LocalRun local(plan);
  Status started = local.start();
  Result<bool> ended = false;
  if (started) {
    Progress progress(&local.store(), spec.has_update() ? spec.update().max_updates() : 0,
                      spec.update().episodes_per_update());
    ended = watchToEnd(&local, &progress, folder);
    progress.clear();
  } else {
    ended = tl::unexpected(started.error());
  }
  uint64_t updates = 0;
  bool began = false;
  if (started) {
    if (const auto policy = local.store().readPolicy(); policy && *policy) {
      updates = (*policy)->snapshot.version();
      began = true;
    }
  }
  if (ended && !*ended) std::printf("stopping: workers finish the episode in hand\n");
  std::fflush(stdout);
  local.stop();
  if (!ended) {
    if (!began) folder.discard();
    return tl::unexpected(ended.error());
  }
  if (*ended) return finish(folder);
  std::string again = "allot run " + options.experiment_file;
  for (const std::string& set : options.set) again += " --set " + set;
  if (!options.model.empty()) again += " --model " + options.model;
  std::printf("stopped after update %llu of %u; go on with:\n  %s --dir %s --resume\n",
              static_cast<unsigned long long>(updates), spec.update().max_updates(), again.c_str(),
              folder.path().c_str());
  return {};
}

}  // namespace

int runCommand(const RunOptions& options) {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupts = interrupts + 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const Status done = run(options);
  if (done) return interrupts > 0 ? 130 : 0;
  std::fprintf(stderr, "allot: %s\n", done.error().message.c_str());
  return done.error().exitCode();
}

}  // namespace allot
