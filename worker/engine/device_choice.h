#pragma once
// Chooses where a worker computes, by spec.model.device. Free functions, any thread.
#include "allot/v1/experiment.pb.h"
#include "core/result.h"
#include "worker/model/compute_device.h"
#include "worker/model/model_config.h"

namespace allot {

// Returns the device for `spec`. `cpu` and `cuda` are taken literally. `auto` is a GPU if one is
// usable and it decodes this model with all methods and measures of the experiment, else the CPU.
// kUsage, with the remedy, if cuda is asked for and is not possible.
Result<Device> chooseDevice(const v1::Spec& spec, const ModelConfig& config);

}  // namespace allot
