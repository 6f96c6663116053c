#include "cli/run_status.h"

#include <algorithm>
#include <map>

#include "cli/terminal.h"
#include "core/evaluation/evaluation_check.h"
#include "core/evaluation/evaluation_table.h"
#include "core/learning/policy_gradient.h"
#include "core/spec/choices.h"
#include "core/spec/spec_keys.h"
#include "core/worker_beats.h"
#include "store/archive/run_source.h"
#include "store/store_room.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr size_t kWindow = 10;        // updates that a mean covers
constexpr size_t kRefusalsShown = 5;  // at most
// A leader that has said nothing for so long is stuck or cut off.
constexpr uint64_t kSilentMs = 15'000;

UpdateMeans meansOf(const std::vector<v1::IterationRecord>& records) {
  UpdateMeans means;
  means.updates = records.size();
  if (records.empty()) return means;
  for (const v1::IterationRecord& record : records) {
    means.reward += record.mean_reward();
    means.lag += record.mean_lag_updates();
    means.effective_sample_size_ratio += record.effective_sample_size_ratio();
    means.step_kl_nats += record.step_kl_nats();
  }
  const auto count = static_cast<double>(records.size());
  for (double* sum :
       {&means.reward, &means.lag, &means.effective_sample_size_ratio, &means.step_kl_nats}) {
    *sum /= count;
  }
  return means;
}

// Files have to be read from the beginning to the end.
Status readFileMeans(RunSource* source, RunStatus* status) {
  std::vector<v1::IterationRecord> first, last;
  LongTask task("reading update");
  while (true) {
    ALLOT_ASSIGN(auto records, source->nextRecords());
    if (records.empty()) break;
    task.show(records.back().version(), status->head.version());
    for (v1::IterationRecord& record : records) {
      dropResults(&record);
      if (first.size() < kWindow) first.push_back(record);
      last.push_back(std::move(record));
    }
    if (last.size() > kWindow) last.erase(last.begin(), last.end() - kWindow);
  }
  status->first = meansOf(first);
  status->last = meansOf(last);
  if (!last.empty()) status->last_update_unix_ms = last.back().committed_unix_ms();
  return {};
}

Status readStoreMeans(RunReader* store, RunStatus* status) {
  const uint64_t version = status->head.version();
  const uint64_t shown = std::min<uint64_t>(version, kWindow);
  ALLOT_ASSIGN(const auto first, readUpdates(store, 0, shown > 0 ? shown : 1));
  ALLOT_ASSIGN(const auto last, readUpdates(store, version - shown, kWindow));
  status->first = meansOf(first);
  status->last = meansOf(last);
  if (!last.empty()) status->last_update_unix_ms = last.back().committed_unix_ms();
  return {};
}

std::string noLeader(const RunStatus& status) {
  std::string why = "no aggregator leads";
  if (status.aggregator) {
    why += " (last: " + printable(status.aggregator->holder(), 60) + ", " +
           ago(status.aggregator->unix_ms(), status.now_unix_ms) + ")";
  }
  return why;
}

Tone toneOf(const std::string& state) {
  if (state == "running" || state == "evaluating" || state == "finished") return Tone::kGood;
  return Tone::kAttention;
}

json meansJson(const UpdateMeans& means) {
  if (means.updates == 0) return nullptr;
  return {{"updates", means.updates},
          {"reward", means.reward},
          {"lag_updates", means.lag},
          {"effective_sample_size_ratio", means.effective_sample_size_ratio},
          {"step_kl_nats", means.step_kl_nats}};
}

// "0: 900, 1: 200, 3-4: 2", classes without results left out.
std::string lagText(const v1::AggregatorState& state) {
  std::string text;
  for (int i = 0; i < state.lag_counts_size() && i < static_cast<int>(kLagBuckets); ++i) {
    if (state.lag_counts(i) == 0) continue;
    text += (text.empty() ? "" : ", ") + lagBucketLabel(static_cast<size_t>(i)) + ": " +
            std::to_string(state.lag_counts(i));
  }
  return text;
}

std::string workersText(const RunStatus& status, bool colour) {
  if (status.workers.empty()) return "workers: none\n";
  TextTable table({"worker", "state", "version", "episodes", "held", "seen", "last error"});
  for (const v1::WorkerBeat& worker : status.workers) {
    table.add({printable(worker.worker(), 40), printable(stateText(worker), 30),
               std::to_string(worker.policy_version()), std::to_string(worker.episodes()),
               std::to_string(worker.held_results()),
               ago(worker.seen_unix_ms(), status.now_unix_ms),
               printable(worker.last_error(), 100)});
  }
  const size_t alive = aliveWorkers(status.workers);
  const size_t ended = status.workers.size() - alive;
  return "workers: " + std::to_string(alive) +
         (ended > 0 ? " alive, " + std::to_string(ended) + " ended with an error" : "") + "\n" +
         table.text(colour);
}

// Workers of another build than the aggregator's, as in the middle of an upgrade; "" if there are
// none. That stops nothing: what a worker sends is checked whatever made it, keys that it does not
// know have the value that means what it does (core/spec/spec_schema.h), and the two builds' scores
// are of the same task. Their floating-point sums may differ in the last bits, so that a
// synchronous run does not come out the same twice.
std::string otherBuilds(const RunStatus& status) {
  if (!status.aggregator || status.aggregator->build().empty()) return "";
  const std::string& ours = status.aggregator->build();
  constexpr size_t kMostNamed = 5;
  std::map<std::string, std::vector<std::string>> others;  // build -> workers
  for (const v1::WorkerBeat& worker : status.workers) {
    if (worker.build() == ours || !isAlive(worker)) continue;
    others[worker.build()].push_back(printable(worker.worker(), 40));
  }
  std::string text;
  for (auto& [build, workers] : others) {
    const size_t more = workers.size() - std::min(workers.size(), kMostNamed);
    workers.resize(workers.size() - more);
    if (more > 0) workers.push_back(std::to_string(more) + " more");
    text += (text.empty() ? "" : "; ") + joined(workers) + ": " +
            (build.empty() ? "an earlier one" : printable(build, 100));
  }
  return text.empty() ? "" : "the aggregator is " + printable(ours, 100) + "; " + text;
}

std::string buildsText(const RunStatus& status, bool colour) {
  std::string text = otherBuilds(status);
  if (text.empty()) return "";
  if (status.head.image.spec.synchronous) {
    text += " (a synchronous run has the same bits again only with one build)";
  }
  return toned("builds:  " + text, Tone::kAttention, colour) + "\n";
}

std::string refusedText(const RunStatus& status) {
  std::string text;
  for (const auto& [kind, count] : status.head.refused) {
    if (count > 0) text += (text.empty() ? "" : ", ") + kind + " " + std::to_string(count);
  }
  if (text.empty()) return "";
  text = "refused: " + text + "\n";
  for (const Refusal& refusal : status.refusals) {
    text += "  " + printable(refusal.result_id, 60) + " (" + printable(refusal.kind, 20) +
            "): " + printable(refusal.reason) + "\n";
  }
  return text;
}

std::string storeText(const RunStatus& status, bool colour) {
  if (!status.aggregator) return "";
  const StoreFill fill{status.aggregator->store_used_bytes(),
                       status.aggregator->store_limit_bytes()};
  std::optional<uint64_t> updates;
  if (status.aggregator->has_updates_until_full()) {
    updates = status.aggregator->updates_until_full();
  }
  const std::string filled = fillText(fill, updates);
  if (filled.empty()) return "";
  const std::string small = whyTooSmall(
      updates, status.maxUpdates() - std::min(status.maxUpdates(), status.head.version()));
  return "store:   " + filled + "\n" +
         (small.empty() ? "" : toned(small, Tone::kAttention, colour) + "\n");
}

std::string learningText(const RunStatus& status) {
  if (status.first.updates == 0) return "";
  std::string text =
      formatted("reward:  %.3f (first %.3f), last update %s\n", status.last.reward,
                status.first.reward, ago(status.last_update_unix_ms, status.now_unix_ms).c_str());
  text += formatted("lag:     mean %.2f updates; episodes by lag: %s\n", status.last.lag,
                    lagText(*status.head.image.state).c_str());
  text += formatted("steps:   effective sample size %.2f, KL %.2g nats (last %s)\n",
                    status.last.effective_sample_size_ratio, status.last.step_kl_nats,
                    counted(status.last.updates, "update").c_str());
  return text;
}

}  // namespace

uint64_t RunStatus::maxUpdates() const {
  const v1::Spec& spec = head.image.control.experiment.spec();
  // An edited file may ask for fewer than there are: none is taken back.
  return spec.has_update() ? std::max<uint64_t>(spec.update().max_updates(), head.version()) : 0;
}

std::string stateOf(const RunStatus& status) {
  const Desired desired = status.head.image.control.desired;
  if (desired != Desired::kRunning) return std::string(wordOf(desired));
  if (status.kind == RunAccess::Kind::kFiles) return "exported";
  if (status.kind == RunAccess::Kind::kEnded) return "interrupted";
  if (!status.lease.held) return "waiting";
  return status.aggregator ? printable(status.aggregator->phase(), 20) : "starting";
}

Result<bool> hasBegun(RunAccess* access) {
  Store* store = access->store();
  if (store == nullptr || access->kind() != RunAccess::Kind::kLive) return true;
  ALLOT_ASSIGN(const auto spec, store->readSpec());
  return spec.has_value();
}

Result<RunStatus> readRunState(RunAccess* access) {
  RunStatus status;
  status.kind = access->kind();
  status.resume_command = access->resumeCommand();
  status.arguments = access->arguments();
  ALLOT_ASSIGN(status.head, access->source().readHead());
  if (Store* store = access->store()) {
    ALLOT_ASSIGN(status.aggregator, store->readStatus());
    ALLOT_ASSIGN(status.lease, store->readLease());
    ALLOT_ASSIGN(status.workers, store->listWorkers());
  }
  status.now_unix_ms = unixMs();
  return status;
}

Result<RunStatus> readRunStatus(RunAccess* access) {
  ALLOT_ASSIGN(RunStatus status, readRunState(access));
  Store* store = access->store();
  if (store == nullptr) {
    ALLOT_TRY(readFileMeans(&access->source(), &status));
  } else {
    ALLOT_TRY(readStoreMeans(store, &status));
    ALLOT_ASSIGN(status.refusals, store->readRefusals(kRefusalsShown));
  }
  status.now_unix_ms = unixMs();
  return status;
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

Result<std::optional<double>> learnedAccuracy(RunSource* source, const RunHead& head) {
  const v1::Experiment& experiment = head.image.spec.experiment;
  EvaluationTable table(experiment);
  ALLOT_TRY(eachEvaluation(source, head, [&](const auto& result) { table.add(result); }));
  const double accuracy = table.learnedAccuracy(methodsName(experiment.spec().attention()),
                                                experiment.spec().policy().total_budget());
  return accuracy < 0 ? std::nullopt : std::optional(accuracy);
}

std::string whyNotProgressing(const RunStatus& status) {
  const Desired desired = status.head.image.control.desired;
  if (desired == Desired::kFinished || status.kind == RunAccess::Kind::kFiles) return "";
  if (status.kind == RunAccess::Kind::kEnded) {
    const std::string why = desired == Desired::kRunning  ? "nobody works on it"
                            : desired == Desired::kPaused ? "it is paused and nobody works on it"
                                                          : "it was stopped";
    return why + ": " + status.resume_command;
  }
  const std::string resume =
      std::string("allot resume") + (status.arguments.empty() ? "" : " ") + status.arguments;
  if (desired == Desired::kPaused) return "it is paused: " + resume;
  if (desired == Desired::kStopped) return "it was stopped: " + resume;
  if (!status.lease.held) return noLeader(status);
  if (status.aggregator && status.now_unix_ms > status.aggregator->unix_ms() + kSilentMs) {
    return "the aggregator " + printable(status.aggregator->holder(), 60) + " was last heard of " +
           ago(status.aggregator->unix_ms(), status.now_unix_ms);
  }
  if (const std::string why = whyNobodyCanWork(status.workers); !why.empty()) {
    return printable(why, kLongestMessage);
  }
  return status.aggregator ? printable(status.aggregator->waiting()) : "";
}

json statusJson(const RunStatus& status) {
  const RunHead& head = status.head;
  const v1::AggregatorState state = head.image.state.value_or(v1::AggregatorState());
  json lag = json::array();  // in the order of the lags
  for (int i = 0; i < state.lag_counts_size() && i < static_cast<int>(kLagBuckets); ++i) {
    lag.push_back(
        {{"lag", lagBucketLabel(static_cast<size_t>(i))}, {"episodes", state.lag_counts(i)}});
  }
  json workers = json::array();
  for (const v1::WorkerBeat& worker : status.workers) {
    workers.push_back({{"worker", worker.worker()},
                       {"state", worker.state()},
                       {"device", worker.device()},
                       {"policy_version", worker.policy_version()},
                       {"episodes", worker.episodes()},
                       {"held_results", worker.held_results()},
                       {"loaded_bytes", worker.loaded_bytes()},
                       {"total_bytes", worker.total_bytes()},
                       {"seen_unix_ms", worker.seen_unix_ms()},
                       {"build", worker.build()},
                       {"last_error", worker.last_error()}});
  }
  json refusals = json::array();
  for (const Refusal& refusal : status.refusals) {
    refusals.push_back(
        {{"result_id", refusal.result_id}, {"kind", refusal.kind}, {"reason", refusal.reason}});
  }
  const auto& told = status.aggregator;
  return {{"experiment", head.image.spec.experiment.name()},
          {"run_id", head.run_id},
          {"state", stateOf(status)},
          {"desired", wordOf(head.image.control.desired)},
          {"not_progressing", whyNotProgressing(status)},
          {"resume_command", status.resume_command},
          {"synchronous", head.image.spec.synchronous},
          {"version", head.version()},
          {"max_updates", status.maxUpdates()},
          {"episodes", state.episodes()},
          {"first", meansJson(status.first)},
          {"last", meansJson(status.last)},
          {"last_update_unix_ms", status.last_update_unix_ms},
          {"lag_counts", lag},
          {"waiting_results", head.waiting_results},
          {"open_units", head.image.open_units.size()},
          {"workers", workers},
          {"refused", head.refused},
          {"refusals", refusals},
          {"leader", status.lease.held ? json(status.lease.holder) : json()},
          {"build", told ? told->build() : ""},
          {"other_builds", otherBuilds(status)},
          {"page", told ? told->page() : ""},
          {"last_error", told ? told->last_error() : ""},
          {"edit_refused", told ? told->edit_refused() : ""},
          {"store_used_bytes", told ? told->store_used_bytes() : 0},
          {"store_limit_bytes", told ? told->store_limit_bytes() : 0},
          {"updates_until_full",
           told && told->has_updates_until_full() ? json(told->updates_until_full()) : json()},
          {"last_error_unix_ms", told ? told->last_error_unix_ms() : 0},
          {"now_unix_ms", status.now_unix_ms}};
}

std::string statusText(const RunStatus& status, bool colour) {
  const RunHead& head = status.head;
  const std::string state = stateOf(status);
  std::string text = toned(printable(head.image.spec.experiment.name()), Tone::kBold, colour) +
                     "  run " + head.run_id + "  " + toned(state, toneOf(state), colour) + "\n";
  if (const std::string why = whyNotProgressing(status); !why.empty()) {
    text += toned("not progressing: " + why, Tone::kAttention, colour) + "\n";
  }
  if (const uint64_t most = status.maxUpdates(); most > 0) {
    const uint64_t episodes = head.image.state ? head.image.state->episodes() : 0;
    text += formatted(
        "updates: %llu of %llu, %llu episodes\n", static_cast<unsigned long long>(head.version()),
        static_cast<unsigned long long>(most), static_cast<unsigned long long>(episodes));
  }
  text += learningText(status);
  text += "waits:   " + counted(head.waiting_results, "result") + " in the inbox, " +
          counted(head.image.open_units.size(), "evaluation unit") + " to do\n";
  if (status.kind == RunAccess::Kind::kLive || status.kind == RunAccess::Kind::kRemote) {
    text += workersText(status, colour) + buildsText(status, colour);
  }
  text += storeText(status, colour);
  text += refusedText(status);
  if (const auto& told = status.aggregator; told && !told->edit_refused().empty()) {
    text += toned("edit refused: " + printable(told->edit_refused(), kLongestMessage),
                  Tone::kAttention, colour) +
            "\n";
  }
  if (const auto& told = status.aggregator; told && !told->last_error().empty()) {
    text += toned("last error: " + printable(told->last_error()), Tone::kBad, colour) + " (" +
            ago(told->last_error_unix_ms(), status.now_unix_ms) + ")\n";
  }
  const bool live = status.kind == RunAccess::Kind::kLive;
  if (live && status.aggregator && !status.aggregator->page().empty()) {
    text += "page:    " + printable(status.aggregator->page()) + "\n";
  }
  return text;
}

}  // namespace allot
