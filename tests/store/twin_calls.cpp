#include "tests/store/twin_calls.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/evaluation/answers.h"
#include "store/checks.h"
#include "tests/identity.h"

namespace allot::test {
namespace {

// --- answers as texts ---

std::string text(uint64_t number) { return std::to_string(number); }
std::string text(bool yes) { return yes ? "true" : "false"; }
std::string text(const std::string& bytes) { return "\"" + bytes + "\""; }
std::string text(PushOutcome outcome) { return std::to_string(static_cast<int>(outcome)); }
std::string text(const google::protobuf::Message& message) {
  return "{" + message.ShortDebugString() + "}";
}
// How full it is, each side says in its own bytes.
std::string text(const StoreFill&) { return "a figure"; }
std::string text(const Lease& lease) {
  return text(lease.held) + " " + lease.holder + " epoch " + text(lease.epoch);
}
std::string text(const Refusal& refusal) {
  return refusal.result_id + " " + refusal.kind + " " + refusal.reason;
}
std::string text(const InboxEntry& entry) {
  return text(entry.result_id) + " " + text(entry.payload) + " " + text(entry.bytes);
}
std::string text(const Evaluation& evaluation) {
  return text(evaluation.result) + " " + text(evaluation.answers_bytes) +
         (evaluation.accepted ? " accepted" : "");
}
std::string text(const PublishedPolicy& policy) { return text(policy.snapshot) + policy.sha256; }
std::string text(const Control& control) {
  return std::string(wordOf(control.desired)) + text(control.experiment) + text(control.file) +
         text(control.revision);
}
std::string text(const RunSpec& spec) {
  return text(spec.experiment) + spec.sha256 + text(spec.synchronous) + text(spec.started_unix_ms) +
         (spec.origin ? text(*spec.origin) : "") + text(uint64_t{spec.schema}) + spec.build;
}
std::string text(const Replacement& replacement) {
  return text(static_cast<uint64_t>(replacement.outcome)) + " " + text(replacement.updates) + " " +
         text(replacement.evaluations);
}
template <typename T>
std::string text(const std::optional<T>& value) {
  return value ? text(*value) : "nothing";
}
template <typename T>
std::string text(const std::vector<T>& list) {
  std::string all = "[";
  for (const T& one : list) all += text(one) + ", ";
  return all + "]";
}
std::string text(const std::map<std::string, uint64_t>& counts) {
  std::string all;
  for (const auto& [name, count] : counts) all += name + " " + text(count) + ", ";
  return all;
}
template <typename T>
std::string text(const Result<T>& answer) {
  if (!answer) return "error " + std::to_string(answer.error().exitCode());
  if constexpr (std::is_void_v<T>) {
    return "done";
  } else {
    return text(*answer);
  }
}

// --- one function for each call of Store ---

// A call without arguments.
template <typename Answer, typename Role>
std::function<Call(Scene&)> plain(Answer (Role::*call)()) {
  return [call](Scene&) -> Call { return [call](Store& s, Side&) { return text((s.*call)()); }; };
}

Call createRun(Scene& scene) {
  const RunSpec spec = runSpec(scene.mostly() ? "aa" : "bb");
  return [=](Store& s, Side&) { return text(s.createRun(spec)); };
}
Call replaceRun(Scene& scene) {
  const RunSpec next = runSpec(scene.one({"aa", "bb", "cc", ""}));
  const bool stale = !scene.mostly();
  return [=](Store& s, Side&) {
    // As with beginImport.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    Control mine{Desired::kRunning, next.experiment, next.experiment, 0};
    if (const auto now = *s.readControl()) mine.revision = now->revision - (stale ? 1 : 0);
    return text(s.replaceRun(next, mine));
  };
}
Call agreeOnModel(Scene& scene) {
  v1::ModelFacts facts;
  facts.set_layers(static_cast<uint32_t>(scene.below(3)));
  return [=](Store& s, Side&) { return text(s.agreeOnModel(facts)); };
}
Call changeControl(Scene& scene) {
  Control next{kAllOf<Desired>[scene.below(kCountOf<Desired>)], {}, {}, 0};
  next.experiment.set_name("recall");
  const bool stale = !scene.mostly();
  return [=](Store& s, Side&) {
    Control mine = next;
    if (const auto now = *s.readControl()) mine.revision = now->revision - (stale ? 1 : 0);
    return text(s.changeControl(mine));
  };
}
Call acquireLease(Scene& scene) {
  const std::string holder = scene.one({"a", "b", "a", "b", ""});
  return [=, ttl = scene.ttl()](Store& s, Side&) { return text(s.acquireLease(holder, ttl)); };
}
Call releaseLease(Scene& scene) {
  return [holder = scene.one({"a", "b"})](Store& s, Side&) { return text(s.releaseLease(holder)); };
}
Call publishInitial(Scene& scene) {
  const auto first = policy(scene.mostly() ? 0 : 1);
  return [=, epoch = scene.epoch()](Store& s, Side&) {
    return text(Leadership(s, epoch).publishInitial(first, state(0)));
  };
}
Call writeState(Scene& scene) {
  const auto next = state(scene.version(), scene.below(9));
  return [=, epoch = scene.epoch()](Store& s, Side&) {
    return text(Leadership(s, epoch).writeState(next));
  };
}
Call publishStatus(Scene& scene) {
  v1::AggregatorStatus status;
  status.set_phase(scene.one({"running", "paused"}));
  return [=, epoch = scene.epoch()](Store& s, Side&) {
    return text(Leadership(s, epoch).publishStatus(status));
  };
}
Call commit(Scene& scene) {
  const auto places = scene.someEntries(3);
  const auto forget = scene.mostly() ? std::nullopt : std::optional(scene.below(3));
  return [=, epoch = scene.epoch(), version = scene.version(), tickets = scene.someTickets()](
             Store& s, Side& side) {
    std::vector<InboxEntry> consumed;
    for (const size_t place : places) consumed.push_back(side.entries[place]);
    Commit made = commitOf(version, consumed);
    made.tickets = tickets;
    made.forget_policy = forget;
    return text(Leadership(s, epoch).commit(made));
  };
}
Call readPolicies(Scene& scene) {
  return [first = scene.below(4), count = scene.below(4)](Store& s, Side&) {
    return text(s.readPolicies(first, count));
  };
}
Call countedTickets(Scene& scene) {
  return
      [tickets = scene.someTickets()](Store& s, Side&) { return text(s.countedTickets(tickets)); };
}
// Returns whose signature it is.
std::string signer(Store& s, std::string_view kind, const std::string& bytes,
                   const std::string& signature) {
  for (const char* name : {"v", "w"}) {
    for (const std::string spec : {"", "aa", "bb", "cc"}) {
      const SignedFor what{kind, s.runId(), spec};
      if (checkSignature(identityOf(name).name(), what, bytes, signature)) return name + spec;
    }
  }
  return signature.empty() ? " unsigned" : " signed wrongly";
}
Call readInbox(Scene& scene) {
  return [count = scene.below(5)](Store& s, Side& side) {
    const auto read = s.readInbox(count, 0);
    std::string told = text(read);
    if (!read) return told;
    side.entries.insert(side.entries.end(), read->begin(), read->end());
    for (const InboxEntry& entry : *read) {
      told += signer(s, kSignedResult, entry.payload, entry.signature);
    }
    return told;
  };
}
Call reject(Scene& scene) {
  const auto places = scene.someEntries(1);
  const RefusalKind kind = scene.mostly() ? RefusalKind::kInvalid : RefusalKind::kStale;
  const std::string forged = scene.mostly() ? "" : scene.resultId();
  return [=, epoch = scene.epoch()](Store& s, Side& side) {
    if (places.empty()) return std::string();
    InboxEntry entry = side.entries[places[0]];
    if (!forged.empty()) entry.result_id = forged;
    return text(Leadership(s, epoch).reject(entry, kind, "because"));
  };
}
Call rejectEvaluation(Scene& scene) {
  const auto place = scene.someEvaluation();
  const uint64_t reopen = scene.below(3);
  return [=, epoch = scene.epoch(), other = scene.someUnit(), hold = scene.ttl()](Store& s,
                                                                                  Side& side) {
    if (!place) return std::string();
    const Evaluation& evaluation = side.evaluations[*place];
    const v1::EvaluationUnit* units[] = {nullptr, &evaluation.result.unit(), &other};
    return text(Leadership(s, epoch).rejectEvaluation(evaluation, RefusalKind::kInvalid, "because",
                                                      units[reopen], hold));
  };
}
Call acceptEvaluations(Scene& scene) {
  const auto place = scene.someEvaluation();
  return [=, epoch = scene.epoch()](Store& s, Side& side) {
    if (!place) return std::string();
    return text(Leadership(s, epoch).acceptEvaluations({side.evaluations[*place]}));
  };
}
v1::AuditTasks someTasks(Scene& scene) {
  v1::AuditTasks tasks;
  tasks.set_worker(scene.below(2) == 0 ? "w0" : "w1");
  tasks.set_number(scene.below(3));
  return tasks;
}
Call exchangeAudits(Scene& scene) {
  std::vector<v1::AuditTasks> tasks;
  if (scene.mostly()) tasks.push_back(someTasks(scene));
  return [=, epoch = scene.epoch()](Store& s, Side&) {
    auto answers = Leadership(s, epoch).exchangeAudits(tasks);
    std::string told;
    if (!answers) return text(answers);
    for (v1::AuditAnswers& of : *answers) {
      told += signer(s, kSignedAudit, store::signedBytes(of), of.signature());
      of.clear_signature();
    }
    return told + text(answers);
  };
}
Call readAudits(Scene& scene) {
  return
      [worker = someTasks(scene).worker()](Store& s, Side&) { return text(s.readAudits(worker)); };
}
Call answerAudits(Scene& scene) {
  v1::AuditAnswers answers;
  answers.set_worker(someTasks(scene).worker());
  answers.set_number(scene.below(3));
  return [=](Store& s, Side&) { return text(s.answerAudits(answers)); };
}
Call reissueTicket(Scene& scene) {
  const uint64_t ticket = scene.mostly() ? scene.below(12) : uint64_t{1} << 60;
  return [=, epoch = scene.epoch()](Store& s, Side&) {
    return text(Leadership(s, epoch).reissueTicket(ticket));
  };
}
Call resetTickets(Scene& scene) {
  return [next = scene.below(12), epoch = scene.epoch()](Store& s, Side&) {
    return text(Leadership(s, epoch).resetTickets(next));
  };
}
Call planUnits(Scene& scene) {
  return [epoch = scene.epoch(), units = scene.someUnits()](Store& s, Side&) {
    return text(Leadership(s, epoch).planUnits(units));
  };
}
Call withdrawUnits(Scene& scene) {
  return [epoch = scene.epoch()](Store& s, Side&) {
    return text(Leadership(s, epoch).withdrawUnits());
  };
}
Call repair(Scene& scene) {
  return [epoch = scene.epoch(), most = scene.below(3)](Store& s, Side&) {
    const auto mended = Leadership(s, epoch).repair({.reissued_tickets = most});
    return mended ? std::to_string(mended->size()) : text(Status(tl::unexpected(mended.error())));
  };
}
Call takeTickets(Scene& scene) {
  const TicketRequest request{
      .count = scene.below(4), .limit = scene.below(30), .shared = scene.below(6)};
  return [request](Store& s, Side&) { return text(s.takeTickets(request)); };
}
Call signAs(Scene& scene) {
  return [identity = identityOf(scene.one({"v", "w"}))](Store& s, Side&) {
    s.signAs(identity);
    return std::string();
  };
}
Call pushResult(Scene& scene) {
  const auto made = result(scene.mostly() ? scene.resultId() : "", scene.below(5));
  return [=, cap = 3 + scene.below(8)](Store& s, Side&) { return text(s.pushResult(made, cap)); };
}
Call claimUnits(Scene& scene) {
  std::vector<uint32_t> warm;
  if (scene.below(2) == 0) warm.push_back(static_cast<uint32_t>(scene.below(3)));
  const ClaimRequest request{.holder = scene.mostly() ? scene.one({"v", "w"}) : "",
                             .warm = warm,
                             .count = scene.below(5),
                             .lease_ms = scene.ttl()};
  return [=](Store& s, Side&) { return text(s.claimUnits(request)); };
}
Call releaseUnits(Scene& scene) {
  return [holder = scene.one({"v", "w"}), units = scene.someUnits()](Store& s, Side&) {
    return text(s.releaseUnits(holder, units));
  };
}
// With no answers, some, or too many.
v1::EvaluationResult someEvaluation(Scene& scene, const std::string& worker) {
  v1::EvaluationResult made = evaluationOf(scene.someUnit(), worker);
  const uint64_t most = scene.below(12) == 0 ? kLargestAnswers : 40;
  for (uint64_t left = scene.below(3); left > 0; --left) {
    v1::Answer& answer = *made.mutable_answers()->add_answers();
    answer.set_question(static_cast<uint32_t>(left));
    answer.set_text(std::string(scene.below(most), 'x'));
  }
  if (scene.below(6) == 0) made.mutable_answers();  // there, and empty
  return made;
}
Call pushEvaluation(Scene& scene) {
  const auto made = someEvaluation(scene, scene.one({"v", "w"}));
  return [=](Store& s, Side&) { return text(s.pushEvaluation(made)); };
}
Call listWorkers(Scene&) {
  return [](Store& s, Side&) {
    auto workers = s.listWorkers();
    if (!workers) return text(workers);
    std::string told;
    for (v1::WorkerBeat& beat : *workers) {
      told += signer(s, kSignedBeat, store::signedBytes(beat), beat.signature());
      beat.clear_signature();
      told += text(beat);
    }
    return told;
  };
}
Call beat(Scene& scene) {
  Heartbeat heartbeat{.ttl_ms = scene.ttl(), .claim_ms = scene.ttl()};
  heartbeat.beat.set_worker(scene.one({"v", "w", ""}));
  heartbeat.beat.set_episodes(scene.below(9));
  for (const auto& unit : scene.someUnits()) heartbeat.units.push_back(unit.unit_id());
  return [=](Store& s, Side&) { return text(s.beat(heartbeat)); };
}
Call awaitNews(Scene&) {
  return [](Store& s, Side&) { return text(s.awaitNews(1, [] { return false; })); };
}
Call leave(Scene& scene) {
  return [worker = scene.one({"v", "w"})](Store& s, Side&) { return text(s.leave(worker)); };
}
Call readHistory(Scene& scene) {
  return [after = scene.below(4), count = scene.below(9)](Store& s, Side&) {
    return text(s.readHistory(after, count));
  };
}
Call readEvaluations(Scene& scene) {
  const auto place = scene.below(2) == 0 ? scene.someEvaluation() : std::nullopt;
  return [=, count = scene.below(9)](Store& s, Side& side) {
    const auto read = s.readEvaluations(side.afterThat(place), count);
    if (read) side.evaluations.insert(side.evaluations.end(), read->begin(), read->end());
    return text(read);
  };
}
Call readRecorded(Scene& scene) {
  return [count = scene.below(9)](Store& s, Side& side) {
    const auto read = s.readRecorded(count);
    std::string told = text(read);
    if (!read) return told;
    side.evaluations.insert(side.evaluations.end(), read->begin(), read->end());
    for (const Evaluation& evaluation : *read) {
      told += text(evaluation.signed_bytes) +
              signer(s, kSignedEvaluation, evaluation.signed_bytes, evaluation.signature);
    }
    return told;
  };
}
Call readAnswers(Scene& scene) {
  const auto place = scene.below(2) == 0 ? scene.someEvaluation() : std::nullopt;
  return [=, count = scene.below(9)](Store& s, Side& side) {
    return text(s.readAnswers(side.afterThat(place), count));
  };
}
Call readRefusals(Scene& scene) {
  return [count = scene.below(9)](Store& s, Side&) { return text(s.readRefusals(count)); };
}
Call beginImport(Scene&) {
  return [](Store& s, Side&) {
    // It forgets the inbox; Redis would use the entry ids of this millisecond again.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return text(s.beginImport());
  };
}
Call importHistory(Scene& scene) {
  std::vector<v1::IterationRecord> records;
  for (uint64_t left = scene.below(3), v = scene.below(3); left > 0; --left) {
    records.push_back(commitOf(v++, {}).record);
    *records.back().add_results() = result(scene.resultId(), scene.below(2000));
  }
  return [=](Store& s, Side&) { return text(s.importHistory(records)); };
}
Call importEvaluations(Scene& scene) {
  const auto made = someEvaluation(scene, "importer");
  return [=](Store& s, Side&) { return text(s.importEvaluations({made})); };
}
Call endImport(Scene& scene) {
  RunImage image;
  image.spec = runSpec("aa");
  if (const uint64_t version = scene.below(3); version > 0) image.state = state(version);
  image.next_ticket = scene.below(9);
  image.open_units = scene.someUnits();
  return [=](Store& s, Side&) { return text(s.endImport(image)); };
}

}  // namespace

const std::vector<Kind>& twinCalls() {
  static const std::vector<Kind> calls = {
      {"createRun", 1, createRun},
      {"readSpec", 1, plain(&Store::readSpec)},
      {"replaceRun", 1, replaceRun},
      {"agreeOnModel", 1, agreeOnModel},
      {"readModel", 1, plain(&Store::readModel)},
      {"readControl", 1, plain(&Store::readControl)},
      {"changeControl", 1, changeControl},
      {"acquireLease", 4, acquireLease},
      {"readLease", 1, plain(&Store::readLease)},
      {"releaseLease", 1, releaseLease},
      {"publishInitial", 3, publishInitial},
      {"readState", 1, plain(&Store::readState)},
      {"writeState", 2, writeState},
      {"publishStatus", 1, publishStatus},
      {"readStatus", 1, plain(&Store::readStatus)},
      {"commit", 5, commit},
      {"readPolicies", 2, readPolicies},
      {"countedTickets", 2, countedTickets},
      {"readInbox", 6, readInbox},
      {"reopenInbox", 2, plain(&Store::reopenInbox)},
      {"reject", 3, reject},
      {"rejectEvaluation", 3, rejectEvaluation},
      {"acceptEvaluations", 3, acceptEvaluations},
      {"exchangeAudits", 2, exchangeAudits},
      {"readAudits", 2, readAudits},
      {"answerAudits", 2, answerAudits},
      {"inboxSize", 1, plain(&Store::inboxSize)},
      {"reissueTicket", 2, reissueTicket},
      {"resetTickets", 1, resetTickets},
      {"planUnits", 4, planUnits},
      {"withdrawUnits", 1, withdrawUnits},
      {"repair", 1, repair},
      {"openUnits", 1, plain(&Store::openUnits)},
      {"listUnits", 1, plain(&Store::listUnits)},
      {"fill", 1, plain(&Store::fill)},
      {"readPolicy", 1, plain(&Store::readPolicy)},
      {"takeTickets", 4, takeTickets},
      {"signAs", 1, signAs},
      {"pushResult", 8, pushResult},
      {"claimUnits", 4, claimUnits},
      {"releaseUnits", 2, releaseUnits},
      {"pushEvaluation", 4, pushEvaluation},
      {"beat", 2, beat},
      {"leave", 1, leave},
      {"awaitNews", 2, awaitNews},
      {"listWorkers", 1, listWorkers},
      {"readHistory", 1, readHistory},
      {"readEvaluations", 4, readEvaluations},
      {"readRecorded", 4, readRecorded},
      {"readAnswers", 3, readAnswers},
      {"nextTicket", 1, plain(&Store::nextTicket)},
      {"readRefusalCounts", 1, plain(&Store::readRefusalCounts)},
      {"readRefusals", 1, readRefusals},
      {"beginImport", 1, beginImport},
      {"importHistory", 2, importHistory},
      {"importEvaluations", 1, importEvaluations},
      {"endImport", 1, endImport},
  };
  return calls;
}

}  // namespace allot::test
