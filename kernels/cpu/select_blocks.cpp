#include "kernels/cpu/select_blocks.h"

#include "kernels/cpu/prefill_workspace.h"

namespace allot::kernels {

std::optional<std::string> selectBlocks(const MethodOptions& method, const PagedKv& kv,
                                        const PrefillInputs& in, const float* tau,
                                        PrefillWorkspace* workspace, BlockLists* lists) {
  if (!makesLists(method)) {
    return std::string(methodName(method.method)) + " chooses no blocks beforehand";
  }
  if (auto refusal = checkPrefill(kv, in)) return refusal;
  if (hasHeadThresholds(method) && in.count > 0 && !tau) return "there are no thresholds of heads";
  if (hasHeadThresholds(method)) return selectSale(method, kv, in, tau, workspace, lists);
  return selectSampleAttention(method, kv, in, workspace, lists);
}

}  // namespace allot::kernels
