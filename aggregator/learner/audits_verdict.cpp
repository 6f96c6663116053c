// The part of Audits that compares answers, and says which worker lies.
#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>

#include "aggregator/learner/audits.h"
#include "aggregator/learner/worker_names.h"
#include "core/evaluation/measured_again.h"
#include "core/spec/spec_yaml.h"

namespace allot {
namespace {

constexpr uint64_t kNoThirdMs = 60'000;  // a dispute waits for a worker that can decide it
constexpr double kFalseAlarms = 0.001;   // runs in which an honest worker is suspect, at most

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

// Returns a noun for what differs in two lists of answers, as in "scores".
std::string whatDiffers(const std::vector<v1::QuestionScore>& a,
                        const std::vector<v1::QuestionScore>& b) {
  bool scores = false, tasks = false;
  for (size_t i = 0; i < a.size(); ++i) {
    scores = scores || a[i].score() != b[i].score();
    tasks = tasks || a[i].task() != b[i].task();
  }
  if (scores) return tasks ? "scores and tasks" : "scores";
  return tasks ? "tasks" : "other scores";
}

}  // namespace

bool Audits::differs(const v1::QuestionScore& a, const v1::QuestionScore& b, bool exact) {
  return a.score() != b.score() || a.task() != b.task() ||
         (exact &&
          (a.has_other_score() != b.has_other_score() || a.other_score() != b.other_score()));
}

size_t Audits::differingAt(const Audit& audit, size_t answer) {
  return static_cast<size_t>(
      std::count_if(audit.again.begin(), audit.again.end(), [&](const auto& again) {
        return differs(again.second[answer], audit.recorded[answer], false);
      }));
}

// Compares an answer with the author's. Returns true if the audit is over.
bool Audits::compare(Audit* audit, const v1::AuditAnswers& from, const v1::AuditAnswer& answer) {
  Reply reply = {answer.scores().begin(), answer.scores().end()};
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
  for (size_t i = 0; i < reply.size(); ++i) {
    differing += differs(reply[i], audit->recorded[i], exact) ? 1 : 0;
  }
  const bool is_first = audit->auditor.empty();
  if (is_first) {
    counts_.set_audited(counts_.audited() + reply.size());
    counts_.set_differing(counts_.differing() + differing);
    v1::AuditedWorker& author = of(audit->author);
    author.set_audited(author.audited() + reply.size());
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
  for (size_t i = 0; i < audit.recorded.size(); ++i) {
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
  // By score, task and other score of each answer; an other score of -1: none.
  std::map<std::vector<std::tuple<double, uint32_t, double>>, std::set<std::string>> sides;
  const auto add = [&](const std::string& worker, const Reply& reply) {
    std::vector<std::tuple<double, uint32_t, double>> side;
    for (const v1::QuestionScore& of : reply) {
      side.emplace_back(of.score(), of.task(), of.has_other_score() ? of.other_score() : -1);
    }
    sides[side].insert(worker);
  };
  add(audit.author, audit.recorded);
  for (const auto& [worker, reply] : audit.again) add(worker, reply);
  const size_t votes = 1 + audit.again.size(), open = stillOpen(audit);
  const auto most = std::max_element(sides.begin(), sides.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  if (2 * most->second.size() > votes + open) {
    const std::string where = nameOf(audit.task), right = namesOf(most->second);
    const auto one = audit.again.find(*most->second.begin());
    const Reply& again = one == audit.again.end() ? audit.recorded : one->second;
    for (const auto& [side, workers] : sides) {
      if (side == most->first) continue;
      for (const std::string& worker : workers) {
        mark(worker,
             worker == audit.author
                 ? "its " + whatDiffers(audit.recorded, again) + " of " + where +
                       " are not those that workers " + right + " measure"
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
  for (size_t i = 0; i < audit.recorded.size(); ++i) {
    const double recorded = audit.recorded[i].score(), again = first[i].score();
    const size_t differing = differingAt(audit, i);
    const bool is_other =
        differs(audit.recorded[i], first[i], false) && (all == 2 || 2 * differing > all);
    counts.set_answers(counts.answers() + 1);
    // Of another task alone, too: no device changes that.
    if (is_other && recorded >= again) counts.set_higher(counts.higher() + 1);
    if (is_other && recorded < again) counts.set_lower(counts.lower() + 1);
    // The lower middle one: a few that lie about lengths decide nothing.
    std::vector<uint32_t> tokens = {audit.recorded[i].tokens()};
    for (const auto& [worker, reply] : audit.again) tokens.push_back(reply[i].tokens());
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

}  // namespace allot
