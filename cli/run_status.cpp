#include "cli/run_status.h"

#include <algorithm>

#include "aggregator/page/publication_text.h"
#include "aggregator/page/run_view.h"
#include "aggregator/page/status_document.h"
#include "cli/terminal.h"
#include "core/learning/update.h"
#include "core/spec/choices.h"
#include "core/worker_beats.h"
#include "store/archive/run_source.h"
#include "store/store_room.h"

namespace allot {
namespace {

using nlohmann::json;

// Returns the status in the form that the page takes.
RunSnapshot snapshotOf(const RunStatus& status) {
  const RunImage& image = status.head.image;
  RunSnapshot snapshot;
  snapshot.run = image.spec;
  snapshot.model = image.model;
  snapshot.run_id = status.head.run_id;
  snapshot.experiment = image.control.experiment;
  snapshot.desired = image.control.desired;
  if (image.state) snapshot.state = *image.state;
  snapshot.cells = status.cells;
  snapshot.evaluation_seconds = status.evaluation_seconds;
  snapshot.tickets_reached = status.tickets_reached;
  snapshot.workers = status.workers;
  snapshot.refused = status.head.refused;
  snapshot.refusals = status.refusals;
  snapshot.open_units = image.open_units.size();
  snapshot.inbox_entries = status.head.waiting_results;
  snapshot.lease = status.lease;
  snapshot.told = status.aggregator;
  snapshot.first = status.first;
  snapshot.last = status.last;
  snapshot.last_update_unix_ms = status.last_update_unix_ms;
  return snapshot;
}

StatusReading readingOf(const RunStatus& status) {
  using From = StatusReading::From;
  return {.from = status.kind == RunAccess::Kind::kFiles   ? From::kFiles
                  : status.kind == RunAccess::Kind::kEnded ? From::kEnded
                                                           : From::kRun,
          .now_unix_ms = status.now_unix_ms,
          .resume_command = status.resume_command,
          .arguments = status.arguments};
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
      status->tickets_reached = ticketsReached(status->tickets_reached, record);
      dropResults(&record);
      if (first.size() < kMeanUpdates) first.push_back(record);
      last.push_back(std::move(record));
    }
    if (last.size() > kMeanUpdates) last.erase(last.begin(), last.end() - kMeanUpdates);
  }
  status->first = meansOf(first);
  status->last = meansOf(last);
  if (!last.empty()) status->last_update_unix_ms = last.back().committed_unix_ms();
  return {};
}

Status readStoreMeans(RunReader* store, RunStatus* status) {
  const uint64_t version = status->head.version();
  // Updates after the head's version, of a run that goes on meanwhile, are left out.
  const uint64_t shown = std::min<uint64_t>(version, kMeanUpdates);
  ALLOT_ASSIGN(const auto first, readUpdates(store, 0, shown));
  ALLOT_ASSIGN(const auto last, readUpdates(store, version - shown, shown));
  status->first = meansOf(first);
  status->last = meansOf(last);
  for (const auto& record : last) {
    status->tickets_reached = ticketsReached(status->tickets_reached, record);
  }
  if (!last.empty()) status->last_update_unix_ms = last.back().committed_unix_ms();
  return {};
}

// Reads the head and what processes last reported.
Status readState(RunSource* source, RunReader* store, RunStatus* status) {
  ALLOT_ASSIGN(status->head, source->readHead());
  if (store != nullptr) {
    ALLOT_ASSIGN(status->aggregator, store->readStatus());
    ALLOT_ASSIGN(status->lease, store->readLease());
    ALLOT_ASSIGN(status->workers, store->listWorkers());
  }
  status->now_unix_ms = unixMs();
  return {};
}

void nameRun(const RunAccess& access, RunStatus* status) {
  status->kind = access.kind();
  status->resume_command = access.resumeCommand();
  status->arguments = access.arguments();
}

Tone toneOf(const std::string& state) {
  if (state == "running" || state == "evaluating" || state == "finished") return Tone::kGood;
  return Tone::kAttention;
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

// Reads the cells and the seconds of evaluations, as the aggregator counts them.
Status readEvaluations(RunSource* source, RunStatus* status) {
  EvaluationTable table(status->head.image.spec.experiment, EvaluationTable::Keep::kNewest);
  ALLOT_TRY(eachEvaluation(source, status->head, [&](const auto& result) {
    table.add(result);
    status->evaluation_seconds += result.seconds();
  }));
  status->cells = table.cells();
  return {};
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

std::string buildsText(const RunStatus& status, bool colour) {
  std::string text = otherBuilds(snapshotOf(status));
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

// Mean lag in updates above which `allot status` says what it costs.
constexpr double kMostLag = 16;

std::string learningText(const RunStatus& status, bool colour) {
  if (status.first.updates == 0) return "";
  std::string text =
      formatted("reward:  %.3f (first %.3f), last update %s\n", status.last.reward,
                status.first.reward, ago(status.last_update_unix_ms, status.now_unix_ms).c_str());
  text += formatted("lag:     mean %.2f updates; episodes by lag: %s\n", status.last.lag,
                    lagText(*status.head.image.state).c_str());
  if (status.last.lag > kMostLag) {
    text += toned(formatted("         results are %.0f updates old, which costs answers: raise "
                            "spec.update.episodesPerUpdate, or run fewer workers",
                            status.last.lag),
                  Tone::kAttention, colour) +
            "\n";
  }
  text += formatted("steps:   effective sample size %.2f, KL %.2g nats (last %s)\n",
                    status.last.effective_sample_size_ratio, status.last.step_kl_nats,
                    counted(status.last.updates, "update").c_str());
  const v1::Spec& spec = status.head.image.control.experiment.spec();
  const std::string published =
      publicationsText(frontierView(spec, *status.head.image.state), budgetUnit(spec.policy()));
  if (!published.empty()) text += "learned: " + published + "\n";
  return text;
}

std::string ticketsText(const RunStatus& status, bool colour) {
  const auto tickets = ticketsOf(snapshotOf(status));
  if (!tickets) return "";
  const std::string warning = tickets->warning();
  return toned("tickets: " + unansweredText(*tickets) + (warning.empty() ? "" : ": ") + warning,
               warning.empty() ? Tone::kPlain : Tone::kAttention, colour) +
         "\n";
}

}  // namespace

uint64_t RunStatus::maxUpdates() const { return maxUpdatesOf(snapshotOf(*this)); }

std::string stateOf(const RunStatus& status) {
  return stateWord(snapshotOf(status), readingOf(status));
}

Result<bool> hasBegun(RunAccess* access) {
  Store* store = access->store();
  if (store == nullptr || access->kind() != RunAccess::Kind::kLive) return true;
  ALLOT_ASSIGN(const auto spec, store->readSpec());
  return spec.has_value();
}

Result<RunStatus> readRunState(RunAccess* access) {
  RunStatus status;
  nameRun(*access, &status);
  ALLOT_TRY(readState(&access->source(), access->store(), &status));
  return status;
}

Result<RunStatus> readRunStatus(RunAccess* access) {
  ALLOT_ASSIGN(RunStatus status, readRunStatus(&access->source(), access->store()));
  nameRun(*access, &status);
  return status;
}

Result<RunStatus> readRunStatus(RunSource* source, RunReader* store) {
  RunStatus status;
  ALLOT_TRY(readState(source, store, &status));
  if (store == nullptr) {
    ALLOT_TRY(readFileMeans(source, &status));
  } else {
    ALLOT_TRY(readStoreMeans(store, &status));
    ALLOT_ASSIGN(status.refusals, store->readRefusals(kStatusRefusals));
  }
  ALLOT_TRY(readEvaluations(source, &status));
  status.now_unix_ms = unixMs();
  return status;
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
  return whyNotProgressing(snapshotOf(status), readingOf(status));
}

json statusJson(const RunStatus& status) {
  return statusDocument(snapshotOf(status), readingOf(status));
}

json startingStatus(const std::string& run_id) {
  RunSnapshot starting;
  starting.run_id = run_id;
  starting.lease.held = true;
  return statusDocument(starting, {.now_unix_ms = unixMs()});
}

std::string statusText(const RunStatus& status, bool colour) {
  const RunHead& head = status.head;
  const std::string state = stateWord(snapshotOf(status), readingOf(status));
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
  text += learningText(status, colour) + ticketsText(status, colour);
  text += "waits:   " + counted(head.waiting_results, "result") + " in the inbox, " +
          counted(head.image.open_units.size(), "evaluation unit") + " to do\n";
  if (status.kind == RunAccess::Kind::kLive || status.kind == RunAccess::Kind::kRemote) {
    text += workersText(status, colour) + buildsText(status, colour);
  }
  text += storeText(status, colour);
  text += refusedText(status);
  if (const auto& told = status.aggregator; told && !told->audits().summary().empty()) {
    const bool bad = told->audits().liars() > 0;
    text += toned("audits:  " + printable(told->audits().summary(), 2 * kLongestMessage),
                  bad ? Tone::kBad : Tone::kPlain, colour) +
            "\n";
  }
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
