#pragma once
// The selections behind selectBlocks(), which checks `in`. Private to kernels/cpu.
#include <optional>
#include <string>

#include "allot/kernels/prefill.h"

namespace allot::kernels {

std::optional<std::string> selectSampleAttention(const MethodOptions& options, const PagedKv& kv,
                                                 const PrefillInputs& in,
                                                 PrefillWorkspace* workspace, BlockLists* lists);
std::optional<std::string> selectSale(const MethodOptions& options, const PagedKv& kv,
                                      const PrefillInputs& in, const float* tau,
                                      PrefillWorkspace* workspace, BlockLists* lists);

}  // namespace allot::kernels
