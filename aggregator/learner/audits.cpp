#include "aggregator/learner/audits.h"

#include <algorithm>

#include "core/spec/choices.h"
#include "core/spec/spec_yaml.h"
#include "core/worker_beats.h"

namespace allot {
namespace {

constexpr uint32_t kFirstAnswers = 4;    // audited of a worker's first episode and first unit
constexpr size_t kMostAsked = 16;        // audits that workers are asked for at once
constexpr size_t kMostUnproven = 4;      // of these, of workers that may be new names of a liar
constexpr size_t kMostOfWorker = 4;      // of these, of one worker
constexpr size_t kMostOpen = 256;        // further answers are not audited
constexpr size_t kMostFurther = 5;       // workers that decide a dispute
constexpr uint64_t kInHandMs = 60'000;   // of work that a worker has in hand, or a little more
constexpr double kPatience = 8;          // times the mean time of a result; a batch has up to 4
constexpr size_t kMostRemembered = 200;  // remembered, beside live ones and those that lie
constexpr size_t kMostLiars = 500;

}  // namespace

uint64_t AuditDraws::operator()() {
  if (seeded_) return (*seeded_)();
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

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
    audit.again[audit.auditor] = {dispute.again().begin(), dispute.again().end()};
    audit.exact = true;
    audit.since_ms = now_;
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

void Audits::setWorkers(const std::vector<v1::WorkerBeat>& beats, uint64_t now) {
  now_ = now;
  std::map<std::string, const v1::WorkerBeat*> newest;  // an old one may stand beside it
  for (const v1::WorkerBeat& beat : beats) {
    const v1::WorkerBeat*& known = newest[beat.worker()];
    if (known == nullptr || known->seen_unix_ms() < beat.seen_unix_ms()) known = &beat;
  }
  for (const auto& [worker, beat] : newest) {
    const auto state = stateOf(*beat);
    if (state == WorkerState::kIdle || state == WorkerState::kRollout ||
        state == WorkerState::kEvaluation) {
      see(worker, beat->build(), beat->arithmetic());
    } else {
      live_.erase(worker);
    }
  }
  std::erase_if(live_, [&](const auto& live) { return !isLive(live.second, kVoiceMs); });
  std::erase_if(silent_, [&](const std::string& worker) { return !live_.contains(worker); });
}

void Audits::see(const std::string& worker, const std::string& build,
                 const std::string& arithmetic) {
  live_[worker] = {build, arithmetic, now_};
}

void Audits::take(const v1::EpisodeResult& result) {
  Audit whole{{}, result.worker(), result.build(), result.arithmetic()};
  whole.task.set_ticket(result.ticket());
  *whole.task.mutable_schedule() = result.schedule();
  whole.recorded = {result.scores().begin(), result.scores().end()};
  draw(whole, false);
}

void Audits::take(const v1::EvaluationResult& result) {
  if (measureOf(result.unit()) != Measure::kAccuracy) return;
  Audit whole{{}, result.worker(), result.build(), result.arithmetic()};
  *whole.task.mutable_unit() = result.unit();
  whole.recorded = {result.scores().begin(), result.scores().end()};
  draw(whole, true);
}

void Audits::doubt(const v1::EvaluationResult& result, uint32_t place) {
  const std::string& author = result.worker();
  if (share_ <= 0 || !lies(author).empty()) return;
  const bool open = std::any_of(open_.begin(), open_.end(), [&](const auto& of) {
    const v1::EvaluationUnit& unit = of.second.task.unit();
    return of.second.author == author && unit.unit_id() == result.unit().unit_id() &&
           unit.question_count() == 1 &&
           unit.first_question() == result.unit().first_question() + place;
  });
  if (open) return;
  Audit whole{{}, author, result.build(), result.arithmetic()};
  *whole.task.mutable_unit() = result.unit();
  whole.recorded = {result.scores().begin(), result.scores().end()};
  whole.first = true;
  if (!auditors(whole, kLiveMs).empty()) begin(std::move(whole), place, 1);
}

void Audits::draw(const Audit& whole, bool unit) {
  const auto count = static_cast<uint32_t>(whole.recorded.size());
  see(whole.author, whole.build, whole.arithmetic);
  if (share_ <= 0 || count == 0 || !lies(whole.author).empty()) return;
  counts_.set_answers(counts_.answers() + count);
  if (auditors(whole, kLiveMs).empty()) return;
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
  audit.recorded = Reply(from, from + count);
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

std::vector<std::string> Audits::auditors(const Audit& audit, uint64_t within_ms) const {
  std::vector<std::string> able;
  for (const auto& [worker, live] : live_) {
    if (worker == audit.author || audit.again.contains(worker) || !lies(worker).empty()) continue;
    if (audit.exact && !isExact(audit, live.build, live.arithmetic)) continue;
    if (isLive(live, within_ms)) able.push_back(worker);
  }
  if (audit.auditor.empty()) return able;
  // It is not for a new name of one of the two, if there are others.
  const auto decides = [&](const std::string& worker) {
    return worker != audit.auditor && proven_.contains(worker);
  };
  const bool any = std::any_of(able.begin(), able.end(), decides) ||
                   std::any_of(audit.again.begin(), audit.again.end(),
                               [&](const auto& answered) { return decides(answered.first); });
  if (any) std::erase_if(able, [&](const std::string& worker) { return !decides(worker); });
  return able;
}

size_t Audits::stillOpen(const Audit& audit) const {
  return std::min(auditors(audit, kVoiceMs).size(), kMostFurther + 1 - audit.again.size());
}

// Takes back what a worker has not answered.
void Audits::giveBack(const std::string& worker, const Batch& batch, bool late) {
  for (const uint64_t number : batch.audits) {
    const auto audit = open_.find(number);
    if (audit == open_.end()) continue;
    audit->second.asked.erase(worker);
    if (late) ++audit->second.tries;
  }
}

// Returns how long a worker is waited for: for what it has in hand, and then a few times of what
// its results took, or those of all workers if none of its own count.
uint64_t Audits::patienceMs(const std::string& worker) const {
  double seconds = 0, results = 0;
  const auto add = [&](const v1::AuditedWorker& of) {
    seconds += of.seconds();
    results += static_cast<double>(of.episodes() + of.units());
  };
  if (const auto own = workers_.find(worker); own != workers_.end()) add(own->second);
  if (results == 0) {
    for (const auto& [name, of] : workers_) add(of);
  }
  if (results == 0) return kAnswerMs;
  const double most = static_cast<double>(kAnswerMs - kInHandMs);
  return kInHandMs + static_cast<uint64_t>(std::min(most, 1000 * kPatience * seconds / results));
}

// Makes the author's next result a first one.
void Audits::nextIsFirst(const Audit& audit) {
  v1::AuditedWorker& author = of(audit.author);
  audit.task.has_unit() ? author.set_first_unit(false) : author.set_first_episode(false);
}

// Drops audits that nobody can answer and those that several workers did not, but neither disputes
// nor, while there are other workers, first audits.
void Audits::dropHopeless() {
  for (auto it = open_.begin(); it != open_.end();) {
    const Audit& audit = it->second;
    const bool nobody = audit.auditor.empty() && auditors(audit, kLiveMs).empty();
    const bool hopeless = nobody || (!audit.first && audit.tries >= kMostTries);
    if (audit.exact || !audit.asked.empty() || !hopeless) {
      ++it;
      continue;
    }
    counts_.set_dropped(counts_.dropped() + audit.task.count());
    if (audit.first) nextIsFirst(audit);
    it = open_.erase(it);
  }
}

std::string Audits::drawAuditor(const Audit& audit, const std::map<std::string, Batch>& fresh) {
  std::vector<std::string> able = auditors(audit, kLiveMs);
  std::erase_if(able, [&](const auto& worker) { return audit.asked.contains(worker); });
  const auto prefer = [&](const auto& wanted) {
    if (std::none_of(able.begin(), able.end(), wanted)) return;
    std::erase_if(able, [&](const std::string& worker) { return !wanted(worker); });
  };
  prefer([&](const std::string& worker) { return !silent_.contains(worker); });
  size_t unproven = 0;
  const auto count = [&](const auto& batches) {
    for (const auto& [worker, batch] : batches) {
      if (!proven_.contains(worker)) unproven += batch.audits.size();
    }
  };
  count(asked_);
  count(fresh);
  if (unproven >= kMostUnproven) {
    prefer([&](const std::string& worker) { return proven_.contains(worker); });
  }
  // A worker gets its next tasks when it has answered the last ones.
  std::erase_if(able, [&](const std::string& worker) {
    const auto has = fresh.find(worker);
    return asked_.contains(worker) ||
           (has != fresh.end() && has->second.audits.size() >= kMostOfWorker);
  });
  return able.empty() ? "" : able[random_() % able.size()];
}

std::vector<v1::AuditTasks> Audits::ask(uint64_t now) {
  proven_.clear();
  for (const auto& [name, worker] : workers_) {
    if (worker.audited() > 0) proven_.insert(name);
  }
  for (const auto& [number, audit] : open_) {
    if (audit.first) proven_.erase(audit.author);
  }
  for (auto it = asked_.begin(); it != asked_.end();) {
    const auto& [worker, batch] = *it;
    const bool late = now - batch.since_ms >= patienceMs(worker);
    const auto live = live_.find(worker);
    const bool here = live != live_.end() && isLive(live->second, kLiveMs);
    if (here && lies(worker).empty() && !late) {
      ++it;
      continue;
    }
    if (late) silent_.insert(worker);
    giveBack(worker, batch, late);
    it = asked_.erase(it);
  }
  endDisputes();
  dropHopeless();
  // Disputes and first audits, for which results wait, come first.
  std::vector<uint64_t> waiting;
  size_t asked = 0;
  for (const auto& [number, audit] : open_) {
    waiting.push_back(number);
    asked += audit.asked.size();
  }
  std::stable_partition(waiting.begin(), waiting.end(), [&](uint64_t number) {
    const Audit& audit = open_.at(number);
    return audit.first || audit.exact;
  });
  std::map<std::string, Batch> fresh;
  for (const uint64_t number : waiting) {
    Audit& audit = open_.at(number);
    const size_t wanted = audit.auditor.empty() ? 1 : kMostFurther + 1 - audit.again.size();
    while (asked < kMostAsked && audit.asked.size() < wanted) {
      const std::string worker = drawAuditor(audit, fresh);
      if (worker.empty()) break;
      fresh[worker].audits.push_back(number);
      audit.asked.insert(worker);
      ++asked;
    }
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
  for (const auto& [worker, live] : live_) {
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
    giveBack(from.worker(), batch, false);
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

}  // namespace allot
