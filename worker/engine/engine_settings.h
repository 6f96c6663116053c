#pragma once
// What an experiment asks of the decoder that answers it: methods, number formats, and what is kept
// beside keys and values. Pure functions, any thread.
#include <string>
#include <vector>

#include "allot/kernels/method.h"
#include "allot/v1/experiment.pb.h"
#include "core/result.h"
#include "core/spec/choices.h"
#include "core/spec/model_shape.h"
#include "worker/model/compute_device.h"
#include "worker/model/kv_pool.h"
#include "worker/model/model_config.h"

namespace allot {

WeightType weightTypeOf(Dtype dtype);

ModelShape shapeOf(const ModelConfig& config);

// The method that `text` is, with the experiment's defaults. kUsage names `key`.
Result<kernels::MethodOptions> methodOf(const std::string& key, const std::string& text,
                                        kernels::Phase phase = kernels::Phase::kDecode);
// Missing, of a run that an older build began: dense.
Result<kernels::MethodOptions> prefillMethodOf(const std::string& key, const std::string& text);

bool holds(const std::vector<int>& numbers, int number);

// What the methods of the experiment read beside keys and values is kept; nothing else is.
Result<KvPoolOptions> poolFor(const v1::Spec& spec);

}  // namespace allot
