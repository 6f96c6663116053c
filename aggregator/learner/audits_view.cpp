// The part of Audits that people see: its sentences and the status.
#include <algorithm>

#include "aggregator/learner/audits.h"
#include "aggregator/learner/worker_names.h"
#include "core/spec/spec_yaml.h"

namespace allot {

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
    const Reply& again = audit.again.at(audit.auditor);
    *dispute.mutable_recorded() = {audit.recorded.begin(), audit.recorded.end()};
    *dispute.mutable_again() = {again.begin(), again.end()};
  }
  return status;
}

}  // namespace allot
