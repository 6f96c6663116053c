#include "worker/engine/device_choice.h"

#include <spdlog/spdlog.h>

#include <string>

#include "allot/kernels/cuda_decode.h"
#include "allot/kernels/method.h"
#include "core/spec/choices.h"

namespace allot {
namespace {

// Returns why the GPU does not support a method of the experiment; nothing if it does. Text that is
// no method is refused elsewhere.
std::optional<std::string> refusalOf(const std::string& key, const std::string& text,
                                     kernels::Phase phase = kernels::Phase::kDecode) {
  kernels::MethodOptions method;
  if (kernels::parseMethod(text, &method, phase)) return {};
  const auto why = phase == kernels::Phase::kPrefill ? kernels::gpuUnsupported(method, phase)
                                                     : kernels::cuda::unsupported(method);
  if (!why) return {};
  return key + ": " + text + ": " + *why;
}

std::optional<std::string> refusalOf(const v1::Spec& spec, const ModelConfig& config) {
  if (kvDtypeOf(spec.model()) == KvDtype::kFloat32) {
    return "spec.model.kvDtype: float32 is for the CPU alone, a GPU keeps keys and values in "
           "bfloat16";
  }
  if (auto why = cudaUnavailable()) return why;
  if (auto why = cudaUnsupported(config)) return why;
  if (auto why = refusalOf("spec.attention.decode", spec.attention().decode())) return why;
  for (const std::string& text : spec.evaluation().methods()) {
    if (auto why = refusalOf("spec.evaluation.methods", text)) return why;
  }
  constexpr auto kPrefill = kernels::Phase::kPrefill;
  if (auto why = refusalOf("spec.attention.prefill", spec.attention().prefill(), kPrefill)) {
    return why;
  }
  for (const std::string& text : spec.evaluation().prefills()) {
    if (auto why = refusalOf("spec.evaluation.prefills", text, kPrefill)) return why;
  }
  if (zeroReadsOf(spec.policy()) == ZeroReadsChoice::kWindow) {
    return "spec.policy.zeroReads: window is for the CPU alone";
  }
  return {};
}

}  // namespace

Result<Device> chooseDevice(const v1::Spec& spec, const ModelConfig& config) {
  const bool narrow = dtypeOf(spec.model()) == Dtype::kBFloat16;
  if (deviceOf(spec.model()) == DeviceChoice::kCpu) {
    if (!narrow) return Device::kCpu;
    return badInput(
        "spec.model.dtype: bfloat16 is for a GPU, and spec.model.device is cpu: set it "
        "to float32");
  }
  const auto why = refusalOf(spec, config);
  if (!why) return Device::kCuda;
  if (deviceOf(spec.model()) != DeviceChoice::kCuda) {
    if (!narrow) {
      spdlog::info("spec.model.device: auto: this worker computes on the CPU: {}", *why);
      return Device::kCpu;
    }
    return badInput("spec.model.dtype: bfloat16 is for a GPU: " + *why +
                    "; or set it to float32, for the CPU");
  }
  return badInput("spec.model.device: cuda: " + *why + "; or set it to cpu or auto");
}

}  // namespace allot
