#pragma once
// Translates an experiment into the decoder's settings: methods, number formats, and what the pool
// keeps beside keys and values. Pure functions, any thread.
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

// Parses `text` as a method, with the experiment's defaults. kUsage names `key`.
Result<kernels::MethodOptions> methodOf(const std::string& key, const std::string& text,
                                        kernels::Phase phase = kernels::Phase::kDecode);
// Parses a prefill method. Empty text means dense.
Result<kernels::MethodOptions> prefillMethodOf(const std::string& key, const std::string& text);

bool holds(const std::vector<int>& numbers, int number);

// Returns the pool's options: it keeps exactly the extra data that the experiment's methods read.
Result<KvPoolOptions> poolFor(const v1::Spec& spec);

}  // namespace allot
