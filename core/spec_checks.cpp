// The part of core/spec that looks at a whole experiment: its layers and its bytes.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "core/digest.h"
#include "core/spec.h"

namespace allot {

Status checkAgainstLayers(const v1::Experiment& experiment, uint32_t layers) {
  const v1::Spec& spec = experiment.spec();
  const std::string model = "the model has " + std::to_string(layers) + " layers";
  if (layers == 0) return badInput("the model has no layers");
  const uint64_t least = uint64_t{spec.policy().min_per_layer()} * layers;
  if (least > spec.policy().total_budget()) {
    return badInput("spec.policy.minPerLayer: " + std::to_string(spec.policy().min_per_layer()) +
                    " in each layer needs " + std::to_string(least) +
                    " samples, more than spec.policy.totalBudget, which is " +
                    std::to_string(spec.policy().total_budget()) + " (" + model + ")");
  }
  for (int i = 0; i < spec.evaluation().schedules_size(); ++i) {
    const v1::Schedule& schedule = spec.evaluation().schedules(i);
    const std::string path = "spec.evaluation.schedules[" + std::to_string(i) + "]: ";
    if (schedule.kind() == "explicit" && schedule.samples_size() != static_cast<int64_t>(layers)) {
      return badInput(path + "has " + std::to_string(schedule.samples_size()) + " entries, but " +
                      model + "; write one for each layer");
    }
    if (schedule.kind() != "oneHot") continue;
    if (layers < 2) return badInput(path + "oneHot compares layers, but the model has only one");
    for (const uint32_t budget : spec.evaluation().budgets()) {
      if (budget >= layers) continue;
      return badInput(path + "oneHot needs at least one sample in each layer, but " + model +
                      " and spec.evaluation.budgets has " + std::to_string(budget));
    }
  }
  return {};
}

std::string canonicalBytes(const v1::Experiment& experiment) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    experiment.SerializeToCodedStream(&coded);
  }
  return bytes;
}

std::string specDigest(const v1::Experiment& experiment) {
  return sha256Hex(canonicalBytes(experiment));
}

}  // namespace allot
