#pragma once
// Maps the budgets of a row's schedule to the query heads of a layer. Pure functions, any thread.
//
// A schedule has an entry for each layer, for each KV head of each layer, or for each query head of
// each layer, layer by layer. The number of entries decides which. An entry is the draws of every
// query head that it covers. If two of the three numbers are equal, both readings give the same
// budgets.
#include <cstdint>
#include <span>
#include <vector>

#include "worker/model/model_config.h"

namespace allot {

using ScheduleView = std::span<const uint32_t>;

// Returns the entries of a layer in a schedule of `entries`: 1, or the model's kv_heads or heads.
// 0: the schedule does not fit the model.
int64_t entriesPerLayer(size_t entries, const ModelConfig& config);

// Computes the draws of a layer. budgets: [rows] if every schedule has one entry a layer, else
// [rows, heads]. Returns true in the second case (kernels::DecodeInputs::head_budgets).
// Requires: each schedule fits the model.
bool layerBudgets(std::span<const ScheduleView> schedules, const ModelConfig& config, int64_t layer,
                  std::vector<uint32_t>* budgets);

}  // namespace allot
