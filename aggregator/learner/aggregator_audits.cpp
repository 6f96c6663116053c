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
    claimed_time_.restore(told ? told->audits() : v1::AuditStatus(), options_.now(),
                          options_.unix_now(), run_.started_unix_ms);
    liars_ = audits_.liars();
    audits_restored_ = true;
  }
  audits_.setShare(control_.experiment.spec().audit().share());
  lookAtWorkers();
  return {};
}

// On an error the last workers stay. Beats that their worker has not signed say nothing.
void Aggregator::lookAtWorkers() {
  workers_looked_ = options_.now();
  auto workers = store_.listWorkers();
  if (!workers) return;
  std::erase_if(*workers, [&](const v1::WorkerBeat& beat) {
    return !checkSignature(beat.worker(), signedFor(kSignedBeat), store::signedBytes(beat),
                           beat.signature());
  });
  audits_.setWorkers(*workers, options_.now());
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
      return !checkSignature(of.worker(), signedFor(kSignedAudit), store::signedBytes(of),
                             of.signature());
    });
    audits_asked_ = !tasks.empty();
    audits_.answered(answers);
  }
  if (std::exchange(liars_, audits_.liars()) != audits_.liars()) readEvaluationsAgain();
  put_aside_.merge(audits_.takePutAside());
  ALLOT_TRY(refuseHeld());
  if (evaluations_settled_) put_aside_.clear();
  return {};
}

// Makes the next tick read all accepted evaluations, so that accepted ones of workers that lie are
// refused and their units opened.
void Aggregator::readEvaluationsAgain() {
  status_published_.reset();  // a successor must know
  evaluations_ = EvaluationTable(run_.experiment, EvaluationTable::Keep::kNewest);
  fidelity_ = FidelityTable(run_.experiment.spec(), true);
  layer_losses_.emplace(run_.experiment, model_->layers());
  question_tasks_ = {};
  evaluations_read_.clear();
  evaluation_seconds_ = 0;
  accepted_units_ = answers_bytes_ = 0;
  evaluations_caught_up_ = evaluations_settled_ = false;
}

std::string Aggregator::whyRefused(const std::string& worker) const {
  if (const std::string how = audits_.lies(worker); !how.empty()) return "its worker lies: " + how;
  const auto aside = put_aside_.find(worker);
  return aside == put_aside_.end() ? "" : aside->second;
}

// Others do again what is put aside, which is no sign of an invalid result.
RefusalKind Aggregator::refusalOf(const std::string& worker) const {
  const bool aside = audits_.lies(worker).empty() && put_aside_.contains(worker);
  return aside ? RefusalKind::kSuperseded : RefusalKind::kInvalid;
}

// Refuses waiting results of workers that lie, or whose dispute nobody decided.
Status Aggregator::refuseHeld() {
  for (auto it = held_.begin(); it != held_.end();) {
    const std::string why = whyRefused(it->second.result.worker());
    if (why.empty()) {
      ++it;
      continue;
    }
    ALLOT_TRY(refuse(it->second.entry, refusalOf(it->second.result.worker()), why));
    held_tickets_.erase(it->second.result.ticket());
    it = held_.erase(it);
  }
  return {};
}

}  // namespace allot
