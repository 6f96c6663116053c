#include "core/evaluation/layer_loss_table.h"

#include "core/evaluation/evaluation_plan.h"
#include "core/learning/measured.h"
#include "core/spec/choices.h"

namespace allot {

LayerLossTable::LayerLossTable(const v1::Experiment& experiment, uint32_t layers)
    : plan_(planLayerLosses(experiment, layers)), layers_(layers) {}

void LayerLossTable::add(const v1::EvaluationResult& result) {
  if (measureOf(result.unit()) != Measure::kLayerLoss) return;
  cells_[result.unit().unit_id()] = {result.agreement().begin(), result.agreement().end()};
}

std::optional<v1::Measurement> LayerLossTable::complete() const {
  if (plan_.empty()) return std::nullopt;
  v1::Measurement measurement;
  for (const uint32_t reads : kMeasuredReads) {
    for (uint32_t layer = 0; layer < layers_; ++layer) {
      v1::LayerLoss& loss = *measurement.add_losses();
      loss.set_layer(layer);
      loss.set_reads(reads);
    }
  }
  for (const v1::EvaluationUnit& unit : plan_) {
    const auto cells = cells_.find(unit.unit_id());
    if (cells == cells_.end()) return std::nullopt;
    size_t place = 0;
    while (kMeasuredReads[place] != unit.schedule(0)) ++place;
    for (const v1::AgreementCell& cell : cells->second) {
      v1::LayerLoss& loss =
          *measurement.mutable_losses(static_cast<int>(place * layers_ + cell.layer()));
      loss.set_steps(loss.steps() + cell.steps());
      loss.set_agreed(loss.agreed() + cell.agreed());
      loss.set_divergence(loss.divergence() + cell.divergence());
      loss.set_divergence_squared(loss.divergence_squared() + cell.divergence_squared());
      loss.set_questions(loss.questions() + cell.questions());
    }
  }
  return measurement;
}

}  // namespace allot
