#include "cli/run_access.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "cli/terminal.h"
#include "core/evaluation/evaluation_check.h"
#include "core/learning/history_summary.h"
#include "store/archive/archive.h"

namespace allot {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kMostNamed = 20;  // runs in one sentence
// Time for a local server to read its data or to be started again.
constexpr auto kLocalPatience = seconds(20);

// Returns "a, b and 3 more".
std::string namesOf(const std::map<std::string, std::string>& runs) {
  std::string names;
  size_t named = 0;
  for (const auto& [experiment, run_id] : runs) {
    if (named == kMostNamed) {
      return names + " and " + std::to_string(runs.size() - named) + " more";
    }
    names += (named++ == 0 ? "" : ", ") + printable(experiment, 60);
  }
  return names;
}

Result<std::string> chooseRun(const RunChoice& choice) {
  if (!choice.run.empty()) return choice.run;
  if (!choice.experiment.empty()) {
    ALLOT_ASSIGN(const auto found, findRun(choice.redis, choice.experiment));
    if (found) return *found;
  }
  ALLOT_ASSIGN(const auto runs, listRuns(choice.redis));
  if (runs.empty()) return badInput("there is no run in this store");
  if (!choice.experiment.empty()) {
    return badInput("no run of experiment " + choice.experiment + " is in this store: there are " +
                    namesOf(runs));
  }
  if (runs.size() == 1) return runs.begin()->second;
  return badInput("this store holds runs of " + std::to_string(runs.size()) +
                  " experiments, choose one with --experiment: " + namesOf(runs));
}

// Returns the phase of exported files, on which no process works.
Phase phaseOf(Desired desired) {
  if (desired == Desired::kFinished) return Phase::kFinished;
  return desired == Desired::kPaused ? Phase::kPaused : Phase::kStopped;
}

RunSnapshot snapshotOfHead(const RunHead& head) {
  RunSnapshot snapshot;
  snapshot.run = head.image.spec;
  snapshot.model = head.image.model;
  snapshot.experiment = head.image.control.experiment;
  snapshot.desired = head.image.control.desired;
  snapshot.phase = phaseOf(snapshot.desired);
  if (head.image.state) snapshot.state = *head.image.state;
  snapshot.refused = head.refused;
  snapshot.open_units = head.image.open_units.size();
  snapshot.inbox_entries = head.waiting_results;
  snapshot.run_id = head.run_id;
  return snapshot;
}

Status readAllUpdates(RunSource* source,
                      const std::function<void(const v1::IterationRecord&)>& each,
                      RunSnapshot* snapshot) {
  HistorySample history;
  while (true) {
    ALLOT_ASSIGN(auto records, source->nextRecords());
    if (records.empty()) break;
    for (v1::IterationRecord& record : records) {
      if (each) each(record);
      history.add(std::move(record));
    }
  }
  snapshot->history = history.records();
  snapshot->first = firstMeans(snapshot->history);
  snapshot->last = lastMeans(snapshot->history);
  if (!snapshot->history.empty()) {
    snapshot->last_update_unix_ms = snapshot->history.back().committed_unix_ms();
  }
  return {};
}

Result<uint64_t> readAllEvaluations(RunSource* source, const RunHead& head, RunSnapshot* snapshot) {
  EvaluationTable table(snapshot->run.experiment);
  FidelityTable fidelity(snapshot->run.experiment.spec());
  uint64_t last = 0;
  ALLOT_TRY(eachEvaluation(source, head, [&](const v1::EvaluationResult& result) {
    table.add(result);
    fidelity.add(result);
    snapshot->evaluation_seconds += result.seconds();
    last = std::max(last, result.finished_unix_ms());
  }));
  snapshot->cells = table.cells();
  snapshot->fidelity = fidelity.summaries();
  return last;
}

}  // namespace

Result<RunAtVersion> runAtVersion(const std::string& place, const std::string& text) {
  const size_t at = text.rfind('@');
  std::error_code ignored;
  if (at == std::string::npos || std::filesystem::is_directory(text, ignored)) return {{text, {}}};
  const std::string digits = text.substr(at + 1);
  if (digits.empty() || digits.size() > 18 ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    return badInput(place + ": write RUN@VERSION, with a number for VERSION, or RUN");
  }
  return {{text.substr(0, at), std::stoull(digits)}};
}

Status waitForRedis(RunReader* store, ChildProcess* server, const std::string& log) {
  const auto end = std::chrono::steady_clock::now() + seconds(60);
  while (true) {
    const auto answer = store->readSpec();
    if (answer) return {};
    if (answer.error().code != ErrorCode::kUnavailable) return tl::unexpected(answer.error());
    if (const auto status = server->poll()) {
      return badInput("redis-server ended with status " + std::to_string(*status) + ": " +
                      printable(lastLineOfFile(log)));
    }
    if (std::chrono::steady_clock::now() > end) {
      return fail(ErrorCode::kUnavailable, "redis-server did not answer within 60 s: see " + log);
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
}

Result<LocalRedis> LocalRedis::start(const std::string& program, const std::string& folder,
                                     const std::string& run_id) {
  ALLOT_TRY(checkRedisProgram(program));
  ALLOT_TRY(checkData(folder));
  const std::string socket = socketPath(folder, run_id);
  const std::string log = folder + "/redis.log";
  ALLOT_TRY(waitUntilUnserved(socket));
  ALLOT_ASSIGN(ChildProcess process,
               ChildProcess::start(redisCommand(program, folder, socket), log));
  ALLOT_ASSIGN(const auto store, openRedisStore("unix:" + socket, run_id));
  LocalRedis redis(socket, std::move(process));
  ALLOT_TRY(waitForRedis(store.get(), &*redis.process_, log));
  return redis;
}

LocalRedis::~LocalRedis() {
  if (!process_ || process_->pid() <= 0) return;  // moved from
  process_->signal(SIGTERM);
  if (!process_->waitFor(seconds(10))) process_->signal(SIGKILL);
  process_.reset();
  unlink(socket_.c_str());
}

Result<RunAccess> RunAccess::open(const RunChoice& choice, StoreAccount account) {
  const bool elsewhere = !choice.redis.empty() || !choice.context.empty();
  if (elsewhere && !choice.folder.empty()) {
    return badInput("name either a folder or a store (--redis URL, --context CTX), not both");
  }
  if (!choice.redis.empty() && !choice.context.empty()) {
    return badInput("name either --redis URL or --context CTX, not both");
  }
  if (choice.context.empty() && !choice.name_space.empty()) {
    return badInput("--namespace is a cluster's: add --context CTX (current: kubectl's own)");
  }
  if (!choice.context.empty()) return openCluster(choice, account);
  if (choice.redis.empty()) {
    if (!choice.run.empty() || !choice.experiment.empty()) {
      return badInput(
          "--run and --experiment choose a run in a store: add --redis URL or --context CTX");
    }
    return openFolder(choice);
  }
  RunAccess access;
  ALLOT_TRY(access.openRemote(choice));
  access.remote_ = "--redis " + shellWord(choice.redis) + " --run " + access.run_id_;
  return access;
}

Result<RunAccess> RunAccess::openCluster(const RunChoice& choice, StoreAccount account) {
  RunAccess access;
  ALLOT_ASSIGN(ClusterStore cluster,
               ClusterStore::open({choice.context, choice.name_space, choice.experiment}, account));
  access.cluster_.emplace(std::move(cluster));
  RunChoice there = choice;
  there.redis = access.cluster_->url();
  ALLOT_TRY(access.explained(access.openRemote(there)));
  access.remote_ = "--context " + shellWord(choice.context) + " --experiment " + choice.experiment;
  if (!choice.name_space.empty()) access.remote_ += " --namespace " + choice.name_space;
  if (!choice.run.empty()) access.remote_ += " --run " + shellWord(choice.run);
  return access;
}

Status RunAccess::openRemote(const RunChoice& choice) {
  kind_ = Kind::kRemote;
  ALLOT_ASSIGN(run_id_, chooseRun(choice));
  ALLOT_ASSIGN(store_, openRedisStore(choice.redis, run_id_));
  source_ = std::make_unique<StoreSource>(store_.get(), run_id_);
  return {};
}

Status RunAccess::explained(Status outcome) {
  return cluster_ ? cluster_->explained(std::move(outcome)) : outcome;
}

Result<RunAccess> RunAccess::openFolder(const RunChoice& choice) {
  RunAccess access;
  ALLOT_ASSIGN(access.folder_, existingFolder(choice.folder.empty() ? kLatestRun : choice.folder));
  if (!holdsRun(access.folder_)) {
    if (holdsExport(access.folder_)) return openFiles(access.folder_);
    return badInput(access.folder_ + " holds no run");
  }
  // Another person's folder on a shared disk, say: redis-server must write to its data.
  if (::access(access.folder_.c_str(), W_OK | X_OK) != 0 && holdsExport(access.folder_)) {
    std::fprintf(stderr, "%s cannot be written to: this is what its exported files say\n",
                 printable(access.folder_).c_str());
    return openFiles(access.folder_);
  }
  ALLOT_ASSIGN(const RunNote note, readRunNote(access.folder_));
  access.run_id_ = note.run_id;
  const auto end = std::chrono::steady_clock::now() + kLocalPatience;
  while (true) {
    ALLOT_ASSIGN(const bool open, access.tryOpen(choice));
    if (open) break;
    if (access.kind_ == Kind::kFiles) return openFiles(access.folder_);
    if (std::chrono::steady_clock::now() > end) return access.folderIsBusy();
    std::this_thread::sleep_for(milliseconds(50));
  }
  access.source_ = std::make_unique<StoreSource>(access.store_.get(), access.run_id_);
  return access;
}

tl::unexpected<Error> RunAccess::folderIsBusy() const {
  if (FolderLock::holderOf(folder_) == FolderLock::Holder::kCommand) {
    return fail(ErrorCode::kUnavailable,
                "another allot command is at work in " + folder_ + ": wait for it");
  }
  return fail(ErrorCode::kUnavailable, "`allot run` is at work in " + folder_ +
                                           ", but its redis-server does not answer: see " +
                                           folder_ + "/redis.log");
}

Result<bool> RunAccess::tryOpen(const RunChoice& choice) {
  ALLOT_ASSIGN(lock_, FolderLock::tryLock(folder_, FolderLock::Holder::kCommand));
  if (lock_) {
    if (!holdsData(folder_)) {
      lock_.reset();
      if (!holdsExport(folder_)) return badInput(folder_ + " holds a run that has not begun");
      kind_ = Kind::kFiles;
      return false;
    }
    kind_ = Kind::kEnded;
    ALLOT_ASSIGN(LocalRedis server, LocalRedis::start(choice.redis_server, folder_, run_id_));
    server_.emplace(std::move(server));
    ALLOT_ASSIGN(store_, openRedisStore("unix:" + server_->socket(), run_id_));
    return true;
  }
  kind_ = Kind::kLive;
  // Another command releases the folder soon, and ends its server.
  if (FolderLock::holderOf(folder_) == FolderLock::Holder::kCommand) return false;
  ALLOT_ASSIGN(store_, openRedisStore("unix:" + socketPath(folder_, run_id_), run_id_));
  return store_->readSpec().has_value();
}

Result<RunAccess> RunAccess::openFiles(const std::string& folder) {
  RunAccess access;
  access.kind_ = Kind::kFiles;
  access.folder_ = folder;
  ALLOT_ASSIGN(access.source_, ArchiveReader::open(folder));
  return access;
}

Result<Store*> RunAccess::needStore() {
  if (store_) return store_.get();
  return badInput(folder_ + " holds exported files: make a run of them first with `allot import " +
                  folder_ + " --dir NEWDIR`");
}

std::string RunAccess::arguments() const { return remote_.empty() ? shellWord(folder_) : remote_; }

std::string RunAccess::resumeCommand() const {
  return kind_ == Kind::kEnded ? "allot run --resume --dir " + shellWord(folder_) : "";
}

Status eachEvaluation(RunSource* source, const RunHead& head,
                      const std::function<void(const v1::EvaluationResult&)>& take) {
  while (true) {
    ALLOT_ASSIGN(const auto results, source->nextEvaluations());
    if (results.empty()) return {};
    for (const v1::EvaluationResult& result : results) {
      if (!whyImpossible(result, head.bounds())) take(result);
    }
  }
}

Result<ReadRun> readRun(RunSource* source,
                        const std::function<void(const v1::IterationRecord&)>& each) {
  ALLOT_ASSIGN(const RunHead head, source->readHead());
  ReadRun read{snapshotOfHead(head)};
  ALLOT_TRY(readAllUpdates(source, each, &read.snapshot));
  ALLOT_ASSIGN(const uint64_t evaluated, readAllEvaluations(source, head, &read.snapshot));
  read.last_unix_ms = std::max(evaluated, read.snapshot.last_update_unix_ms);
  return read;
}

}  // namespace allot
