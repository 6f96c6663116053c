// The part of Aggregator that has answers given again by second workers (audits.h).
#include <algorithm>
#include <utility>

#include "aggregator/learner/aggregator.h"
#include "core/worker_identity.h"
#include "store/checks.h"

namespace allot {
namespace {

constexpr uint64_t kLookAtWorkersMs = 1'000;

}  // namespace

// Takes the marks and counts of an earlier process from its last status.
Status Aggregator::restoreAudits() {
  if (!audits_restored_) {
    ALLOT_ASSIGN(const auto told, store_.readStatus());
    if (told) audits_.restore(told->audits());
    audits_restored_ = true;
  }
  audits_.setShare(control_.experiment.spec().audit().share());
  lookAtWorkers();
  return {};
}

// On an error the last workers stay.
void Aggregator::lookAtWorkers() {
  workers_looked_ = options_.now();
  if (const auto workers = store_.listWorkers()) audits_.setWorkers(*workers);
}

// Asks workers for answers, and compares those that they have given.
Status Aggregator::audit() {
  const uint64_t now = options_.now();
  // Time in which nobody is asked, as in a paused run, does not count against those who were.
  audit_ms_ += std::min(now - std::exchange(audited_ms_, now), kLookAtWorkersMs);
  if (control_.desired == Desired::kPaused) return {};
  audits_.setShare(control_.experiment.spec().audit().share());
  if (!workers_looked_ || now - *workers_looked_ >= kLookAtWorkersMs) lookAtWorkers();
  const auto tasks = audits_.ask(audit_ms_);
  if (!tasks.empty() || audits_asked_) {
    ALLOT_ASSIGN(auto answers, leadership_->exchangeAudits(tasks));
    std::erase_if(answers, [&](const v1::AuditAnswers& of) {
      return !checkSignature(of.worker(), kSignedAudit, store_.runId(), store::signedBytes(of),
                             of.signature());
    });
    audits_asked_ = !tasks.empty();
    if (audits_.answered(answers)) readEvaluationsAgain();
  }
  return refuseLiars();
}

// Makes the next tick read all accepted evaluations, so that accepted ones of workers that lie are
// refused and their units opened.
void Aggregator::readEvaluationsAgain() {
  status_published_.reset();  // a successor must know
  evaluations_ = EvaluationTable(run_.experiment, EvaluationTable::Keep::kNewest);
  fidelity_ = FidelityTable(run_.experiment.spec(), true);
  evaluations_read_.clear();
  evaluation_seconds_ = 0;
  accepted_units_ = answers_bytes_ = 0;
  evaluations_caught_up_ = evaluations_settled_ = false;
}

// Refuses the waiting results of workers that lie.
Status Aggregator::refuseLiars() {
  for (auto it = held_.begin(); it != held_.end();) {
    const std::string how = audits_.lies(it->second.result.worker());
    if (how.empty()) {
      ++it;
      continue;
    }
    ALLOT_TRY(refuse(it->second.entry, RefusalKind::kInvalid, "its worker lies: " + how));
    held_tickets_.erase(it->second.result.ticket());
    it = held_.erase(it);
  }
  return {};
}

}  // namespace allot
