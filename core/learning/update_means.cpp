#include "core/learning/update_means.h"

#include <algorithm>

namespace allot {

UpdateMeans meansOf(std::span<const v1::IterationRecord> records) {
  UpdateMeans means;
  means.updates = records.size();
  if (records.empty()) return means;
  for (const v1::IterationRecord& record : records) {
    means.reward += record.mean_reward();
    means.lag += record.mean_lag_updates();
    means.effective_sample_size_ratio += record.effective_sample_size_ratio();
    means.step_kl_nats += record.step_kl_nats();
  }
  const auto count = static_cast<double>(records.size());
  for (double* sum :
       {&means.reward, &means.lag, &means.effective_sample_size_ratio, &means.step_kl_nats}) {
    *sum /= count;
  }
  return means;
}

UpdateMeans firstMeans(std::span<const v1::IterationRecord> records) {
  return meansOf(records.first(std::min(records.size(), kMeanUpdates)));
}

UpdateMeans lastMeans(std::span<const v1::IterationRecord> records) {
  return meansOf(records.last(std::min(records.size(), kMeanUpdates)));
}

}  // namespace allot
