#pragma once
// Translates an experiment into the decoder's settings: device, methods, number formats, and what
// the pool keeps beside keys and values. Adds up what prompts and decode steps read, for results.
// Any thread.
#include <cstdint>
#include <string>
#include <vector>

#include "allot/kernels/decode.h"
#include "allot/kernels/method.h"
#include "allot/v1/experiment.pb.h"
#include "allot/v1/result.pb.h"
#include "core/result.h"
#include "core/spec/choices.h"
#include "core/spec/model_shape.h"
#include "worker/model/compute_device.h"
#include "worker/model/decoder.h"
#include "worker/model/kv_pool.h"
#include "worker/model/model_config.h"

namespace allot {

WeightType weightTypeOf(Dtype dtype);

ModelShape shapeOf(const ModelConfig& config);

// Parses `text` as a method. kUsage names `key`.
Result<kernels::MethodOptions> methodOf(const std::string& key, const std::string& text,
                                        kernels::Phase phase = kernels::Phase::kDecode);
// Parses a prefill method. Empty text means dense.
Result<kernels::MethodOptions> prefillMethodOf(const std::string& key, const std::string& text);

bool holds(const std::vector<int>& numbers, int number);

// Returns the pool's options, without kv_bytes: the pool keeps exactly the shadows and bounds that
// the experiment's methods read. kUsage if a method cannot be parsed.
Result<KvPoolOptions> poolFor(const v1::Spec& spec);

// Returns the device for spec.model.device. `auto` is a GPU if one is usable and supports this
// model and experiment, else the CPU; the reason is logged. kUsage, with the remedy, if the device
// or spec.model.dtype needs a GPU and none can be used, or for bfloat16 with `cpu`.
Result<Device> chooseDevice(const v1::Spec& spec, const ModelConfig& config);

// Adds the reads of `steps` decode steps, which `row` has summed.
void addCounts(const kernels::RowStatistics& row, uint64_t steps, v1::DecodeCounts* counts);
// Returns the reads of one prompt.
v1::PrefillCounts countsOf(const Prompt& prompt);

}  // namespace allot
