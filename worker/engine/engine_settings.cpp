#include "worker/engine/engine_settings.h"

#include <algorithm>

namespace allot {
namespace {

void askFor(const kernels::MethodOptions& method, KvPoolOptions* pool) {
  const int bits = kernels::shadowBits(method);
  if (bits > 0 && !holds(pool->shadow_bits, bits)) pool->shadow_bits.push_back(bits);
  pool->bounds |= kernels::readsBounds(method);
}

// The element type of keys and values on a CPU; on a GPU it is bfloat16.
kernels::Element elementOf(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::kBFloat16:
      return kernels::Element::kBFloat16;
    case KvDtype::kFloat32:
      return kernels::Element::kFloat32;
  }
  return kernels::Element::kFloat32;
}

ZeroReads zeroReadsFor(const v1::Spec& spec) {
  switch (zeroReadsOf(spec.policy())) {
    case ZeroReadsChoice::kOff:
      return ZeroReads::kOff;
    case ZeroReadsChoice::kMeanValue:
      return ZeroReads::kMeanValue;
    case ZeroReadsChoice::kWindow:
      return ZeroReads::kWindow;
  }
  return ZeroReads::kOff;
}

}  // namespace

WeightType weightTypeOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return WeightType::kFloat32;
    case Dtype::kBFloat16:
      return WeightType::kBFloat16;
  }
  return WeightType::kFloat32;
}

ModelShape shapeOf(const ModelConfig& config) {
  return {static_cast<uint32_t>(config.layers), static_cast<uint32_t>(config.kv_heads),
          static_cast<uint32_t>(config.heads)};
}

Result<kernels::MethodOptions> methodOf(const std::string& key, const std::string& text,
                                        kernels::Phase phase) {
  kernels::MethodOptions method;
  if (const auto wrong = kernels::parseMethod(text, &method, phase)) {
    return badInput(key + ": " + text + ": " + *wrong);
  }
  return method;
}

Result<kernels::MethodOptions> prefillMethodOf(const std::string& key, const std::string& text) {
  return methodOf(key, text.empty() ? "dense" : text, kernels::Phase::kPrefill);
}

Result<KvPoolOptions> poolFor(const v1::Spec& spec) {
  KvPoolOptions pool{.page_size = 16,
                     .element = elementOf(kvDtypeOf(spec.model())),
                     .zero_reads = zeroReadsFor(spec)};
  ALLOT_ASSIGN(const auto rollout, methodOf("spec.attention.decode", spec.attention().decode()));
  askFor(rollout, &pool);
  for (const std::string& text : spec.evaluation().methods()) {
    ALLOT_ASSIGN(const auto method, methodOf("spec.evaluation.methods", text));
    askFor(method, &pool);
  }
  std::vector<std::string> prefills(spec.evaluation().prefills().begin(),
                                    spec.evaluation().prefills().end());
  prefills.push_back(spec.attention().prefill());
  for (const std::string& text : prefills) {
    ALLOT_ASSIGN(const auto method, prefillMethodOf("spec.evaluation.prefills", text));
    askFor(method, &pool);
  }
  return pool;
}

bool holds(const std::vector<int>& numbers, int number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

}  // namespace allot
