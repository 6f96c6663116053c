#include "aggregator/learner/audits.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/evaluation/measured_again.h"
#include "core/printable.h"
#include "core/spec/choices.h"
#include "core/spec/spec_yaml.h"
#include "core/worker_beats.h"

namespace allot {
namespace {

constexpr uint32_t kFirstAnswers = 4;    // audited of a worker's first episode and first unit
constexpr size_t kMostAsked = 16;        // audits that workers are asked for at once
constexpr size_t kMostOfWorker = 4;      // of these, of one worker
constexpr size_t kMostOpen = 256;        // further answers are not audited
constexpr uint64_t kMostTries = 3;       // workers that are asked for one audit
constexpr uint64_t kAnswerMs = 600'000;  // a worker has up to this much work in hand
constexpr size_t kMostRemembered = 200;  // remembered, beside live ones and those that lie
constexpr size_t kMostLiars = 500;
constexpr size_t kMostNamed = 3;        // in a sentence
constexpr double kFalseAlarms = 0.001;  // runs in which an honest worker is suspect, at most

std::vector<double> scoresOf(const google::protobuf::RepeatedPtrField<v1::QuestionScore>& scores) {
  std::vector<double> values;
  for (const v1::QuestionScore& score : scores) values.push_back(score.score());
  return values;
}

std::string nameOf(const v1::AuditTask& task) {
  return task.has_unit() ? "evaluation unit " + printable(task.unit().unit_id(), 200)
                         : "ticket " + std::to_string(task.ticket());
}

std::string shortOf(const std::string& worker) { return printable(worker, 100); }

AgainCounts countsOf(const v1::AuditTally& tally) {
  return {tally.answers(), tally.higher(), tally.lower(), tally.may_differ()};
}

// The rule is looked at whenever the number of answers reaches the next power of two. The k-th look
// at the j-th worker has the share 1 / (2^k * j * (j + 1)) of the error, and these sum to 1 at
// most. Two tallies, with two tests each, share it equally.
bool isUnlikely(const v1::AuditTally& tally, uint64_t place) {
  const AgainCounts counts = countsOf(tally);
  const auto look = static_cast<double>(std::bit_width(counts.answers));
  const auto j = static_cast<double>(place);
  const double level = kFalseAlarms / (4 * std::exp2(look) * j * (j + 1));
  return againProbability(counts) < level || againDifferingProbability(counts) < level;
}

}  // namespace

v1::AuditedWorker& Audits::of(const std::string& worker) {
  if (workers_.size() > kMostRemembered + live_.size() && !workers_.contains(worker)) {
    const bool crowded = workers_.size() > kMostRemembered + live_.size() + kMostLiars;
    const auto forgotten = std::find_if(workers_.begin(), workers_.end(), [&](const auto& known) {
      return (crowded || known.second.lies().empty()) && !live_.contains(known.first) &&
             !holds(known.first);
    });
    if (forgotten != workers_.end()) workers_.erase(forgotten);
  }
  v1::AuditedWorker& known = workers_[worker];
  known.set_worker(worker);
  return known;
}

void Audits::restore(const v1::AuditStatus& stored) {
  counts_ = stored;
  counts_.clear_workers();
  counts_.clear_disputes();
  workers_.clear();
  open_.clear();
  asked_.clear();
  for (const v1::AuditedWorker& worker : stored.workers()) {
    workers_[worker.worker()] = worker;
    places_ = std::max(places_, worker.place());
  }
  for (const v1::Dispute& dispute : stored.disputes()) {
    Audit audit{dispute.task(), dispute.author(), dispute.build(), dispute.arithmetic()};
    audit.recorded = {dispute.recorded().begin(), dispute.recorded().end()};
    audit.auditor = dispute.auditor();
    audit.again = {dispute.again().begin(), dispute.again().end()};
    audit.exact = true;
    open_.emplace(next_++, std::move(audit));
  }
}

void Audits::setShare(double share) {
  share_ = share;
  if (share > 0 || open_.empty()) return;
  for (const auto& [number, audit] : open_) {
    if (audit.exact) counts_.set_undecided(counts_.undecided() + 1);
  }
  open_.clear();
  asked_.clear();
}

void Audits::setWorkers(const std::vector<v1::WorkerBeat>& beats) {
  live_.clear();
  for (const v1::WorkerBeat& beat : beats) {
    const auto state = stateOf(beat);
    if (state == WorkerState::kIdle || state == WorkerState::kRollout ||
        state == WorkerState::kEvaluation) {
      live_.emplace(beat.worker(), beat);
    }
  }
}

void Audits::take(const v1::EpisodeResult& result) {
  Audit whole{{}, result.worker(), result.build(), result.arithmetic(), scoresOf(result.scores())};
  whole.task.set_ticket(result.ticket());
  *whole.task.mutable_schedule() = result.schedule();
  draw(whole, false);
}

void Audits::take(const v1::EvaluationResult& result) {
  if (measureOf(result.unit()) != Measure::kAccuracy) return;
  Audit whole{{}, result.worker(), result.build(), result.arithmetic(), scoresOf(result.scores())};
  *whole.task.mutable_unit() = result.unit();
  draw(whole, true);
}

void Audits::draw(const Audit& whole, bool unit) {
  const auto count = static_cast<uint32_t>(whole.recorded.size());
  if (share_ <= 0 || count == 0 || !lies(whole.author).empty()) return;
  counts_.set_answers(counts_.answers() + count);
  if (auditors(whole).empty()) return;
  v1::AuditedWorker& author = of(whole.author);
  if (unit ? !author.first_unit() : !author.first_episode()) {
    unit ? author.set_first_unit(true) : author.set_first_episode(true);
    Audit first = whole;
    first.first = true;
    const uint32_t some = std::min(kFirstAnswers, count);
    begin(std::move(first), static_cast<uint32_t>(random_() % (count - some + 1)), some);
  }
  std::bernoulli_distribution drawn(std::min(share_, 1.0));
  for (uint32_t i = 0; i < count; ++i) {
    if (drawn(random_)) begin(whole, i, 1);
  }
}

// Begins the audit of a part of the answers of `audit`.
void Audits::begin(Audit audit, uint32_t first, uint32_t count) {
  // First audits, of results that wait, are as few as results in the inbox.
  if (!audit.first && open_.size() >= kMostOpen) {
    counts_.set_dropped(counts_.dropped() + count);
    return;
  }
  const auto from = audit.recorded.begin() + first;
  audit.recorded = {from, from + count};
  audit.task.set_first(first);
  audit.task.set_count(count);
  if (audit.task.has_unit()) {
    v1::EvaluationUnit& unit = *audit.task.mutable_unit();
    unit.set_first_question(unit.first_question() + first);
    unit.set_question_count(count);
  }
  open_.emplace(next_++, std::move(audit));
}

void Audits::counts(const v1::EpisodeResult& result, uint64_t update) {
  v1::AuditedWorker& worker = of(result.worker());
  worker.set_episodes(worker.episodes() + 1);
  if (worker.first_update() == 0) worker.set_first_update(update);
  worker.set_last_update(update);
  worker.set_seconds(worker.seconds() + result.seconds());
  worker.set_answers(worker.answers() + static_cast<uint64_t>(result.scores_size()));
  for (const v1::QuestionScore& score : result.scores()) {
    worker.set_score(worker.score() + score.score());
    worker.set_tokens(worker.tokens() + score.tokens());
  }
}

void Audits::counts(const v1::EvaluationResult& result) {
  if (measureOf(result.unit()) != Measure::kAccuracy) return;
  v1::AuditedWorker& worker = of(result.worker());
  worker.set_units(worker.units() + 1);
  worker.set_seconds(worker.seconds() + result.seconds());
  worker.set_answers(worker.answers() + static_cast<uint64_t>(result.scores_size()));
  for (const v1::QuestionScore& score : result.scores()) {
    worker.set_score(worker.score() + score.score());
    worker.set_tokens(worker.tokens() + score.tokens());
  }
}

bool Audits::isExact(const Audit& audit, const std::string& build,
                     const std::string& arithmetic) const {
  return repeats_ && audit.build == build && audit.arithmetic == arithmetic;
}

std::vector<std::string> Audits::auditors(const Audit& audit) const {
  std::vector<std::string> same, others;
  for (const auto& [worker, beat] : live_) {
    if (worker == audit.author || worker == audit.auditor || !lies(worker).empty()) continue;
    (isExact(audit, beat.build(), beat.arithmetic()) ? same : others).push_back(worker);
  }
  if (same.empty() && !audit.exact) return others;
  // A dispute is not for a new name of one of the two, if there are others.
  const auto is_proven = [&](const std::string& worker) {
    const auto known = workers_.find(worker);
    return known != workers_.end() && known->second.audited() > 0 && !holds(worker);
  };
  if (audit.exact && std::any_of(same.begin(), same.end(), is_proven)) {
    std::erase_if(same, [&](const std::string& worker) { return !is_proven(worker); });
  }
  return same;
}

// Takes back what a worker has not answered.
void Audits::giveBack(const Batch& batch) {
  for (const uint64_t number : batch.audits) {
    const auto audit = open_.find(number);
    if (audit == open_.end()) continue;
    audit->second.asked = false;
    ++audit->second.tries;
  }
}

// Drops audits that nobody can answer, and those that several workers did not; but not disputes.
void Audits::dropHopeless() {
  for (auto it = open_.begin(); it != open_.end();) {
    const Audit& audit = it->second;
    const bool nobody = !audit.asked && auditors(audit).empty();
    if (audit.exact || audit.asked || (!nobody && audit.tries < kMostTries)) {
      ++it;
      continue;
    }
    counts_.set_dropped(counts_.dropped() + audit.task.count());
    if (audit.first && nobody) {  // the next result is the worker's first one, then
      v1::AuditedWorker& author = of(audit.author);
      audit.task.has_unit() ? author.set_first_unit(false) : author.set_first_episode(false);
    }
    it = open_.erase(it);
  }
}

std::vector<v1::AuditTasks> Audits::ask(uint64_t now) {
  for (auto it = asked_.begin(); it != asked_.end();) {
    const bool late = now - it->second.since_ms >= kAnswerMs;
    if (live_.contains(it->first) && lies(it->first).empty() && !late) {
      ++it;
      continue;
    }
    if (late) silent_.insert(it->first);
    giveBack(it->second);
    it = asked_.erase(it);
  }
  dropHopeless();
  // Disputes and first audits, for which results wait, come first.
  std::vector<uint64_t> waiting;
  size_t asked = 0;
  for (const auto& [number, audit] : open_) {
    audit.asked ? void(++asked) : waiting.push_back(number);
  }
  std::stable_partition(waiting.begin(), waiting.end(), [&](uint64_t number) {
    const Audit& audit = open_.at(number);
    return audit.first || audit.exact;
  });
  std::map<std::string, Batch> fresh;
  for (const uint64_t number : waiting) {
    if (asked == kMostAsked) break;
    Audit& audit = open_.at(number);
    std::vector<std::string> able = auditors(audit);
    const auto keep = [&](const auto& unwanted) {
      std::erase_if(able, unwanted);
      return !able.empty();
    };
    if (std::any_of(able.begin(), able.end(),
                    [&](const auto& worker) { return !silent_.contains(worker); })) {
      keep([&](const auto& worker) { return silent_.contains(worker); });
    }
    // A worker gets its next tasks when it has answered the last ones.
    if (!keep([&](const auto& worker) {
          const auto has = fresh.find(worker);
          return asked_.contains(worker) ||
                 (has != fresh.end() && has->second.audits.size() >= kMostOfWorker);
        })) {
      continue;
    }
    Batch& batch = fresh[able[random_() % able.size()]];
    batch.audits.push_back(number);
    audit.asked = true;
    ++asked;
  }
  for (auto& [worker, batch] : fresh) {
    batch.since_ms = now;
    batch.tasks.set_worker(worker);
    batch.tasks.set_number(batches_++);
    for (const uint64_t number : batch.audits) *batch.tasks.add_tasks() = open_.at(number).task;
    asked_.emplace(worker, std::move(batch));
  }
  std::vector<v1::AuditTasks> all;
  for (const auto& [worker, batch] : asked_) all.push_back(batch.tasks);
  for (const auto& [worker, beat] : live_) {
    if (const std::string how = lies(worker); !how.empty() && !asked_.contains(worker)) {
      v1::AuditTasks& told = all.emplace_back();
      told.set_worker(worker);
      told.set_lies(how);
    }
  }
  return all;
}

bool Audits::answered(const std::vector<v1::AuditAnswers>& answers) {
  bool marked = false;
  for (const v1::AuditAnswers& from : answers) {
    const auto asked = asked_.find(from.worker());
    if (asked == asked_.end() || asked->second.tasks.number() != from.number()) continue;
    const Batch batch = std::move(asked->second);
    asked_.erase(asked);
    giveBack(batch);
    const bool lied = !lies(from.worker()).empty();
    if (lied || static_cast<size_t>(from.answers_size()) != batch.audits.size()) continue;
    const uint64_t liars = counts_.liars();
    for (int i = 0; i < from.answers_size(); ++i) {
      const uint64_t number = batch.audits[static_cast<size_t>(i)];
      const auto audit = open_.find(number);
      const bool whole =
          audit != open_.end() &&
          static_cast<size_t>(from.answers(i).scores_size()) == audit->second.recorded.size();
      if (whole && compare(&audit->second, from, from.answers(i))) open_.erase(number);
    }
    marked = marked || counts_.liars() > liars;
  }
  return marked;
}

// Compares an answer. Returns true if that ends the audit.
bool Audits::compare(Audit* audit, const v1::AuditAnswers& from, const v1::AuditAnswer& answer) {
  const std::vector<double> scores(answer.scores().begin(), answer.scores().end());
  const bool exact = isExact(*audit, from.build(), from.arithmetic());
  if (audit->exact) {
    if (exact) decide(*audit, from.worker(), scores);
    return exact;
  }
  if (!audit->auditor.empty()) {
    tally(*audit, answer, true);
    return true;
  }
  v1::AuditedWorker& author = of(audit->author);
  uint64_t differing = 0;
  for (size_t i = 0; i < scores.size(); ++i) differing += scores[i] != audit->recorded[i] ? 1 : 0;
  counts_.set_audited(counts_.audited() + scores.size());
  counts_.set_differing(counts_.differing() + differing);
  author.set_audited(author.audited() + scores.size());
  author.set_differing(author.differing() + differing);
  if (exact && differing == 0) return true;
  audit->auditor = from.worker();
  audit->again = scores;
  audit->exact = exact;
  audit->tries = 0;
  if (exact) return false;
  const bool by_two = !auditors(*audit).empty();
  if (by_two && differing > 0) return false;
  tally(*audit, answer, by_two);
  return true;
}

// Decides a dispute by the scores of a third worker.
void Audits::decide(const Audit& audit, const std::string& third,
                    const std::vector<double>& scores) {
  const std::string where = nameOf(audit.task);
  if (scores == audit.recorded) {
    mark(audit.auditor, "its answers to the audit of " + where + " are not those of workers " +
                            shortOf(audit.author) + " and " + shortOf(third));
  } else if (scores == audit.again) {
    mark(audit.author, "its scores of " + where + " are not those that workers " +
                           shortOf(audit.auditor) + " and " + shortOf(third) + " measure");
  } else {
    counts_.set_undecided(counts_.undecided() + 1);
  }
}

// Adds a comparison with other devices, and tests it. An answer differs if both auditors differ
// from the author.
void Audits::tally(const Audit& audit, const v1::AuditAnswer& answer, bool by_two) {
  v1::AuditedWorker& author = of(audit.author);
  if (author.place() == 0) author.set_place(++places_);
  v1::AuditTally& counts = by_two ? *author.mutable_by_two() : *author.mutable_by_one();
  const auto looks = std::bit_width(counts.answers());
  for (size_t i = 0; i < audit.recorded.size(); ++i) {
    const auto place = static_cast<int>(i);
    const double recorded = audit.recorded[i], again = audit.again[i];
    const bool differs = recorded != again && recorded != answer.scores(place);
    counts.set_answers(counts.answers() + 1);
    if (differs && recorded > again) counts.set_higher(counts.higher() + 1);
    if (differs && recorded < again) counts.set_lower(counts.lower() + 1);
    const uint32_t tokens = place < answer.tokens_size() ? answer.tokens(place) : 0;
    counts.set_may_differ(counts.may_differ() + std::min(0.5, kAgainPerToken * tokens));
  }
  if (std::bit_width(counts.answers()) == looks || !isUnlikely(counts, author.place())) return;
  if (!by_two) return author.set_suspect(true);
  mark(audit.author, "two workers of other devices differ from it in " +
                         std::to_string(counts.higher() + counts.lower()) + " of " +
                         counted(counts.answers(), "answer") + ", more than devices do");
}

// Marks a worker. Audits of its results end; where it was an auditor another one is asked.
// worker: a copy, since audits are erased here.
void Audits::mark(std::string worker, const std::string& how) {
  v1::AuditedWorker& marked = of(worker);
  if (!marked.lies().empty()) return;
  marked.set_lies(how);
  counts_.set_liars(counts_.liars() + 1);
  std::erase_if(open_, [&](const auto& open) { return open.second.author == worker; });
  for (auto& [number, audit] : open_) {
    if (audit.auditor != worker) continue;
    audit.auditor.clear();
    audit.exact = false;
  }
}

bool Audits::holds(const std::string& worker) const {
  return std::any_of(open_.begin(), open_.end(), [&](const auto& open) {
    const Audit& audit = open.second;
    return ((audit.first || audit.exact) && audit.author == worker) ||
           (audit.exact && audit.auditor == worker);
  });
}

std::string Audits::lies(const std::string& worker) const {
  const auto known = workers_.find(worker);
  return known == workers_.end() ? "" : known->second.lies();
}

std::string Audits::whyWaiting() const {
  for (const auto& [number, audit] : open_) {
    if (!audit.exact || !auditors(audit).empty()) continue;
    return "workers " + shortOf(audit.author) + " and " + shortOf(audit.auditor) + " disagree on " +
           nameOf(audit.task) +
           ", and no third worker of their build and arithmetic is alive to decide: start one, or "
           "set spec.audit.share to 0 and find out with `allot verify --measure`";
  }
  return "";
}

std::string Audits::summary() const {
  if (share_ <= 0) return "none: spec.audit.share is 0";
  const auto number = [](uint64_t value) {
    std::string text = std::to_string(value);
    for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, ",");
    return text;
  };
  std::string text, liars, suspects;
  size_t named = 0;
  for (const auto& [name, worker] : workers_) {
    if (!worker.lies().empty() && ++named <= kMostNamed) {
      liars += "; worker " + shortOf(name) + " lies: " + worker.lies();
      if (worker.episodes() > 0) {
        liars += " (" + counted(worker.episodes(), "episode") + " of it count, in updates " +
                 std::to_string(worker.first_update()) + " to " +
                 std::to_string(worker.last_update()) + ")";
      }
    }
    if (worker.suspect() && suspects.empty()) {
      suspects = "; worker " + shortOf(name) +
                 " differs from another device more often than devices "
                 "do: measure the run again with `allot verify --measure`";
    }
  }
  if (named > kMostNamed) liars += "; " + std::to_string(named - kMostNamed) + " more lie";
  if (counts_.audited() == 0 && live_.size() <= 1) {
    text = live_.empty() ? "not audited: no worker" : "not audited: one worker";
  } else {
    text = number(counts_.audited()) + " of " + counted(counts_.answers(), "answer") + ", " +
           (counts_.differing() == 0 ? "all equal" : number(counts_.differing()) + " differ");
  }
  return text + liars + suspects;
}

v1::AuditStatus Audits::status() const {
  v1::AuditStatus status = counts_;
  status.set_share(share_);
  status.set_summary(summary());
  status.set_open(open_.size());
  for (const auto& [name, worker] : workers_) *status.add_workers() = worker;
  for (const auto& [number, audit] : open_) {
    if (audit.first) {  // a successor begins it anew
      for (v1::AuditedWorker& worker : *status.mutable_workers()) {
        if (worker.worker() != audit.author) continue;
        audit.task.has_unit() ? worker.set_first_unit(false) : worker.set_first_episode(false);
      }
    }
    if (!audit.exact) continue;
    v1::Dispute& dispute = *status.add_disputes();
    *dispute.mutable_task() = audit.task;
    dispute.set_author(audit.author);
    dispute.set_auditor(audit.auditor);
    dispute.set_build(audit.build);
    dispute.set_arithmetic(audit.arithmetic);
    *dispute.mutable_recorded() = {audit.recorded.begin(), audit.recorded.end()};
    *dispute.mutable_again() = {audit.again.begin(), audit.again.end()};
  }
  return status;
}

}  // namespace allot
