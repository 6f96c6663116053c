#pragma once
// The GPU that a process decodes on: the first that it sees. Private to worker/model/.
#include <memory>
#include <optional>
#include <string>

#include "allot/kernels/cuda_decode.h"
#include "worker/model/kv_pool.h"

namespace allot {

// "NVIDIA H200".
std::string cudaDeviceName();

// The GPU's memory. Pages are copied on `stream`; a copy that could not be started says so in
// `refusal`, if it is the first.
KvPlace cudaPlace(kernels::cuda::Stream stream,
                  std::shared_ptr<std::optional<std::string>> refusal);

}  // namespace allot
