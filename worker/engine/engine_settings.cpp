#include "worker/engine/engine_settings.h"

#include <spdlog/spdlog.h>

#include <algorithm>
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
  if (const KvDtype kv = kvDtypeOf(spec.model()); kv != KvDtype::kBFloat16) {
    return "spec.model.kvDtype: " + std::string(wordOf(kv)) +
           " is for the CPU alone, a GPU keeps keys and values in bfloat16";
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

void askFor(const kernels::MethodOptions& method, KvPoolOptions* pool) {
  const int bits = kernels::shadowBits(method);
  if (bits > 0 && !holds(pool->shadow_bits, bits)) pool->shadow_bits.push_back(bits);
  pool->bounds |= kernels::readsBounds(method);
  pool->value_sums |= method.weights == kernels::Weights::kCentred;
}

kernels::Element elementFor(KvDtype dtype) {
  if (dtype == KvDtype::kFloat32) return kernels::Element::kFloat32;
  return dtype == KvDtype::kFp8 ? kernels::Element::kE4M3 : kernels::Element::kBFloat16;
}

ZeroReads zeroReadsFor(ZeroReadsChoice choice) {
  if (choice == ZeroReadsChoice::kMeanValue) return ZeroReads::kMeanValue;
  return choice == ZeroReadsChoice::kWindow ? ZeroReads::kWindow : ZeroReads::kOff;
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

void addCounts(const kernels::RowStatistics& row, uint64_t steps, v1::DecodeCounts* counts) {
  counts->set_decode_steps(counts->decode_steps() + steps);
  counts->set_draws(counts->draws() + row.draws);
  counts->set_unique_rows(counts->unique_rows() + row.unique_rows);
  counts->set_group_rows(counts->group_rows() + row.group_rows);
  counts->set_dense_rows(counts->dense_rows() + row.dense_rows);
  counts->set_key_bytes(counts->key_bytes() + row.key_bytes);
  counts->set_value_bytes(counts->value_bytes() + row.value_bytes);
  counts->set_dense_bytes(counts->dense_bytes() + row.dense_bytes);
}

v1::PrefillCounts countsOf(const Prompt& prompt) {
  const PromptStatistics& read = prompt.statistics;
  v1::PrefillCounts counts;
  counts.set_prompts(1);
  counts.set_tokens(static_cast<uint64_t>(prompt.length));
  counts.set_blocks(read.blocks.blocks);
  counts.set_dense_blocks(read.blocks.dense_blocks);
  counts.set_skipped_blocks(read.blocks.skipped_blocks);
  counts.set_unique_rows(read.rows.unique_rows);
  counts.set_dense_rows(read.rows.dense_rows);
  counts.set_key_bytes(read.blocks.key_bytes + read.rows.key_bytes);
  counts.set_value_bytes(read.blocks.value_bytes + read.rows.value_bytes);
  counts.set_dense_bytes(read.blocks.dense_bytes + read.rows.dense_bytes);
  counts.set_seconds(read.seconds);
  counts.set_selection_seconds(read.selection_seconds);
  if (read.kept_queries == 0) return counts;
  counts.set_least_kept_mass(read.least_kept_mass);
  counts.set_kept_queries(read.kept_queries);
  counts.set_kept_mass(read.kept_mass);
  return counts;
}

WeightType weightTypeOf(Dtype dtype) {
  return dtype == Dtype::kBFloat16 ? WeightType::kBFloat16 : WeightType::kFloat32;
}

ModelShape shapeOf(const ModelConfig& config) {
  return {static_cast<uint32_t>(config.layers), static_cast<uint32_t>(config.kv_heads),
          static_cast<uint32_t>(config.heads), static_cast<uint32_t>(config.head_dim)};
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
                     .element = elementFor(kvDtypeOf(spec.model())),
                     .zero_reads = zeroReadsFor(zeroReadsOf(spec.policy()))};
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
