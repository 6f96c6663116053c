// Units of evaluation: whole answers that are graded, and outputs that are compared with dense
// attention's.
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "core/evaluation/answers.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/learning/questions.h"
#include "core/spec/choices.h"
#include "worker/engine.h"
#include "worker/fidelity.h"
#include "worker/read_counts.h"

namespace allot {

Result<v1::EvaluationResult> Engine::evaluate(const v1::EvaluationUnit& unit) {
  const auto start = std::chrono::steady_clock::now();
  const auto bad = [&](const std::string& why) {
    return fail(ErrorCode::kData, "evaluation unit " + unit.unit_id() + ": " + why);
  };
  Methods methods;
  const auto defaults = methodDefaultsOf(experiment_.spec().attention());
  if (const auto wrong = kernels::parseMethod(unit.method(), &methods.decode, defaults)) {
    return bad("method " + unit.method() + ": " + *wrong);
  }
  if (const auto wrong = kernels::parseMethod(prefillOf(unit), &methods.prefill, defaults,
                                              kernels::Phase::kPrefill)) {
    return bad("prefill " + unit.prefill() + ": " + *wrong);
  }
  // It costs as much as a dense prefill: of the first prompts alone.
  methods.measures_kept_mass =
      uint64_t{unit.chunk()} * chunkQuestions(experiment_.spec().evaluation()) <
      kMostChunkQuestions;
  // An older aggregator's units name no measure.
  if (!unit.measure().empty() && !fromWord<Measure>(unit.measure())) {
    return bad("unknown measure " + unit.measure());
  }
  if (unit.repeat() >= kMostRepeats) return bad("repeat " + std::to_string(unit.repeat()));
  const Measure measure = measureOf(unit);
  const uint64_t end = uint64_t{unit.first_question()} + unit.question_count();
  if (end > dataset_.held_out.size()) return bad("questions beyond the held-out set");
  SampleSchedule schedule(unit.schedule().begin(), unit.schedule().end());
  if (schedule.empty() && !kernels::usesBudget(methods.decode) &&
      !kernels::usesBudget(methods.prefill)) {
    schedule.assign(facts_.layers(), UINT32_MAX);
  }
  if (entriesPerLayer(schedule.size(), decoder_->config()) == 0) {
    return bad("a schedule for another number of layers or heads");
  }
  std::vector<Row> rows;
  for (uint32_t q = unit.first_question(); q < end; ++q) {
    rows.push_back({true, q, schedule, evaluationSequence(q, unit.repeat())});
  }
  ahead_.first = unit.first_question();
  ahead_.count = unit.question_count();
  v1::EvaluationResult result;
  *result.mutable_unit() = unit;
  ALLOT_TRY(measure == Measure::kAccuracy ? measureAccuracy(rows, methods, &result)
                                          : compareOutputs(rows, methods, measure, &result));
  if (!rows.empty()) {
    chunks_[unit.chunk()] = promptKey(rows.front(), promptReading(rows.front(), methods));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  result.set_seconds(took.count());
  return result;
}

Status Engine::measureAccuracy(const std::vector<Row>& rows, const Methods& methods,
                               v1::EvaluationResult* result) {
  ALLOT_ASSIGN(Answered answered, answer(rows, methods));
  *result->mutable_prefill() = answered.prompts;
  *result->mutable_scores() = {answered.scores.begin(), answered.scores.end()};
  if (!answered.answers.empty()) {
    *result->mutable_answers() = fitted(std::move(answered.answers), answers_room_);
  }
  v1::DecodeCounts* counts = result->mutable_counts();
  for (size_t i = 0; i < rows.size(); ++i) {
    addCounts(answered.statistics[i], answered.steps[i], counts);
  }
  counts->set_prefill_seconds(answered.prefill_seconds);
  counts->set_decode_seconds(answered.decode_seconds);
  return {};
}

Status Engine::compareOutputs(const std::vector<Row>& rows, const Methods& methods, Measure measure,
                              v1::EvaluationResult* result) {
  const double prompts_before = secondsForPrompts();
  ALLOT_ASSIGN(const auto batch, prompted(rows, methods, kFidelityPages));
  v1::DecodeCounts* counts = result->mutable_counts();
  counts->set_prefill_seconds(secondsForPrompts() - prompts_before);
  std::vector<uint32_t> tasks;
  std::vector<int32_t> last_tokens;
  for (const Row& row : rows) {
    const Question& asked = question(row.held_out, row.question);
    tasks.push_back(taskOf(asked));
    last_tokens.push_back(readingOf(asked).context.back());
  }
  const v1::Evaluation& evaluation = experiment_.spec().evaluation();
  const FidelityProtocol protocol = {.support_tile = supportTile(evaluation),
                                     .agreement = agreementLayersOf(evaluation),
                                     .replicates = varianceReplicates(evaluation)};
  const GenerationOptions options = generationOptions(methods.decode);
  const auto start = std::chrono::steady_clock::now();
  ALLOT_ASSIGN(const Fidelity fidelity,
               measure == Measure::kVariance
                   ? measureVariance(decoder_.get(), batch, last_tokens, tasks, options, protocol)
                   : measureFidelity(decoder_.get(), tokenizer_, batch, tasks, options, protocol));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  counts->set_decode_seconds(took.count());
  addCounts(fidelity.statistics, fidelity.steps, counts);
  *result->mutable_fidelity() = {fidelity.cells.begin(), fidelity.cells.end()};
  *result->mutable_agreement() = {fidelity.agreement.begin(), fidelity.agreement.end()};
  return {};
}

std::vector<uint32_t> Engine::warmChunks() const {
  std::vector<uint32_t> warm;
  for (const auto& [chunk, first_prompt] : chunks_) {
    if (prompts_->contains(first_prompt)) warm.push_back(chunk);
  }
  return warm;
}

}  // namespace allot
