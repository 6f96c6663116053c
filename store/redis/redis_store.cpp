#include "store/redis/redis_store.h"

#include <algorithm>

#include "core/digest.h"
#include "core/evaluation/answers.h"
#include "store/checks.h"
#include "store/redis/lua_scripts.h"

namespace allot {
namespace {

using store::toNumber;

constexpr std::string_view kIndex = "allot:index";

// Returns true for what Redis says of keys that lua/repair.lua mends.
bool isBrokenKey(const Error& error) {
  const std::string_view said = error.message;
  return error.code == ErrorCode::kInternal &&
         (said.find("WRONGTYPE") != said.npos || said.find("last possible ID") != said.npos ||
          said.find("invalid start ID") != said.npos || said.find("not an integer") != said.npos);
}

}  // namespace

Result<std::unique_ptr<Store>> openRedisStore(const std::string& url, const std::string& run_id,
                                              uint64_t timeout_ms, StoreObserver* observer) {
  ALLOT_TRY(store::checkRunId(run_id));
  ALLOT_ASSIGN(RedisAddress address, parseRedisUrl(url));
  return std::make_unique<RedisStore>(RedisConnection(std::move(address), timeout_ms, observer),
                                      run_id);
}

Result<std::optional<std::string>> findRun(const std::string& url, const std::string& experiment) {
  ALLOT_ASSIGN(RedisAddress address, parseRedisUrl(url));
  RedisConnection connection(std::move(address), 5000);
  ALLOT_ASSIGN(const RedisReply reply, connection.call({"HGET", kIndex, experiment}));
  if (!reply.view().isText()) return std::nullopt;
  return std::string(reply.view().text());
}

Result<std::string> findOrNameRun(const std::string& url, const std::string& experiment,
                                  const std::string& fresh) {
  ALLOT_TRY(store::checkRunId(fresh));
  ALLOT_ASSIGN(RedisAddress address, parseRedisUrl(url));
  RedisConnection connection(std::move(address), 5000);
  ALLOT_ASSIGN(const RedisReply reply,
               connection.run(lua::name_run, {kIndex}, {experiment, fresh}));
  return std::string(reply.view()[1].text());
}

Result<std::map<std::string, std::string>> listRuns(const std::string& url) {
  ALLOT_ASSIGN(RedisAddress address, parseRedisUrl(url));
  RedisConnection connection(std::move(address), 5000);
  ALLOT_ASSIGN(const RedisReply reply, connection.call({"HGETALL", kIndex}));
  std::map<std::string, std::string> runs;
  for (size_t i = 0; i + 1 < reply.view().size(); i += 2)
    runs.emplace(reply.view()[i].text(), reply.view()[i + 1].text());
  return runs;
}

RedisStore::RedisStore(RedisConnection connection, std::string run_id)
    : connection_(std::move(connection)),
      run_id_(std::move(run_id)),
      prefix_("allot:{" + run_id_ + "}:") {}

std::string RedisStore::key(std::string_view name) const { return prefix_ + std::string(name); }

Result<RedisReply> RedisStore::run(const RedisScript& script,
                                   const RedisConnection::Arguments& arguments) {
  std::vector<std::string_view> names;
  names.reserve(script.keys.size());
  for (const ScriptKey& key : script.keys) names.push_back(key.name);
  return run(script, names, arguments);
}

Result<RedisReply> RedisStore::run(const RedisScript& script,
                                   const std::vector<std::string_view>& names,
                                   const RedisConnection::Arguments& arguments) {
  const bool declared =
      std::equal(names.begin(), names.end(), script.keys.begin(), script.keys.end(),
                 [](std::string_view name, const ScriptKey& key) {
                   const auto names = key.names();
                   return std::find(names.begin(), names.end(), name) != names.end();
                 });
  if (!declared)
    return fail(ErrorCode::kInternal, "script " + std::string(script.name) +
                                          " is given other keys than its first lines name: "
                                          "make them the same");
  std::vector<std::string> keys;
  keys.reserve(names.size());
  for (const std::string_view name : names) keys.push_back(key(name));
  auto reply = connection_.run(script, {keys.begin(), keys.end()}, arguments);
  if (!reply && isBrokenKey(reply.error())) {
    return fail(
        ErrorCode::kUnavailable,
        "a key of the run is broken; the aggregator mends those that workers may write, within "
        "seconds, and if this stays, import the run's last export: " +
            reply.error().message);
  }
  return reply;
}

tl::unexpected<Error> RedisStore::unexpectedReply(std::string_view what) const {
  return fail(ErrorCode::kInternal, "the store at " + connection_.url() +
                                        " gave an answer of unknown form to " + std::string(what));
}

Status RedisStore::runFenced(const RedisScript& script, uint64_t epoch,
                             RedisConnection::Arguments arguments) {
  const std::string held = std::to_string(epoch);
  arguments.insert(arguments.begin(), held);
  ALLOT_ASSIGN(const RedisReply reply, run(script, arguments));
  return fencedStatus(reply, epoch);
}

Status RedisStore::fencedStatus(const RedisReply& reply, uint64_t epoch) const {
  const std::string_view word = reply.view()[0].text();
  if (word == "OK") return {};
  if (word == "FENCED") return tl::unexpected(store::fenced(epoch, reply.view()[1].text()));
  return unexpectedReply("a fenced write");
}

// --- run ---

Status RedisStore::createRun(const RunSpec& spec) {
  ALLOT_TRY(store::checkRunSpec(spec));
  ALLOT_ASSIGN(
      const RedisReply reply,
      run(lua::create_run, {spec.experiment.SerializeAsString(), spec.sha256,
                            spec.synchronous ? "1" : "0", std::to_string(spec.started_unix_ms),
                            spec.origin ? spec.origin->SerializeAsString() : std::string(),
                            spec.arithmetic, std::to_string(spec.schema), spec.build}));
  const std::string_view word = reply.view()[0].text();
  if (word == "OTHER")
    return tl::unexpected(store::otherExperiment(run_id_, reply.view()[1].text(), spec.sha256));
  if (word == "IMPORT") return tl::unexpected(store::beingImported(run_id_));
  if (word != "OK") return unexpectedReply("createRun");
  spec_sha256_ = spec.sha256;
  return updateIndex(spec.experiment.name());
}

Status RedisStore::updateIndex(const std::string& experiment) {
  // A separate call, because the index has another prefix than the run. After a crash in between,
  // createRun or endImport is called again.
  ALLOT_TRY(connection_.run(lua::update_index, {kIndex}, {experiment, run_id_}));
  return {};
}

Result<std::optional<RunSpec>> RedisStore::readSpec() {
  ALLOT_ASSIGN(const RedisReply reply,
               connection_.call({"HMGET", key("spec"), "experiment", "sha256", "synchronous",
                                 "started_unix_ms", "origin", "arithmetic", "schema", "build"}));
  const RedisView fields = reply.view();
  if (!fields[1].isText()) return std::nullopt;
  RunSpec spec;
  ALLOT_ASSIGN(spec.experiment, store::decode<v1::Experiment>(fields[0].text(), key("spec")));
  spec.sha256 = fields[1].text();
  spec.synchronous = fields[2].text() == "1";
  ALLOT_ASSIGN(spec.started_unix_ms, toNumber(fields[3].text(), key("spec")));
  if (fields[4].isText()) {
    ALLOT_ASSIGN(spec.origin, store::decode<v1::Origin>(fields[4].text(), key("spec")));
  }
  if (fields[5].isText()) spec.arithmetic = fields[5].text();
  uint64_t schema = 0;
  if (fields[6].isText()) {
    ALLOT_ASSIGN(schema, toNumber(fields[6].text(), key("spec")));
  }
  spec.schema = static_cast<uint32_t>(std::min<uint64_t>(schema, UINT32_MAX));
  spec.build = fields[7].isText() ? fields[7].text() : "";
  ALLOT_TRY(store::completeStored(&spec, run_id_));
  spec_sha256_ = spec.sha256;
  return spec;
}

Result<Replacement> RedisStore::replaceRun(const RunSpec& next, const Control& control) {
  ALLOT_TRY(store::checkRunSpec(next));
  ALLOT_TRY(store::checkControl(control));
  ALLOT_ASSIGN(
      const RedisReply reply,
      run(lua::replace_run,
          {std::to_string(control.revision), next.experiment.SerializeAsString(), next.sha256,
           std::to_string(next.schema), next.build, control.experiment.SerializeAsString(),
           control.file.SerializeAsString(), next.arithmetic}));
  const std::string_view word = reply.view()[0].text();
  if (word == "OK") return Replacement{};
  if (word == "CHANGED") return Replacement{Replacement::Outcome::kChanged};
  if (word != "BEGUN") return unexpectedReply("replaceRun");
  Replacement begun{Replacement::Outcome::kBegun};
  begun.updates = static_cast<uint64_t>(reply.view()[1].integer());
  begun.evaluations = static_cast<uint64_t>(reply.view()[2].integer());
  return begun;
}

Result<v1::ModelFacts> RedisStore::agreeOnModel(const v1::ModelFacts& mine) {
  ALLOT_ASSIGN(const RedisReply reply,
               run(lua::agree_on_model, {mine.SerializeAsString(), spec_sha256_}));
  const std::string_view word = reply.view()[0].text();
  if (word == "REPLACED") return tl::unexpected(store::replaced(run_id_));
  if (word != "OK") return unexpectedReply("agreeOnModel");
  auto facts = readModel();
  // The aggregator forgets what somebody else wrote.
  if (!facts && facts.error().code == ErrorCode::kData) {
    return fail(ErrorCode::kUnavailable, facts.error().message);
  }
  if (!facts) return tl::unexpected(facts.error());
  if (!*facts) return unexpectedReply("agreeOnModel");
  return std::move(**facts);
}

Result<std::optional<v1::ModelFacts>> RedisStore::readModel() {
  ALLOT_ASSIGN(const RedisReply reply, run(lua::read_bounded, {std::to_string(kLargestFacts)}));
  if (reply.view().size() == 0) return std::nullopt;
  ALLOT_TRY(store::checkFacts(static_cast<uint64_t>(reply.view()[1].integer()), key("model")));
  return store::decode<v1::ModelFacts>(reply.view()[0].text(), key("model"));
}

Result<std::optional<Control>> RedisStore::readControl() {
  ALLOT_ASSIGN(const RedisReply reply, connection_.call({"HMGET", key("control"), "desired",
                                                         "experiment", "file", "revision"}));
  const RedisView fields = reply.view();
  if (!fields[0].isText()) return std::nullopt;
  Control control;
  ALLOT_ASSIGN(control.desired, store::toDesired(fields[0].text(), key("control")));
  ALLOT_ASSIGN(control.experiment, store::decode<v1::Experiment>(fields[1].text(), key("control")));
  ALLOT_ASSIGN(control.file, store::decode<v1::Experiment>(fields[2].text(), key("control")));
  ALLOT_ASSIGN(control.revision, store::toCount(fields[3].text(), key("control")));
  store::completeStored(&control);
  return control;
}

Result<bool> RedisStore::changeControl(const Control& next) {
  ALLOT_TRY(store::checkControl(next));
  ALLOT_ASSIGN(const RedisReply reply,
               run(lua::change_control,
                   {std::to_string(next.revision), std::string(wordOf(next.desired)),
                    next.experiment.SerializeAsString(), next.file.SerializeAsString()}));
  const std::string_view word = reply.view()[0].text();
  if (word != "OK" && word != "CHANGED") return unexpectedReply("changeControl");
  return word == "OK";
}

// --- worker ---

Result<std::optional<PublishedPolicy>> RedisStore::readPolicy() {
  ALLOT_ASSIGN(const RedisReply reply,
               connection_.call({"HMGET", key("policy"), "blob", "sha256"}));
  const RedisView fields = reply.view();
  if (!fields[0].isText()) return std::nullopt;
  PublishedPolicy policy;
  ALLOT_ASSIGN(policy.snapshot, store::decode<v1::PolicySnapshot>(fields[0].text(), key("policy")));
  policy.sha256 = fields[1].text();
  if (policy.sha256 != sha256Hex(fields[0].text()))
    return fail(ErrorCode::kData, "the policy in " + key("policy") +
                                      " does not match its digest: it was not written by allot");
  ALLOT_TRY(store::checkStored(policy.snapshot, key("policy")));
  return policy;
}

Result<std::vector<uint64_t>> RedisStore::takeTickets(const TicketRequest& request) {
  const uint64_t count = std::min(request.count, store::kMostTicketsAtOnce);
  std::vector<uint64_t> tickets;
  if (count == 0) return tickets;
  ALLOT_ASSIGN(
      const RedisReply reply,
      run(lua::take_tickets, {std::to_string(count), std::to_string(request.limit),
                              std::to_string(request.shared), std::to_string(request.from)}));
  const std::string_view word = reply.view()[0].text();
  if (word == "NONE") return tickets;
  if (word == "AGAIN") {
    if (reply.view().size() > count + 1) return unexpectedReply("takeTickets");
    for (size_t i = 1; i < reply.view().size(); ++i) {
      ALLOT_ASSIGN(const uint64_t ticket, toNumber(reply.view()[i].text(), key("reissue")));
      tickets.push_back(ticket);
    }
    return tickets;
  }
  if (word != "NEW") return unexpectedReply("takeTickets");
  ALLOT_ASSIGN(const uint64_t first, toNumber(reply.view()[1].text(), key("tickets")));
  ALLOT_ASSIGN(const uint64_t taken, toNumber(reply.view()[2].text(), key("tickets")));
  if (taken == 0 || taken > count) return unexpectedReply("takeTickets");
  for (uint64_t i = 0; i < taken; ++i) tickets.push_back(first + i);
  return tickets;
}

std::string RedisStore::signatureOf(std::string_view kind, std::string_view bytes) const {
  return identity_ ? identity_->sign({kind, run_id_, spec_sha256_}, bytes) : std::string();
}

Result<PushOutcome> RedisStore::pushResult(const v1::EpisodeResult& result, uint64_t cap) {
  ALLOT_TRY(store::checkName(result.result_id(), "the id of a result"));
  const std::string bytes = result.SerializeAsString();
  ALLOT_TRY(store::checkSize(bytes.size(), "result " + result.result_id()));
  const std::string signature = signatureOf(kSignedResult, bytes);
  ALLOT_ASSIGN(const RedisReply reply,
               run(lua::push_result,
                   {result.result_id(), bytes, std::to_string(cap), spec_sha256_, signature}));
  const std::string_view word = reply.view()[0].text();
  if (word == "OK") return PushOutcome::kAccepted;
  if (word == "DUPLICATE") return PushOutcome::kDuplicate;
  if (word == "FULL") return PushOutcome::kFull;
  if (word == "REPLACED") return tl::unexpected(store::replaced(run_id_));
  return unexpectedReply("pushResult");
}

Result<std::vector<v1::EvaluationUnit>> RedisStore::claimUnits(const ClaimRequest& request) {
  ALLOT_TRY(store::checkClaim(request));
  std::vector<std::string> words = {
      request.holder, std::to_string(request.count),
      std::to_string(std::min(request.lease_ms, store::kLongestClaimMs))};
  for (const uint32_t chunk : request.warm) words.push_back(store::paddedChunk(chunk));
  // Units that nobody planned are claimed and left: any worker may have written them.
  constexpr int kClaims = 20;
  for (int i = 0; i < kClaims; ++i) {
    ALLOT_ASSIGN(const RedisReply claimed, run(lua::claim_units, {words.begin(), words.end()}));
    const size_t count = claimed.view().size();
    if (count == 0) break;
    const std::string specs = key("unit_specs");
    RedisConnection::Arguments ids = {"HMGET", specs};
    for (size_t u = 0; u < count; ++u) ids.push_back(claimed.view()[u].text());
    ALLOT_ASSIGN(const RedisReply reply, connection_.call(ids));
    ALLOT_ASSIGN(auto units, toUnits(reply.view()));
    if (!units.empty()) return units;
  }
  return std::vector<v1::EvaluationUnit>();
}

Result<std::vector<v1::EvaluationUnit>> RedisStore::toUnits(const RedisView& specs) {
  std::vector<v1::EvaluationUnit> units;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!specs[i].isText()) continue;
    ALLOT_ASSIGN(auto unit, store::decode<v1::EvaluationUnit>(specs[i].text(), "unit"));
    units.push_back(std::move(unit));
  }
  std::sort(units.begin(), units.end(),
            [](const auto& a, const auto& b) { return a.unit_id() < b.unit_id(); });
  return units;
}

Status RedisStore::releaseUnits(const std::string& holder,
                                const std::vector<v1::EvaluationUnit>& units) {
  ALLOT_TRY(store::checkName(holder, "the holder of a claim"));
  if (units.empty()) return {};
  RedisConnection::Arguments words = {holder};
  for (const v1::EvaluationUnit& unit : units) words.push_back(unit.unit_id());
  ALLOT_TRY(run(lua::release_units, words));
  return {};
}

Result<PushOutcome> RedisStore::pushEvaluation(const v1::EvaluationResult& result) {
  ALLOT_ASSIGN(const auto stored, store::toStored(result));
  const std::string signature =
      signatureOf(kSignedEvaluation, store::signedBytes(stored.result, stored.answers));
  ALLOT_ASSIGN(const RedisReply reply,
               run(lua::push_evaluation, {result.unit().unit_id(), stored.result, spec_sha256_,
                                          stored.answers, signature}));
  const std::string_view word = reply.view()[0].text();
  if (word == "REPLACED") return tl::unexpected(store::replaced(run_id_));
  if (word == "OK") return PushOutcome::kAccepted;
  if (word == "DUPLICATE") return PushOutcome::kDuplicate;
  return unexpectedReply("pushEvaluation");
}

Result<std::optional<v1::AuditTasks>> RedisStore::readAudits(const std::string& worker) {
  ALLOT_TRY(store::checkName(worker, "the name of a worker"));
  ALLOT_ASSIGN(const RedisReply reply, connection_.call({"HGET", key("audits"), worker}));
  if (!reply.view().isText()) return std::nullopt;
  return store::decode<v1::AuditTasks>(reply.view().text(), key("audits"));
}

Status RedisStore::answerAudits(const v1::AuditAnswers& answers) {
  ALLOT_TRY(store::checkName(answers.worker(), "the name of a worker"));
  v1::AuditAnswers own = answers;
  own.set_signature(signatureOf(kSignedAudit, store::signedBytes(answers)));
  const std::string bytes = own.SerializeAsString();
  ALLOT_TRY(store::checkAudit(bytes.size()));
  ALLOT_TRY(run(lua::answer_audits, {answers.worker(), bytes}));
  return {};
}

Status RedisStore::beat(const Heartbeat& heartbeat) {
  const std::string& worker = heartbeat.beat.worker();
  ALLOT_TRY(store::checkName(worker, "the name of a worker"));
  v1::WorkerBeat own = store::fitting(heartbeat.beat);
  own.set_signature(signatureOf(kSignedBeat, store::signedBytes(own)));
  const std::string bytes = own.SerializeAsString();
  const std::string ttl_ms = std::to_string(std::min(heartbeat.ttl_ms, store::kLongestBeatMs));
  const std::string claim_ms = std::to_string(std::min(heartbeat.claim_ms, store::kLongestClaimMs));
  RedisConnection::Arguments words = {worker, bytes, ttl_ms, claim_ms};
  words.insert(words.end(), heartbeat.units.begin(), heartbeat.units.end());
  const RedisConnection::Hurry hurry(&connection_, heartbeat.patience_ms);
  ALLOT_TRY(run(lua::beat, words));
  return {};
}

Status RedisStore::leave(const std::string& worker) {
  ALLOT_TRY(store::checkName(worker, "the name of a worker"));
  ALLOT_TRY(run(lua::leave, {worker}));
  return {};
}

Result<bool> RedisStore::awaitNews(uint64_t wait_ms, const std::function<bool()>& stop) {
  ALLOT_ASSIGN(const std::string came,
               connection_.wait(key("news"), news_cursor_, std::max<uint64_t>(1, wait_ms), stop));
  if (store::checkEntryId(came)) news_cursor_ = came;
  return !came.empty();
}

// --- anyone ---

Result<std::vector<v1::WorkerBeat>> RedisStore::listWorkers() {
  ALLOT_ASSIGN(
      const RedisReply reply,
      run(lua::list_workers, {std::to_string(kLargestBeat), std::to_string(store::kMostBytesRead),
                              std::to_string(kMostWorkers)}));
  std::vector<v1::WorkerBeat> workers;
  for (size_t i = 0; i < reply.view().size(); ++i) {
    auto beat = store::decode<v1::WorkerBeat>(reply.view()[i].text(), "beat");
    if (beat) workers.push_back(std::move(*beat));
  }
  std::sort(workers.begin(), workers.end(),
            [](const auto& a, const auto& b) { return a.worker() < b.worker(); });
  return workers;
}

Result<std::vector<v1::IterationRecord>> RedisStore::readHistory(uint64_t after, size_t count) {
  std::vector<v1::IterationRecord> records;
  if (count == 0 || after >= store::kLargestNumber) return records;
  ALLOT_ASSIGN(const RedisReply reply,
               run(lua::read_history, {std::to_string(after + 1) + "-0",
                                       std::to_string(std::min(count, store::kMostRead)),
                                       std::to_string(store::kMostBytesRead)}));
  for (size_t i = 0; i < reply.view().size(); ++i) {
    const RedisView entry = reply.view()[i];
    const std::string_view id = entry[0].text();
    const std::string where = "entry " + std::string(id) + " of " + key("history");
    ALLOT_ASSIGN(auto record, store::decode<v1::IterationRecord>(entry[1][1].text(), where));
    ALLOT_ASSIGN(const uint64_t version, toNumber(id.substr(0, id.find('-')), where));
    ALLOT_TRY(store::checkStored(record, version, where));
    records.push_back(std::move(record));
  }
  return records;
}

Result<std::vector<Evaluation>> RedisStore::readEvaluations(const std::string& after,
                                                            size_t count) {
  return readEvaluations(after, count, 0);
}

Result<std::vector<Evaluation>> RedisStore::readAnswers(const std::string& after, size_t count) {
  return readEvaluations(after, count, kLargestAnswers);
}

Result<std::vector<Evaluation>> RedisStore::readEvaluations(const std::string& after, size_t count,
                                                            uint64_t largest_answers) {
  if (!after.empty()) ALLOT_TRY(store::checkEntryId(after));
  return readEvaluations("evaluations", after.empty() ? "-" : "(" + after, count, largest_answers);
}

Result<std::vector<Evaluation>> RedisStore::readEvaluations(std::string_view stream,
                                                            const std::string& start, size_t count,
                                                            uint64_t largest_answers) {
  ALLOT_ASSIGN(const auto entries,
               readEntries(stream, "units_done", start, count, largest_answers));
  std::vector<Evaluation> evaluations;
  for (const StreamEntry& entry : entries) {
    Evaluation& evaluation = evaluations.emplace_back();
    evaluation.entry_id = entry.entry.entry_id;
    evaluation.accepted = stream == "evaluations";
    evaluation.result = store::ownEvaluation(entry.entry);
    if (evaluation.result.unit().unit_id().empty()) continue;
    evaluation.answers_bytes = entry.answers_bytes;
    store::addAnswers(entry.answers, &evaluation.result);
    if (evaluation.accepted) continue;
    evaluation.signed_bytes = store::signedBytes(entry.entry.payload, entry.answers);
    evaluation.signature = entry.entry.signature;
  }
  return evaluations;
}

Result<uint64_t> RedisStore::nextTicket() {
  ALLOT_ASSIGN(const RedisReply reply, connection_.call({"GETRANGE", key("tickets"), "0", "31"}));
  if (reply.view().text().empty()) return 0;
  const auto count = store::toCount(reply.view().text(), key("tickets"));
  if (count) return count;
  // A worker's account may write anything there. The aggregator mends it.
  return fail(ErrorCode::kUnavailable, count.error().message);
}

Result<std::map<std::string, uint64_t>> RedisStore::readRefusalCounts() {
  const std::string counts = key("refused_counts");
  RedisConnection::Arguments words = {"HMGET", counts};
  for (const char* kind : kRefusalKinds) words.emplace_back(kind);
  ALLOT_ASSIGN(const RedisReply reply, connection_.call(words));
  std::map<std::string, uint64_t> out;
  for (size_t i = 0; i < std::size(kRefusalKinds); ++i) {
    const RedisView count = reply.view()[i];
    out[kRefusalKinds[i]] = 0;
    if (count.isNil()) continue;
    ALLOT_ASSIGN(out[kRefusalKinds[i]], toNumber(count.text(), counts));
  }
  return out;
}

Result<std::vector<Refusal>> RedisStore::readRefusals(size_t count) {
  std::vector<Refusal> refusals;
  if (count == 0) return refusals;
  ALLOT_ASSIGN(const RedisReply reply,
               connection_.call({"XREVRANGE", key("dead"), "+", "-", "COUNT",
                                 std::to_string(std::min(count, store::kRefusedKept))}));
  for (size_t i = 0; i < reply.view().size(); ++i) {
    const RedisView fields = reply.view()[i][1];
    Refusal refusal;
    for (size_t f = 0; f + 1 < fields.size(); f += 2) {
      if (fields[f].text() == "id") refusal.result_id = fields[f + 1].text();
      if (fields[f].text() == "kind") refusal.kind = fields[f + 1].text();
      if (fields[f].text() == "reason") refusal.reason = fields[f + 1].text();
    }
    refusals.push_back(std::move(refusal));
  }
  return refusals;
}

}  // namespace allot
