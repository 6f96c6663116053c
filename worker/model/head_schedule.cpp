#include "worker/model/head_schedule.h"

#include <algorithm>
#include <cassert>

namespace allot {

int64_t entriesPerLayer(size_t entries, const ModelConfig& config) {
  for (const int64_t each : {int64_t{1}, config.kv_heads, config.heads}) {
    if (static_cast<int64_t>(entries) == config.layers * each) return each;
  }
  return 0;
}

bool layerBudgets(std::span<const ScheduleView> schedules, const ModelConfig& config, int64_t layer,
                  std::vector<uint32_t>* budgets) {
  const bool by_heads = std::any_of(schedules.begin(), schedules.end(), [&](ScheduleView one) {
    return static_cast<int64_t>(one.size()) != config.layers;
  });
  const int64_t heads = by_heads ? config.heads : 1;
  budgets->clear();
  for (const ScheduleView schedule : schedules) {
    const int64_t each = entriesPerLayer(schedule.size(), config);
    assert(each > 0);
    // Query heads of a KV head are neighbours.
    for (int64_t h = 0; h < heads; ++h) {
      budgets->push_back(schedule[static_cast<size_t>(layer * each + h * each / heads)]);
    }
  }
  return by_heads;
}

}  // namespace allot
