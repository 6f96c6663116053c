// Evaluation units: answers that are graded, and outputs that are compared with dense attention's.
#include <chrono>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/evaluation/answers.h"
#include "core/evaluation/evaluation_table.h"
#include "core/learning/questions.h"
#include "core/spec/choices.h"
#include "core/spec/measure_options.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_settings.h"
#include "worker/engine/fidelity.h"

namespace allot {

namespace {

tl::unexpected<Error> bad(const v1::EvaluationUnit& unit, const std::string& why) {
  return fail(ErrorCode::kData, "evaluation unit " + unit.unit_id() + ": " + why);
}

}  // namespace

Result<Engine::Methods> Engine::methodsOf(const v1::EvaluationUnit& unit) const {
  Methods methods;
  if (const auto wrong = kernels::parseMethod(unit.method(), &methods.decode)) {
    return bad(unit, "method " + unit.method() + ": " + *wrong);
  }
  if (const auto wrong =
          kernels::parseMethod(prefillOf(unit), &methods.prefill, kernels::Phase::kPrefill)) {
    return bad(unit, "prefill " + unit.prefill() + ": " + *wrong);
  }
  // Costs as much as a dense prefill, so that only the first prompts are measured.
  methods.measures_kept_mass =
      uint64_t{unit.chunk()} * chunkQuestions(experiment_.spec().evaluation()) <
      kMostChunkQuestions;
  return methods;
}

Result<std::vector<Engine::Row>> Engine::rowsOf(const v1::EvaluationUnit& unit,
                                                const Methods& methods) const {
  // An older aggregator's units name no measure.
  if (!unit.measure().empty() && !fromWord<Measure>(unit.measure())) {
    return bad(unit, "unknown measure " + unit.measure());
  }
  if (unit.repeat() >= kMostRepeats) return bad(unit, "repeat " + std::to_string(unit.repeat()));
  const uint64_t end = uint64_t{unit.first_question()} + unit.question_count();
  const bool held_out = measureOf(unit) != Measure::kLayerLoss;
  if (end > (held_out ? dataset_.held_out : dataset_.train).size()) {
    return bad(
        unit, held_out ? "questions beyond the held-out set" : "questions beyond the training set");
  }
  SampleSchedule schedule(unit.schedule().begin(), unit.schedule().end());
  if (schedule.empty() && !kernels::usesBudget(methods.decode) &&
      !kernels::usesBudget(methods.prefill)) {
    schedule.assign(facts_.layers(), UINT32_MAX);
  }
  if (entriesPerLayer(schedule.size(), decoder_->config()) == 0) {
    return bad(unit, "a schedule for another number of layers or heads");
  }
  std::vector<Row> rows;
  for (uint32_t q = unit.first_question(); q < end; ++q) {
    rows.push_back({held_out, q, schedule, evaluationSequence(q, unit.repeat())});
  }
  return rows;
}

Result<v1::EvaluationResult> Engine::evaluate(const v1::EvaluationUnit& unit) {
  ALLOT_ASSIGN(auto results, evaluateTogether({unit}));
  return std::move(results.front());
}

Result<std::vector<v1::EvaluationResult>> Engine::evaluateTogether(
    const std::vector<v1::EvaluationUnit>& units) {
  const auto start = std::chrono::steady_clock::now();
  const v1::EvaluationUnit& first = units.front();
  ALLOT_ASSIGN(const Methods methods, methodsOf(first));
  std::vector<Row> rows;
  std::vector<v1::EvaluationResult> results;
  for (const v1::EvaluationUnit& unit : units) {
    ALLOT_ASSIGN(const auto more, rowsOf(unit, methods));
    rows.insert(rows.end(), more.begin(), more.end());
    *results.emplace_back().mutable_unit() = unit;
  }
  ahead_.first = first.first_question();
  ahead_.count = first.question_count();
  const Measure measure = measureOf(first);
  ALLOT_TRY(measure == Measure::kAccuracy
                ? measureAccuracy(rows, methods, &results)
                : compareOutputs(rows, methods, measure, &results.front()));
  if (!rows.empty()) {
    chunks_[first.chunk()] = promptKey(rows.front(), promptReading(rows.front(), methods));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  for (auto& result : results) {
    result.set_seconds(took.count() / static_cast<double>(units.size()));
    result.set_device(deviceName());
    result.set_arithmetic(arithmetic());
  }
  return results;
}

Status Engine::measureAccuracy(const std::vector<Row>& rows, const Methods& methods,
                               std::vector<v1::EvaluationResult>* results) {
  ALLOT_ASSIGN(Answered answered, answer(rows, methods));
  const auto all_steps = std::accumulate(answered.steps.begin(), answered.steps.end(), uint64_t{0});
  size_t row = 0;
  for (v1::EvaluationResult& result : *results) {
    v1::DecodeCounts* counts = result.mutable_counts();
    std::vector<v1::Answer> kept;
    PrefillReads prompts;
    uint64_t steps = 0;
    for (const size_t end = row + result.unit().question_count(); row < end; ++row) {
      prompts.add(answered.prompts[row]);
      *result.add_scores() = std::move(answered.scores[row]);
      if (answered.answers[row]) kept.push_back(std::move(*answered.answers[row]));
      addCounts(answered.statistics[row], answered.steps[row], counts);
      steps += answered.steps[row];
    }
    *result.mutable_prefill() = prompts.sums;
    if (!kept.empty()) *result.mutable_answers() = fitted(std::move(kept), answers_room_);
    // Prompts were read for all units, and steps were made for the units that had a row.
    counts->set_prefill_seconds(answered.prefill_seconds / static_cast<double>(results->size()));
    counts->set_decode_seconds(all_steps == 0
                                   ? answered.decode_seconds
                                   : answered.decode_seconds * static_cast<double>(steps) /
                                         static_cast<double>(all_steps));
  }
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
  const MeasureOptions asked = measureOptions(experiment_.spec().evaluation(), measure);
  const bool of_layers = measure == Measure::kLayerLoss;
  const FidelityProtocol protocol = {
      .support_tile = asked.tile,
      .agreement = of_layers ? AgreementLayers::kEach : asked.agreement,
      .errors = !of_layers,
      .replicates = asked.replicates};
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
