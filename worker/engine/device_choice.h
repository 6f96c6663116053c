#pragma once
// Where a worker computes, by spec.model.device. Free functions, any thread.
#include "allot/v1/experiment.pb.h"
#include "core/result.h"
#include "worker/model/compute_device.h"
#include "worker/model/model_config.h"

namespace allot {

// cpu and cuda are what they say; auto is a GPU where there is one that decodes this model with
// all of the experiment's methods and measures, else the CPU. kUsage where cuda is not possible:
// one sentence with the mend.
Result<Device> chooseDevice(const v1::Spec& spec, const ModelConfig& config);

}  // namespace allot
