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
constexpr size_t kMostUnproven = 4;      // of these, of workers that may be new names of a liar
constexpr size_t kMostOfWorker = 4;      // of these, of one worker
constexpr size_t kMostOpen = 256;        // further answers are not audited
constexpr uint64_t kMostTries = 3;       // workers that are asked for one audit
constexpr size_t kMostFurther = 5;       // workers that decide a dispute
constexpr uint64_t kLiveMs = 15'000;     // after the last sign of life; beats end 45 s later
constexpr uint64_t kVoiceMs = 120'000;   // for which a worker counts where a majority decides
constexpr uint64_t kNoThirdMs = 60'000;  // a dispute waits for a worker that can decide it
constexpr uint64_t kAnswerMs = 600'000;  // the longest time for an answer
constexpr uint64_t kInHandMs = 60'000;   // of work that a worker has in hand, or a little more
constexpr double kPatience = 8;          // times the mean time of a result; a batch has up to 4
constexpr size_t kMostRemembered = 200;  // remembered, beside live ones and those that lie
constexpr size_t kMostLiars = 500;
constexpr size_t kMostNamed = 3;        // in a sentence
constexpr double kFalseAlarms = 0.001;  // runs in which an honest worker is suspect, at most

std::string shortOf(const std::string& worker) { return printable(worker, 100); }

std::string namesOf(const std::set<std::string>& workers) {
  std::string text;
  size_t named = 0;
  for (const std::string& worker : workers) {
    if (++named > kMostNamed) break;
    text += (named == 1 ? "" : named == workers.size() ? " and " : ", ") + shortOf(worker);
  }
  return text + (workers.size() > kMostNamed ? " and others" : "");
}

std::string nameOf(const v1::AuditTask& task) {
  return task.has_unit() ? "evaluation unit " + printable(task.unit().unit_id(), 200)
                         : "ticket " + std::to_string(task.ticket());
}

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
    audit.recorded = {{dispute.recorded().begin(), dispute.recorded().end()}};
    audit.recorded.tokens.resize(audit.recorded.scores.size());
    audit.auditor = dispute.auditor();
    audit.again[audit.auditor] = {{dispute.again().begin(), dispute.again().end()}};
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
  for (const v1::QuestionScore& score : result.scores()) whole.recorded.add(score);
  draw(whole, false);
}

void Audits::take(const v1::EvaluationResult& result) {
  if (measureOf(result.unit()) != Measure::kAccuracy) return;
  Audit whole{{}, result.worker(), result.build(), result.arithmetic()};
  *whole.task.mutable_unit() = result.unit();
  for (const v1::QuestionScore& score : result.scores()) whole.recorded.add(score);
  draw(whole, true);
}

void Audits::draw(const Audit& whole, bool unit) {
  const auto count = static_cast<uint32_t>(whole.recorded.scores.size());
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
  const auto scores = audit.recorded.scores.begin() + first;
  const auto tokens = audit.recorded.tokens.begin() + first;
  audit.recorded = {{scores, scores + count}, {tokens, tokens + count}};
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

size_t Audits::differingAt(const Audit& audit, size_t answer) {
  return static_cast<size_t>(
      std::count_if(audit.again.begin(), audit.again.end(), [&](const auto& again) {
        return again.second.scores[answer] != audit.recorded.scores[answer];
      }));
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

// Ends audits that are decided since workers have left. Where results wait and nobody decides in
// time, they are put aside, unless nobody else could do them.
void Audits::endDisputes() {
  std::vector<uint64_t> differing;
  for (const auto& [number, audit] : open_) {
    if (!audit.auditor.empty()) differing.push_back(number);
  }
  for (const uint64_t number : differing) {
    const auto open = open_.find(number);
    if (open == open_.end() || open->second.auditor.empty()) continue;  // of one that lies
    const Audit audit = open->second;
    if (audit.exact ? decide(audit) : judge(audit)) {
      open_.erase(number);
      continue;
    }
    if (!audit.exact && !audit.first) continue;
    const bool others = std::any_of(live_.begin(), live_.end(), [&](const auto& live) {
      return live.first != audit.author && live.first != audit.auditor &&
             lies(live.first).empty() && isLive(live.second, kLiveMs);
    });
    if (!others) open->second.since_ms = now_;
    const uint64_t patience = stillOpen(audit) == 0 ? kNoThirdMs : kAnswerMs;
    if (!others || now_ - audit.since_ms < patience) continue;
    counts_.set_undecided(counts_.undecided() + 1);
    nextIsFirst(audit);
    const std::string why = "workers " + shortOf(audit.author) + " and " + shortOf(audit.auditor) +
                            " disagree on " + nameOf(audit.task) + ", and no other decided in time";
    put_aside_[audit.author] = why;
    if (audit.exact) put_aside_[audit.auditor] = why;
    open_.erase(number);
  }
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
          audit != open_.end() && static_cast<size_t>(from.answers(i).scores_size()) ==
                                      audit->second.recorded.scores.size();
      if (whole && compare(&audit->second, from, from.answers(i))) open_.erase(number);
    }
    marked = marked || counts_.liars() > liars;
  }
  return marked;
}

// Compares an answer with the author's. Returns true if the audit is over.
bool Audits::compare(Audit* audit, const v1::AuditAnswers& from, const v1::AuditAnswer& answer) {
  Reply reply{{answer.scores().begin(), answer.scores().end()},
              {answer.tokens().begin(), answer.tokens().end()}};
  reply.tokens.resize(reply.scores.size());
  const bool exact = isExact(*audit, from.build(), from.arithmetic());
  if (audit->exact) {
    if (!exact) {  // not of the kind that its beat says
      silent_.insert(from.worker());
      return false;
    }
    audit->again[from.worker()] = std::move(reply);
    audit->since_ms = now_;
    return decide(Audit(*audit));
  }
  uint64_t differing = 0;
  for (size_t i = 0; i < reply.scores.size(); ++i) {
    differing += reply.scores[i] != audit->recorded.scores[i] ? 1 : 0;
  }
  const bool is_first = audit->auditor.empty();
  if (is_first) {
    counts_.set_audited(counts_.audited() + reply.scores.size());
    counts_.set_differing(counts_.differing() + differing);
    v1::AuditedWorker& author = of(audit->author);
    author.set_audited(author.audited() + reply.scores.size());
    author.set_differing(author.differing() + differing);
    if (exact && differing == 0) return true;
  }
  audit->exact = exact && differing > 0;
  if (audit->exact) audit->again.clear();
  if (is_first || audit->exact) audit->auditor = from.worker();
  audit->again[from.worker()] = std::move(reply);
  audit->since_ms = now_;
  if (is_first) audit->tries = 0;
  if (audit->exact) return false;
  if (is_first && differing == 0) {
    tally(*audit, stillOpen(*audit));
    return true;
  }
  return judge(Audit(*audit));
}

// Adds the comparison with other devices once it is known of each answer whether more than half of
// all workers that are asked, the author included, differ from the author. Returns true then.
bool Audits::judge(const Audit& audit) {
  const size_t votes = 1 + audit.again.size(), open = stillOpen(audit);
  for (size_t i = 0; i < audit.recorded.scores.size(); ++i) {
    const size_t differing = differingAt(audit, i);
    const bool known =
        2 * differing > votes + open || 2 * (differing + open) <= votes + open || open == 0;
    if (!known) return false;
  }
  tally(audit, open);
  return true;
}

// Names those who differ from more than half of all workers that are asked about a dispute, the two
// included. Returns true if the dispute is over.
bool Audits::decide(const Audit& audit) {
  std::map<std::vector<double>, std::set<std::string>> sides;
  sides[audit.recorded.scores].insert(audit.author);
  for (const auto& [worker, reply] : audit.again) sides[reply.scores].insert(worker);
  const size_t votes = 1 + audit.again.size(), open = stillOpen(audit);
  const auto most = std::max_element(sides.begin(), sides.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  if (2 * most->second.size() > votes + open) {
    const std::string where = nameOf(audit.task), right = namesOf(most->second);
    for (const auto& [scores, workers] : sides) {
      if (scores == most->first) continue;
      for (const std::string& worker : workers) {
        mark(worker,
             worker == audit.author
                 ? "its scores of " + where + " are not those that workers " + right + " measure"
                 : "its answers to the audit of " + where + " are not those of workers " + right);
      }
    }
    return true;
  }
  if (open > 0 || votes == 2) return false;
  counts_.set_undecided(counts_.undecided() + 1);
  return true;
}

// Adds a comparison with other devices, and tests it. An answer differs if more than half of all
// workers differ from the author, or the one other worker that there is. open: workers that are not
// needed any more.
void Audits::tally(const Audit& audit, size_t open) {
  v1::AuditedWorker& author = of(audit.author);
  if (author.place() == 0) author.set_place(++places_);
  const size_t all = 1 + audit.again.size() + open;
  v1::AuditTally& counts = all > 2 ? *author.mutable_by_two() : *author.mutable_by_one();
  const auto looks = std::bit_width(counts.answers());
  const Reply& first = audit.again.at(audit.auditor);
  for (size_t i = 0; i < audit.recorded.scores.size(); ++i) {
    const double recorded = audit.recorded.scores[i], again = first.scores[i];
    const size_t differing = differingAt(audit, i);
    const bool differs = recorded != again && (all == 2 || 2 * differing > all);
    counts.set_answers(counts.answers() + 1);
    if (differs && recorded > again) counts.set_higher(counts.higher() + 1);
    if (differs && recorded < again) counts.set_lower(counts.lower() + 1);
    // The lower middle one: a few that lie about lengths decide nothing.
    std::vector<uint32_t> tokens = {audit.recorded.tokens[i]};
    for (const auto& [worker, reply] : audit.again) tokens.push_back(reply.tokens[i]);
    const auto middle = tokens.begin() + static_cast<std::ptrdiff_t>((tokens.size() - 1) / 2);
    std::nth_element(tokens.begin(), middle, tokens.end());
    counts.set_may_differ(counts.may_differ() + std::min(0.5, kAgainPerToken * *middle));
  }
  if (std::bit_width(counts.answers()) == looks || !isUnlikely(counts, author.place())) return;
  if (all == 2) return author.set_suspect(true);
  mark(audit.author, "most workers of other devices differ from it in " +
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
    audit.again.erase(worker);
    if (audit.auditor != worker) continue;
    audit.auditor.clear();
    audit.again.clear();
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
    if (audit.first && audit.tries >= kMostTries) {
      return "the first results of worker " + shortOf(audit.author) + " wait, since " +
             counted(audit.tries, "worker") + " asked to answer again did not: see what " +
             (silent_.empty() ? "became of them" : namesOf(silent_) + " do") +
             ", or set spec.audit.share to 0";
    }
    if (!audit.exact || !auditors(audit, kVoiceMs).empty()) continue;
    return "workers " + shortOf(audit.author) + " and " + shortOf(audit.auditor) + " disagree on " +
           nameOf(audit.task) +
           ", and no third worker of their build and arithmetic is alive to decide: start one, or "
           "set spec.audit.share to 0 and find out with `allot verify --measure`; if others are "
           "alive, they do both workers' results again after a minute";
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
  const auto live = std::count_if(live_.begin(), live_.end(), [&](const auto& worker) {
    return isLive(worker.second, kLiveMs);
  });
  if (counts_.audited() == 0 && live <= 1) {
    text = live == 0 ? "not audited: no worker" : "not audited: one worker";
  } else {
    text = number(counts_.audited()) + " of " + counted(counts_.answers(), "answer") + ", " +
           (counts_.differing() == 0 ? "all equal" : number(counts_.differing()) + " differ");
    if (counts_.dropped() > 0) text += ", " + number(counts_.dropped()) + " dropped";
    if (counts_.undecided() > 0) {
      text += ", " + counted(counts_.undecided(), "dispute") + " undecided";
    }
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
    const std::vector<double>& again = audit.again.at(audit.auditor).scores;
    *dispute.mutable_recorded() = {audit.recorded.scores.begin(), audit.recorded.scores.end()};
    *dispute.mutable_again() = {again.begin(), again.end()};
  }
  return status;
}

}  // namespace allot
