#include "core/evaluation/evaluation_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "core/evaluation/answers.h"
#include "core/evaluation/fidelity_table.h"
#include "core/spec/choices.h"
#include "core/spec/measure_options.h"
#include "core/spec/spec_rules.h"

namespace allot {
namespace {

// Far above anything that a worker can count or measure. Sums of thousands stay exact or finite.
constexpr uint64_t kMostCounted = uint64_t{1} << 52;
constexpr double kLargestSum = 1e100;
constexpr double kLongestSeconds = 1e7;  // as in checkResult()
// Allows for roundings of sums in another order.
constexpr double kSlack = 1 + 1e-6;

bool isSum(double value) { return value >= 0 && value <= kLargestSum; }
bool isDuration(double seconds) { return seconds >= 0 && seconds < kLongestSeconds; }

uint32_t tasksOf(const EvaluationBounds& bounds) {
  return bounds.tasks > 0 ? bounds.tasks : static_cast<uint32_t>(kMaxListEntries);
}
uint32_t layersOf(const EvaluationBounds& bounds) {
  return bounds.layers > 0 ? bounds.layers : static_cast<uint32_t>(kMaxScheduleEntries);
}

bool scoresCanBe(const v1::EvaluationResult& result, const EvaluationBounds& bounds) {
  const v1::EvaluationUnit& unit = result.unit();
  if (static_cast<uint32_t>(result.scores_size()) != unit.question_count()) return false;
  uint32_t question = unit.first_question();
  for (const v1::QuestionScore& score : result.scores()) {
    if (score.question() != question++) return false;
    if (!(score.score() >= 0 && score.score() <= 1)) return false;
    if (!(score.other_score() >= 0 && score.other_score() <= 1)) return false;
    if (score.task() >= tasksOf(bounds)) return false;
  }
  return true;
}

bool countsCanBe(const v1::DecodeCounts& counts) {
  for (const uint64_t count :
       {counts.decode_steps(), counts.draws(), counts.unique_rows(), counts.dense_rows(),
        counts.group_rows(), counts.key_bytes(), counts.value_bytes(), counts.dense_bytes()}) {
    if (count > kMostCounted) return false;
  }
  // A shadow is read beside the keys at most once, and has fewer bytes than the keys.
  return counts.unique_rows() <= counts.dense_rows() &&
         counts.group_rows() <= counts.dense_rows() &&
         counts.value_bytes() <= counts.dense_bytes() &&
         counts.key_bytes() <= 2 * counts.dense_bytes() && isDuration(counts.prefill_seconds()) &&
         isDuration(counts.decode_seconds());
}

bool promptsCanBe(const v1::EvaluationResult& result) {
  const v1::PrefillCounts& counts = result.prefill();
  for (const uint64_t count :
       {counts.tokens(), counts.dense_blocks(), counts.dense_rows(), counts.dense_bytes(),
        counts.key_bytes(), counts.value_bytes(), counts.kept_queries()}) {
    if (count > kMostCounted) return false;
  }
  const auto most = static_cast<double>(counts.kept_queries()) * kSlack;
  return counts.prompts() <= result.unit().question_count() &&
         counts.blocks() <= counts.dense_blocks() && counts.skipped_blocks() <= counts.blocks() &&
         counts.unique_rows() <= counts.dense_rows() &&
         counts.value_bytes() <= counts.dense_bytes() &&
         counts.key_bytes() <= 2 * counts.dense_bytes() && isDuration(counts.seconds()) &&
         isDuration(counts.selection_seconds()) && counts.kept_mass() >= 0 &&
         counts.kept_mass() <= most && counts.least_kept_mass() >= 0 &&
         counts.least_kept_mass() <= 1;
}

bool cellCanBe(const v1::FidelityCell& cell, const EvaluationBounds& bounds) {
  if (cell.task() >= tasksOf(bounds) || cell.layer() >= layersOf(bounds)) return false;
  if (std::find(kSupports.begin(), kSupports.end(), cell.support()) == kSupports.end()) {
    return false;
  }
  if (cell.states() == 0 || cell.states() > kMostCounted || cell.draws() > kMostCounted ||
      cell.dense_rows() > kMostCounted || cell.unique_rows() > cell.dense_rows() ||
      cell.exceeded() > cell.states() || cell.estimated_states() > cell.states()) {
    return false;
  }
  for (const double sum :
       {cell.relative_error(), cell.relative_error_squared(), cell.squared_error(),
        cell.estimated_error(), cell.effective_sample_size()}) {
    if (!isSum(sum)) return false;
  }
  if (cell.estimated_states() == 0 && cell.estimated_error() > 0) return false;
  const auto states = static_cast<double>(cell.states());
  // Cauchy and Schwarz: a sum's square is at most n times the sum of squares.
  const double most = std::sqrt(states * cell.relative_error_squared());
  return std::abs(cell.cosine()) <= states * kSlack &&
         cell.relative_error() <= most * kSlack + 1e-9;
}

bool cellsCanBe(const v1::EvaluationResult& result, const EvaluationBounds& bounds) {
  if (result.scores_size() > 0 || result.fidelity().empty()) return false;
  std::set<std::tuple<uint32_t, uint32_t, uint32_t>> cells;
  for (const v1::FidelityCell& cell : result.fidelity()) {
    if (!cellCanBe(cell, bounds)) return false;
    if (!cells.emplace(cell.task(), cell.layer(), cell.support()).second) return false;
  }
  return true;
}

// Returns true if the cell is of the layers that the experiment asks for.
bool isAsked(const v1::AgreementCell& cell, const EvaluationBounds& bounds) {
  if (cell.has_layer() && cell.layer() >= layersOf(bounds)) return false;
  if (!bounds.agreement) return true;
  if (cell.has_layer() == (bounds.agreement == AgreementLayers::kAll)) return false;
  return bounds.agreement != AgreementLayers::kLast || bounds.layers == 0 ||
         cell.layer() + 1 == bounds.layers;
}

bool divergenceCanBe(const v1::AgreementCell& cell) {
  if (!isSum(cell.divergence()) || !isSum(cell.divergence_squared())) return false;
  if (cell.questions() > cell.steps()) return false;
  // Cauchy and Schwarz. Without questions both sums are 0.
  const double squares = static_cast<double>(cell.questions()) * cell.divergence_squared();
  return cell.divergence() <= std::sqrt(squares) * kSlack &&
         (cell.questions() > 0 || cell.divergence_squared() == 0);
}

bool fidelityCanBe(const v1::EvaluationResult& result, const EvaluationBounds& bounds) {
  if (!cellsCanBe(result, bounds)) return false;
  for (const v1::FidelityCell& cell : result.fidelity()) {
    if (cell.positions() > 0 || cell.variance() != 0 || cell.closed_form_positions() > 0 ||
        cell.closed_form() != 0) {
      return false;
    }
  }
  std::set<std::tuple<uint32_t, bool, uint32_t>> seen;
  for (const v1::AgreementCell& cell : result.agreement()) {
    if (cell.task() >= tasksOf(bounds) || !isAsked(cell, bounds)) return false;
    if (!seen.emplace(cell.task(), cell.has_layer(), cell.layer()).second) return false;
    if (cell.steps() > kMostCounted || cell.agreed() > cell.steps()) return false;
    if (!divergenceCanBe(cell)) return false;
  }
  return true;
}

// One layer alone has the method in each cell, and each layer has as many steps.
bool lossesCanBe(const v1::EvaluationResult& result, const EvaluationBounds& bounds) {
  if (result.scores_size() > 0 || !result.fidelity().empty()) return false;
  const v1::EvaluationUnit& unit = result.unit();
  std::map<uint32_t, std::pair<uint64_t, uint64_t>> sums;  // by layer: steps, questions
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (const v1::AgreementCell& cell : result.agreement()) {
    if (cell.task() >= tasksOf(bounds) || !cell.has_layer() || cell.layer() >= layersOf(bounds) ||
        !seen.emplace(cell.task(), cell.layer()).second || cell.steps() > kMostCounted ||
        cell.agreed() > cell.steps() || !divergenceCanBe(cell)) {
      return false;
    }
    sums[cell.layer()].first += cell.steps();
    sums[cell.layer()].second += cell.questions();
  }
  // Answers of one token have no step.
  if (sums.size() != static_cast<size_t>(unit.schedule_size())) return false;
  return std::all_of(sums.begin(), sums.end(), [&](const auto& layer) {
    const auto& [steps, questions] = layer.second;
    return layer.second == sums.begin()->second && (steps > 0) == (questions > 0) &&
           questions <= unit.question_count();
  });
}

bool varianceCanBe(const v1::FidelityCell& cell, const EvaluationBounds& bounds) {
  if (cell.positions() == 0 || cell.states() % cell.positions() != 0) return false;
  const uint64_t replicates = cell.states() / cell.positions();
  if (replicates < 2 || (bounds.replicates > 0 && replicates != bounds.replicates)) return false;
  const uint64_t closed = cell.closed_form_positions();
  if ((closed > 0 && closed != cell.positions()) || (closed == 0 && cell.closed_form() != 0)) {
    return false;
  }
  if (!isSum(cell.variance()) || !isSum(cell.closed_form())) return false;
  // The sum of squared distances is least around the outputs' own mean.
  return cell.variance() * static_cast<double>(replicates - 1) <=
         cell.squared_error() * kSlack + 1e-9;
}

bool varianceCanBe(const v1::EvaluationResult& result, const EvaluationBounds& bounds) {
  if (!cellsCanBe(result, bounds) || result.agreement_size() > 0) return false;
  return std::all_of(result.fidelity().begin(), result.fidelity().end(),
                     [&](const auto& cell) { return varianceCanBe(cell, bounds); });
}

}  // namespace

EvaluationBounds boundsOf(const v1::Experiment& experiment, uint32_t layers) {
  const v1::Evaluation& evaluation = experiment.spec().evaluation();
  return {static_cast<uint32_t>(experiment.spec().task().tasks_size()), layers,
          measureOptions(evaluation, Measure::kFidelity).agreement,
          measureOptions(evaluation, Measure::kVariance).replicates};
}

std::optional<std::string> whyImpossible(const v1::EvaluationResult& result,
                                         const EvaluationBounds& bounds) {
  if (!isDuration(result.seconds())) return "has a duration that cannot be";
  if (!countsCanBe(result.counts()) || !promptsCanBe(result)) return "has counts that cannot be";
  if (!answersArePossible(result)) return "has answers that cannot be";
  const Measure measure = measureOf(result.unit());
  if (measure == Measure::kFidelity) {
    if (!fidelityCanBe(result, bounds)) return "has fidelity cells that cannot be";
    return std::nullopt;
  }
  if (measure == Measure::kLayerLoss) {
    if (!lossesCanBe(result, bounds)) return "has layers' losses that cannot be";
    return std::nullopt;
  }
  if (measure == Measure::kVariance) {
    if (!varianceCanBe(result, bounds)) return "has variance cells that cannot be";
    return std::nullopt;
  }
  const bool bare = result.fidelity().empty() && result.agreement().empty();
  if (!bare || !scoresCanBe(result, bounds)) return "has scores that cannot be";
  return std::nullopt;
}

}  // namespace allot
