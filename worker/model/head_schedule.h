#pragma once
// Schedules by heads: how the budgets of a row's schedule come to the query heads of a layer.
//
// A schedule has an entry a layer, an entry a KV head of each layer or an entry a query head of
// each layer, layer by layer; how many there are says which. An entry is the draws of every query
// head that it stands for. Where two of the three are equally many they mean the same. Pure
// functions, any thread.
#include <cstdint>
#include <span>
#include <vector>

#include "worker/model/model_config.h"

namespace allot {

using ScheduleView = std::span<const uint32_t>;

// Entries that a layer has in a schedule of `entries`: 1, or the model's kv_heads or heads. 0: the
// schedule is another model's.
int64_t entriesPerLayer(size_t entries, const ModelConfig& config);

// The draws of a layer. [rows] where every schedule has one entry a layer, else [rows, heads];
// returns whether it is the latter (kernels::DecodeInputs::head_budgets). Each schedule fits the
// model.
bool layerBudgets(std::span<const ScheduleView> schedules, const ModelConfig& config, int64_t layer,
                  std::vector<uint32_t>* budgets);

}  // namespace allot
