#include "store/checks.h"

#include <google/protobuf/reflection.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "core/evaluation/answers.h"
#include "core/learning/exact_math.h"
#include "core/spec/spec.h"
#include "core/spec/spec_rules.h"
#include "core/spec/spec_yaml.h"

namespace allot::store {
namespace {

std::optional<uint64_t> numberIn(std::string_view text) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

std::string padded(uint64_t number, size_t width) {
  const std::string digits = std::to_string(number);
  return std::string(width - std::min(width, digits.size()), '0') + digits;
}

tl::unexpected<Error> fault(std::string message) {
  return fail(ErrorCode::kInternal, std::move(message));
}

// Returns the error for stored data that no program of ours writes.
tl::unexpected<Error> spoilt(const std::string& where, const std::string& found) {
  return fail(ErrorCode::kData, "the store's " + where + " holds " + found +
                                    ": it was written by another program or is damaged");
}

template <typename Numbers>
bool areFinite(const Numbers& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

}  // namespace

Status checkName(std::string_view name, const char* what) {
  if (name.empty()) return badInput(std::string(what) + " is empty: give it a name");
  if (name.size() > 512)
    return badInput(std::string(what) + " has " + std::to_string(name.size()) +
                    " bytes: shorten it to 512");
  return {};
}

Status checkRunId(std::string_view run_id) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
  if (run_id.empty() || run_id.size() > 128 ||
      run_id.find_first_not_of(kAllowed) != std::string_view::npos)
    return badInput("run id \"" + escaped(run_id, 128) +
                    "\" must be 1 to 128 letters, digits, '-', '_' or '.'");
  return {};
}

Status checkEntryId(std::string_view entry_id) {
  const size_t dash = entry_id.find('-');
  if (dash == std::string_view::npos || !numberIn(entry_id.substr(0, dash)) ||
      !numberIn(entry_id.substr(dash + 1)))
    return badInput("\"" + escaped(entry_id, 64) +
                    "\" is no entry id: pass one that the store gave out, like 12-0");
  return {};
}

Status checkRunSpec(const RunSpec& spec) {
  ALLOT_TRY(checkName(spec.sha256, "the digest of the experiment"));
  return checkName(spec.experiment.name(), "the name of the experiment");
}

Status checkControl(const Control& control) {
  if (control.revision < kLargestNumber) return {};
  return badInput("a control record of revision " + std::to_string(control.revision) +
                  " is beyond 2^53: pass the revision that was read");
}

Status checkArithmetic(const RunSpec& spec, const std::string& whose) {
  if (spec.arithmetic == kArithmetic) return {};
  return badInput(whose + " was computed by arithmetic \"" + escaped(spec.arithmetic, 100) +
                  "\", and this build has " + kArithmetic + ": use the build that made it" +
                  (spec.build.empty() ? "" : ", " + spec.build));
}

Status checkTicket(uint64_t ticket) {
  if (ticket <= kLargestNumber) return {};
  return badInput("ticket " + std::to_string(ticket) + " is beyond 2^53");
}

Status checkFacts(uint64_t bytes, const std::string& where) {
  if (bytes <= kLargestFacts) return {};
  return fail(ErrorCode::kData,
              "the model's facts in " + where + " have " + std::to_string(bytes) +
                  " bytes: no worker of ours wrote them; the aggregator forgets them, and a "
                  "worker that starts will say what the model is");
}

Status checkInitial(const v1::PolicySnapshot& policy, const v1::AggregatorState& state) {
  if (policy.version() != 0)
    return fault("the first policy has version " + std::to_string(policy.version()) +
                 " instead of 0");
  if (!isFinite(policy)) return fault("the first policy holds a number that is not finite");
  return checkState(state);
}

Status checkState(const v1::AggregatorState& state) {
  if (isFinite(state)) return {};
  return fault("the state after update " + std::to_string(state.policy().version()) +
               " holds a number that is not finite");
}

Status checkCommit(const Commit& commit) {
  const uint64_t next = commit.expected_version + 1;
  if (commit.expected_version >= kLargestNumber || commit.policy.version() != next ||
      commit.record.version() != next)
    return fault("a commit on version " + std::to_string(commit.expected_version) +
                 " carries policy version " + std::to_string(commit.policy.version()) +
                 " and record version " + std::to_string(commit.record.version()));
  if (!isFinite(commit.policy))
    return fault("policy version " + std::to_string(next) + " holds a number that is not finite");
  ALLOT_TRY(checkState(commit.state));
  std::set<std::string_view> results;
  for (const auto& [entry_id, result_id] : commit.consumed) {
    ALLOT_TRY(checkEntryId(entry_id));
    ALLOT_TRY(checkName(result_id, "the result id of a consumed result"));
    if (!results.insert(result_id).second)
      return fault("a commit consumes result " + result_id + " twice");
  }
  for (const uint64_t ticket : commit.tickets) ALLOT_TRY(checkTicket(ticket));
  if (std::set(commit.tickets.begin(), commit.tickets.end()).size() != commit.tickets.size())
    return fault("a commit counts a ticket twice");
  return {};
}

Status checkUnit(const v1::EvaluationUnit& unit) {
  ALLOT_TRY(checkName(unit.unit_id(), "the id of an evaluation unit"));
  if (unit.policy_version() <= kLargestNumber) return {};
  return badInput("evaluation unit " + unit.unit_id() + " has a policy version beyond 2^53");
}

Status checkClaim(const ClaimRequest& request) {
  ALLOT_TRY(checkName(request.holder, "the holder of a claim"));
  if (request.count > 0 && request.count <= kMostUnitsAtOnce) return {};
  return badInput("a claim on " + std::to_string(request.count) + " units: ask for 1 to " +
                  std::to_string(kMostUnitsAtOnce));
}

Status checkSize(uint64_t bytes, const std::string& what) {
  if (bytes <= kLargestResult) return {};
  return badInput(what + " has " + std::to_string(bytes) + " bytes, the store takes " +
                  std::to_string(kLargestResult) + ": put fewer questions into one");
}

std::string signedBytes(v1::AuditAnswers answers) {
  answers.clear_signature();
  return answers.SerializeAsString();
}

std::string signedBytes(v1::WorkerBeat beat) {
  beat.clear_signature();
  return beat.SerializeAsString();
}

Status checkAudit(uint64_t bytes) {
  if (bytes <= kLargestAudit) return {};
  return badInput("the answers to an audit have " + std::to_string(bytes) +
                  " bytes, the store takes " + std::to_string(kLargestAudit) +
                  ": the aggregator asks for fewer, so use workers of its build");
}

Status checkImported(const std::vector<v1::IterationRecord>& records) {
  for (const auto& record : records) {
    if (record.version() == 0 || record.version() > kLargestNumber)
      return badInput("an imported record has version " + std::to_string(record.version()) +
                      ": versions start at 1");
    if (!areFinite(record.weights()) || !areFinite(record.baselines()) ||
        !isFinite(record.policy()))
      return badInput("imported record " + std::to_string(record.version()) +
                      " holds a number that is not finite");
    for (const auto& result : record.results())
      ALLOT_TRY(checkName(result.result_id(), "the id of an imported result"));
  }
  return {};
}

std::string signedBytes(std::string_view result, std::string_view answers) {
  std::string bytes = std::to_string(result.size()) + "\n";
  bytes.append(result).append(answers);
  return bytes;
}

Result<StoredEvaluation> toStored(const v1::EvaluationResult& result) {
  ALLOT_TRY(checkUnit(result.unit()));
  const std::string& id = result.unit().unit_id();
  const uint64_t answers = result.answers().ByteSizeLong();
  if (answers > kLargestAnswers)
    return badInput("the answers of unit " + id + " have " + std::to_string(answers) +
                    " bytes, the store takes " + std::to_string(kLargestAnswers) +
                    ": cut them short or leave some out");
  StoredEvaluation stored;
  stored.answers = result.answers().SerializeAsString();
  if (result.has_answers()) {
    v1::EvaluationResult bare = result;
    bare.clear_answers();
    stored.result = bare.SerializeAsString();
  } else {
    stored.result = result.SerializeAsString();
  }
  ALLOT_TRY(checkSize(stored.result.size(), "evaluation of unit " + id));
  return stored;
}

Status checkImported(const std::vector<v1::EvaluationResult>& results) {
  for (const auto& result : results) ALLOT_TRY(toStored(result));
  return {};
}

Status checkImage(const RunImage& image) {
  ALLOT_TRY(checkRunSpec(image.spec));
  ALLOT_TRY(checkControl(image.control));
  ALLOT_TRY(checkTicket(image.next_ticket));
  if (image.state && !isFinite(*image.state))
    return badInput("the imported state holds a number that is not finite");
  for (const auto& unit : image.open_units) ALLOT_TRY(checkUnit(unit));
  return {};
}

Status completeStored(RunSpec* spec, const std::string& run_id) {
  ALLOT_TRY(checkSchema(spec->schema, spec->build, "run " + run_id, spec->experiment));
  complete(&spec->experiment);
  return checkWords(spec->experiment, "run " + run_id);
}

Result<Desired> toDesired(std::string_view word, const std::string& where) {
  if (const auto desired = fromWord<Desired>(word)) return *desired;
  return fail(ErrorCode::kData, "in " + where + " the run is to be \"" +
                                    std::string(word.substr(0, 64)) + "\", which is none of " +
                                    joined(wordsOf<Desired>()) +
                                    ": a newer build wrote it, so use that one, or else set "
                                    "desired there to one of them");
}

void completeStored(Control* control) {
  complete(&control->experiment);
  complete(&control->file);
}

Result<uint64_t> toNumber(std::string_view text, const std::string& what) {
  if (const auto value = numberIn(text)) return *value;
  return fail(ErrorCode::kData,
              "the store's " + what + " is no number: it was written by another program");
}

Result<uint64_t> toCount(std::string_view text, const std::string& what) {
  ALLOT_ASSIGN(const uint64_t value, toNumber(text, what));
  if (value <= kLargestNumber) return value;
  return fail(ErrorCode::kData, "the store's " + what + " holds " + std::to_string(value) +
                                    ", which is beyond 2^53: it was written by another program");
}

bool isFinite(const google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& values = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  values.ListFields(message, &fields);
  return std::all_of(fields.begin(), fields.end(), [&](const FieldDescriptor* field) {
    const bool number = field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE && !number) return true;
    if (!field->is_repeated())
      return number ? std::isfinite(values.GetDouble(message, field))
                    : isFinite(values.GetMessage(message, field));
    if (number) return areFinite(values.GetRepeatedFieldRef<double>(message, field));
    for (int i = 0; i < values.FieldSize(message, field); ++i)
      if (!isFinite(values.GetRepeatedMessage(message, field, i))) return false;
    return true;
  });
}

Status checkStored(const v1::PolicySnapshot& policy, const std::string& where) {
  if (policy.version() > kLargestNumber)
    return spoilt(where, "a policy whose version is beyond 2^53");
  if (!isFinite(policy)) return spoilt(where, "a policy with a number that is not finite");
  return {};
}

Status checkStored(const v1::AggregatorState& state, const std::string& where) {
  if (state.policy().version() > kLargestNumber)
    return spoilt(where, "a state whose version is beyond 2^53");
  if (!isFinite(state)) return spoilt(where, "a state with a number that is not finite");
  return {};
}

Status checkStored(const v1::IterationRecord& record, uint64_t version, const std::string& where) {
  if (record.version() != version)
    return spoilt(where, "a record of update " + std::to_string(record.version()));
  if (!areFinite(record.weights()) || !areFinite(record.baselines()))
    return spoilt(where, "a record with a weight or baseline that is not finite");
  return checkStored(record.policy(), where);
}

std::string paddedChunk(uint32_t chunk) { return padded(chunk, 10); }

std::string groupOf(const v1::EvaluationUnit& unit) {
  return padded(unit.policy_version(), 20) + ":" + paddedChunk(unit.chunk());
}

v1::EvaluationResult ownEvaluation(const InboxEntry& entry) {
  v1::EvaluationResult result;
  if (entry.result_id.empty() || !result.ParseFromString(entry.payload) ||
      result.unit().unit_id() != entry.result_id)
    return {};
  result.clear_answers();  // stored answers are separate
  return result;
}

void addAnswers(std::string_view answers, v1::EvaluationResult* result) {
  if (answers.empty() || answers.size() > kLargestAnswers) return;
  v1::EvaluationAnswers decoded;
  if (decoded.ParseFromArray(answers.data(), static_cast<int>(answers.size())))
    *result->mutable_answers() = std::move(decoded);
}

std::vector<uint64_t> among(const std::vector<uint64_t>& tickets, const TicketSet& set) {
  std::set<uint64_t> found;
  for (const uint64_t ticket : tickets)
    if (set.contains(ticket)) found.insert(ticket);
  return {found.begin(), found.end()};
}

void append(const TicketSet& tickets, std::vector<std::string>* words) {
  for (const auto& [number, bits] : tickets.chunks()) {
    words->push_back(std::to_string(number));
    words->push_back(bits);
  }
}

v1::WorkerBeat fitting(v1::WorkerBeat beat) {
  if (beat.ByteSizeLong() + kSignatureBytes + 3 > kLargestBeat) beat.clear_last_error();
  return beat;
}

Error otherExperiment(const std::string& run_id, std::string_view theirs, std::string_view ours) {
  return {ErrorCode::kUsage, "run " + run_id + " was started with another experiment (digest " +
                                 std::string(theirs.substr(0, 12)) + ", this one has " +
                                 std::string(ours.substr(0, 12)) +
                                 "): start a new run or restore the experiment file"};
}

Error replaced(const std::string& run_id) {
  return {ErrorCode::kFenced, "run " + run_id +
                                  " has another experiment now: its file was edited before the "
                                  "first result counted, so what was made under the old one is "
                                  "dropped"};
}

Error fenced(uint64_t epoch, std::string_view in_force) {
  return {ErrorCode::kFenced, "another aggregator took over (our lease has epoch " +
                                  std::to_string(epoch) + ", the one in force " +
                                  std::string(in_force) + "): this process must go"};
}

Error versionConflict(uint64_t expected, std::string_view found) {
  return {ErrorCode::kInternal, "the published policy has version " + std::string(found) +
                                    " instead of " + std::to_string(expected) +
                                    ": read it again to see whether an earlier try succeeded"};
}

Error notInInbox(std::string_view result_id) {
  return {ErrorCode::kInternal, "result " + std::string(result_id) +
                                    " does not wait in the inbox: it was consumed or rejected "
                                    "before, so this commit is dropped whole"};
}

Error ticketCounted(uint64_t version) {
  return {ErrorCode::kInternal, "update " + std::to_string(version) +
                                    " would count a ticket that has counted before, so it is "
                                    "dropped whole"};
}

Error historyAhead(const std::string& where, std::string_view found) {
  return {ErrorCode::kInternal, "the history in " + where + " is ahead of the policy (" +
                                    std::string(found) + "): restore both from one backup"};
}

Error beingImported(const std::string& run_id) {
  return {ErrorCode::kUsage, "run " + run_id +
                                 " is being imported, or an import of it broke off: "
                                 "import it again, or start a new run"};
}

Error importOverRun(const std::string& run_id) {
  return {ErrorCode::kUsage,
          "run " + run_id + " exists in this store: import it into an empty one"};
}

Error otherImport(const std::string& run_id) {
  return {ErrorCode::kUsage, "run " + run_id +
                                 " is not being imported from here (another import of it may have "
                                 "begun): begin again, one import at a time"};
}

Error importOutOfOrder(const std::string& run_id, std::string_view record) {
  return {ErrorCode::kUsage, "history entry " + std::string(record) + " of run " + run_id +
                                 " cannot be imported here: records go in order of version, "
                                 "each once"};
}

Error importIncomplete(const std::string& run_id, std::string_view last, uint64_t version) {
  return {ErrorCode::kUsage, "run " + run_id + " was imported with history up to entry " +
                                 std::string(last) + ", which is not all of 1-0 to " +
                                 std::to_string(version) + "-0: export it again"};
}

}  // namespace allot::store
