#include "aggregator/page/status_document.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "aggregator/page/measurements.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/learning/update.h"
#include "core/printable.h"
#include "core/refusal_kind.h"
#include "core/spec/choices.h"
#include "core/spec/spec_rules.h"
#include "core/spec/spec_yaml.h"
#include "core/worker_beats.h"

namespace allot {
namespace {

using nlohmann::json;
using From = StatusReading::From;

constexpr size_t kLongestName = 100;
constexpr size_t kLongestSentence = 1000;
constexpr size_t kLongestWorkerError = 300;
// A leader whose status is older is stuck or cut off.
constexpr uint64_t kSilentMs = 15'000;

json fixedDigits(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

json smallNumber(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2e", value);
  return text;
}

json orNull(uint64_t unix_ms) { return unix_ms > 0 ? json(unix_ms) : json(); }

json statusMeans(const UpdateMeans& means) {
  if (means.updates == 0) return nullptr;
  return {{"updates", means.updates},
          {"reward", fixedDigits(means.reward, 4)},
          {"lag_updates", fixedDigits(means.lag, 2)},
          {"effective_sample_size_ratio", fixedDigits(means.effective_sample_size_ratio, 3)},
          {"step_kl_nats", smallNumber(means.step_kl_nats)}};
}

std::string noLeader(const RunSnapshot& snapshot, uint64_t now) {
  std::string why = "no aggregator leads";
  if (snapshot.told) {
    why += " (last: " + printable(snapshot.told->holder(), 60) + ", " +
           ago(snapshot.told->unix_ms(), now) + ")";
  }
  return why;
}

json statusWorker(const v1::WorkerBeat& worker) {
  return {{"worker", printable(worker.worker(), kLongestName)},
          {"state", printable(worker.state(), 30)},
          {"device", printable(worker.device(), kLongestName)},
          {"policy_version", worker.policy_version()},
          {"episodes", worker.episodes()},
          {"held_results", worker.held_results()},
          {"loaded_bytes", worker.loaded_bytes()},
          {"total_bytes", worker.total_bytes()},
          {"seen_unix_ms", worker.seen_unix_ms()},
          {"build", printable(worker.build(), kLongestName)},
          {"last_error", printable(worker.last_error(), kLongestWorkerError)}};
}

// Lists at most kStatusWorkers, those that ended with an error first.
json statusWorkers(const std::vector<v1::WorkerBeat>& workers) {
  std::vector<const v1::WorkerBeat*> shown;
  for (const v1::WorkerBeat& worker : workers) shown.push_back(&worker);
  if (shown.size() > kStatusWorkers) {
    std::stable_partition(shown.begin(), shown.end(),
                          [](const v1::WorkerBeat* worker) { return !isAlive(*worker); });
    shown.resize(kStatusWorkers);
  }
  json rows = json::array();
  for (const v1::WorkerBeat* worker : shown) rows.push_back(statusWorker(*worker));
  return rows;
}

json workerCounts(const std::vector<v1::WorkerBeat>& workers) {
  json by_state = json::object();
  for (const WorkerState state : kAllOf<WorkerState>) by_state[std::string(wordOf(state))] = 0;
  by_state["other"] = 0;
  for (const v1::WorkerBeat& worker : workers) {
    const auto state = stateOf(worker);
    json& count = by_state[state ? std::string(wordOf(*state)) : "other"];
    count = count.get<uint64_t>() + 1;
  }
  return {{"all", workers.size()}, {"alive", aliveWorkers(workers)}, {"by_state", by_state}};
}

json refusedView(const std::map<std::string, uint64_t>& refused) {
  json counts = json::object();
  for (const char* kind : kRefusalKinds) {
    const auto found = refused.find(kind);
    counts[kind] = found == refused.end() ? 0 : found->second;
  }
  return counts;
}

json refusalsView(const std::vector<Refusal>& refusals) {
  json rows = json::array();
  for (size_t i = 0; i < std::min(refusals.size(), kStatusRefusals); ++i) {
    rows.push_back({{"result_id", printable(refusals[i].result_id, kLongestName)},
                    {"kind", printable(refusals[i].kind, 30)},
                    {"reason", printable(refusals[i].reason, kLongestSentence)}});
  }
  return rows;
}

// Returns the headline's learned point or, without one, the most accurate point of `decode` at the
// total budget.
std::optional<size_t> bestPlace(const std::vector<CurvePoint>& points,
                                const std::vector<CurveLine>& lines, const HeadlinePoints& headline,
                                uint64_t total_budget, const std::string& decode) {
  if (headline.learned) return headline.learned;
  std::optional<size_t> best;
  for (const CurveLine& line : lines) {
    if (line.method != decode || line.schedule == kDenseSchedule) continue;
    for (const size_t place : line.points) {
      if (points[place].total_budget != total_budget) continue;
      if (!best || points[place].accuracy > points[*best].accuracy) best = place;
    }
  }
  return best;
}

json bestView(const RunSnapshot& snapshot) {
  const v1::Spec& spec = snapshot.experiment.spec();
  const std::vector<CurvePoint> points = evaluationPoints(snapshot);
  const std::vector<CurveLine> lines = newestCompleteLines(points);
  const uint64_t total_budget = spec.policy().total_budget();
  const std::string decode = methodsName(spec.attention());
  const HeadlinePoints headline = headlinePoints(points, lines, total_budget, decode);
  const auto place = bestPlace(points, lines, headline, total_budget, decode);
  if (!place) return nullptr;
  const CurvePoint& best = points[*place];
  const auto accuracyOf = [&](const std::optional<size_t>& at) {
    return at ? fixedDigits(points[*at].accuracy, 4) : json();
  };
  return {{"schedule", printable(best.schedule, kLongestName)},
          {"method", printable(best.method, kLongestName)},
          {"total_budget", best.total_budget},
          {"version", best.version},
          {"questions", best.n},
          {"accuracy", fixedDigits(best.accuracy, 4)},
          {"ci95", {fixedDigits(best.low, 4), fixedDigits(best.high, 4)}},
          {"interval", best.interval},
          {"uniform", accuracyOf(headline.uniform)},
          {"dense", accuracyOf(headline.dense)}};
}

// Lists at most kStatusWorkers, those that lie first.
json auditsView(const v1::AuditStatus& audits) {
  std::vector<const v1::AuditedWorker*> shown;
  for (const v1::AuditedWorker& worker : audits.workers()) shown.push_back(&worker);
  std::stable_partition(shown.begin(), shown.end(),
                        [](const auto* worker) { return !worker->lies().empty(); });
  shown.resize(std::min(shown.size(), kStatusWorkers));
  json workers = json::array();
  for (const v1::AuditedWorker* worker : shown) {
    const double answers = std::max(1.0, static_cast<double>(worker->answers()));
    workers.push_back({{"worker", printable(worker->worker(), kLongestName)},
                       {"lies", printable(worker->lies(), kLongestWorkerError)},
                       {"suspect", worker->suspect()},
                       {"audited", worker->audited()},
                       {"differing", worker->differing()},
                       {"episodes", worker->episodes()},
                       {"first_update", worker->first_update()},
                       {"last_update", worker->last_update()},
                       {"units", worker->units()},
                       {"answers", worker->answers()},
                       {"score", fixedDigits(worker->score() / answers, 4)},
                       {"tokens", fixedDigits(static_cast<double>(worker->tokens()) / answers, 1)},
                       {"seconds", fixedDigits(worker->seconds() / answers, 4)}});
  }
  return {{"summary", printable(audits.summary(), 2 * kLongestSentence)},
          {"share", audits.share()},
          {"answers", audits.answers()},
          {"audited", audits.audited()},
          {"differing", audits.differing()},
          {"dropped", audits.dropped()},
          {"undecided", audits.undecided()},
          {"open", audits.open()},
          {"liars", audits.liars()},
          {"workers", workers}};
}

json ticketsView(const RunSnapshot& snapshot) {
  const auto tickets = ticketsOf(snapshot);
  if (!tickets) return nullptr;
  return {{"reached", tickets->tickets},
          {"unanswered", tickets->unanswered},
          {"share", fixedDigits(tickets->share(), 4)},
          {"warning", tickets->warning()}};
}

// The members that the aggregator reports of itself.
json toldView(const std::optional<v1::AggregatorStatus>& told) {
  const v1::AggregatorStatus status = told.value_or(v1::AggregatorStatus());
  const bool knows_room = told && told->has_updates_until_full();
  return {{"build", printable(status.build(), kLongestName)},
          {"page", printable(status.page(), kLongestName)},
          {"last_error", printable(status.last_error(), kLongestSentence)},
          {"last_error_unix_ms", status.last_error_unix_ms()},
          {"edit_refused", printable(status.edit_refused(), kLongestSentence)},
          {"audits", auditsView(status.audits())},
          {"store_used_bytes", status.store_used_bytes()},
          {"store_limit_bytes", status.store_limit_bytes()},
          {"updates_until_full", knows_room ? json(status.updates_until_full()) : json()},
          {"finished_unix_ms", orNull(status.finished_unix_ms())}};
}

}  // namespace

uint64_t maxUpdatesOf(const RunSnapshot& snapshot) {
  const v1::Spec& spec = snapshot.experiment.spec();
  // An edited file may ask for fewer updates than were made.
  return spec.has_update()
             ? std::max<uint64_t>(spec.update().max_updates(), snapshot.state.policy().version())
             : 0;
}

std::optional<UnansweredTickets> ticketsOf(const RunSnapshot& snapshot) {
  if (snapshot.run.synchronous || snapshot.tickets_reached == 0) return std::nullopt;
  const uint64_t of_worker = snapshot.experiment.spec().rollout().episodes_per_pull();
  return unansweredTickets(snapshot.tickets_reached, snapshot.state.episodes(),
                           snapshot.inbox_entries + of_worker * aliveWorkers(snapshot.workers));
}

std::string stateWord(const RunSnapshot& snapshot, const StatusReading& reading) {
  if (snapshot.desired != Desired::kRunning) return std::string(wordOf(snapshot.desired));
  if (reading.from == From::kFiles) return "exported";
  if (reading.from == From::kEnded) return "interrupted";
  if (!snapshot.lease.held) return "waiting";
  return snapshot.told ? printable(snapshot.told->phase(), 20) : "starting";
}

std::string whyNotProgressing(const RunSnapshot& snapshot, const StatusReading& reading) {
  const Desired desired = snapshot.desired;
  if (desired == Desired::kFinished || reading.from == From::kFiles) return "";
  if (!reading.stale_why.empty()) {
    return "no news from the store since " + ago(reading.stale_since_unix_ms, reading.now_unix_ms) +
           ": " + printable(reading.stale_why, kLongestSentence);
  }
  if (reading.from == From::kEnded) {
    const std::string why = desired == Desired::kRunning  ? "nobody works on it"
                            : desired == Desired::kPaused ? "it is paused and nobody works on it"
                                                          : "it was stopped";
    return why + ": " + reading.resume_command;
  }
  const std::string resume =
      std::string("allot resume") + (reading.arguments.empty() ? "" : " ") + reading.arguments;
  if (desired == Desired::kPaused) return "it is paused: " + resume;
  if (desired == Desired::kStopped) return "it was stopped: " + resume;
  if (!snapshot.lease.held) return noLeader(snapshot, reading.now_unix_ms);
  const auto& told = snapshot.told;
  if (told && reading.now_unix_ms > told->unix_ms() + kSilentMs) {
    return "the aggregator " + printable(told->holder(), 60) + " was last heard of " +
           ago(told->unix_ms(), reading.now_unix_ms);
  }
  if (const std::string why = whyNobodyCanWork(snapshot.workers); !why.empty()) {
    return printable(why, kLongestSentence);
  }
  return told ? printable(told->waiting(), kLongestSentence) : "";
}

std::string otherBuilds(const RunSnapshot& snapshot) {
  if (!snapshot.told || snapshot.told->build().empty()) return "";
  const std::string& ours = snapshot.told->build();
  constexpr size_t kMostNamed = 5;
  std::map<std::string, std::vector<std::string>> others;  // build -> workers
  for (const v1::WorkerBeat& worker : snapshot.workers) {
    if (worker.build() == ours || !isAlive(worker)) continue;
    others[worker.build()].push_back(printable(worker.worker(), 40));
  }
  std::string text;
  for (auto& [build, workers] : others) {
    const size_t more = workers.size() - std::min(workers.size(), kMostNamed);
    workers.resize(workers.size() - more);
    if (more > 0) workers.push_back(std::to_string(more) + " more");
    text += (text.empty() ? "" : "; ") + joined(workers) + ": " +
            (build.empty() ? "an unknown one" : printable(build, kLongestName));
  }
  return text.empty() ? "" : "the aggregator is " + printable(ours, kLongestName) + "; " + text;
}

json lagHistogram(const v1::AggregatorState& state) {
  json rows = json::array();
  const int classes = std::min(state.lag_counts_size(), static_cast<int>(kLagBuckets));
  int last = 0;
  for (int bucket = 0; bucket < classes; ++bucket) {
    if (state.lag_counts(bucket) > 0) last = bucket;
  }
  for (int bucket = 0; bucket <= last && bucket < classes; ++bucket) {
    rows.push_back({{"lag", lagBucketLabel(static_cast<size_t>(bucket))},
                    {"results", state.lag_counts(bucket)}});
  }
  return rows;
}

json statusDocument(const RunSnapshot& snapshot, const StatusReading& reading) {
  const v1::AggregatorState& state = snapshot.state;
  const size_t listed = std::min(snapshot.workers.size(), kStatusWorkers);
  const bool learned = snapshot.last.updates > 0;
  const double hours = (state.worker_seconds() + snapshot.evaluation_seconds) / 3600;
  json document = {
      {"apiVersion", kStatusApiVersion},
      {"kind", kStatusKind},
      {"run_id", printable(snapshot.run_id, kLongestName)},
      {"experiment", printable(snapshot.run.experiment.name(), kLongestName)},
      {"state", stateWord(snapshot, reading)},
      {"desired", wordOf(snapshot.desired)},
      {"not_progressing", whyNotProgressing(snapshot, reading)},
      {"resume_command", printable(reading.resume_command, kLongestSentence)},
      {"synchronous", snapshot.run.synchronous},
      {"version", state.policy().version()},
      {"max_updates", maxUpdatesOf(snapshot)},
      {"episodes", state.episodes()},
      {"reward", learned ? fixedDigits(snapshot.last.reward, 4) : json()},
      {"lag", learned ? fixedDigits(snapshot.last.lag, 2) : json()},
      {"worker_hours", fixedDigits(hours, 3)},
      {"best", bestView(snapshot)},
      {"first", statusMeans(snapshot.first)},
      {"last", statusMeans(snapshot.last)},
      {"last_update_unix_ms", orNull(snapshot.last_update_unix_ms)},
      {"lag_histogram", lagHistogram(state)},
      {"tickets", ticketsView(snapshot)},
      {"waiting_results", snapshot.inbox_entries},
      {"open_units", snapshot.open_units},
      {"worker_counts", workerCounts(snapshot.workers)},
      {"workers", statusWorkers(snapshot.workers)},
      {"workers_left_out", snapshot.workers.size() - listed},
      {"refused", refusedView(snapshot.refused)},
      {"refusals", refusalsView(snapshot.refusals)},
      {"leader",
       snapshot.lease.held ? json(printable(snapshot.lease.holder, kLongestName)) : json()},
      {"other_builds", printable(otherBuilds(snapshot), kLongestSentence)},
      {"page_path", "/"},
      {"started_unix_ms", orNull(snapshot.run.started_unix_ms)},
      {"now_unix_ms", reading.now_unix_ms},
      {"stale", nullptr}};
  document.update(toldView(snapshot.told));
  if (!reading.stale_why.empty()) {
    document["stale"] = {{"since_unix_ms", reading.stale_since_unix_ms},
                         {"why", printable(reading.stale_why, kLongestSentence)}};
  }
  return document;
}

}  // namespace allot
