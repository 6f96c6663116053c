#pragma once
// The GPU that a process decodes on: the first that it sees. Free functions, called on the
// decoder's thread. Private to worker/model/.
#include <memory>
#include <optional>
#include <string>

#include "allot/kernels/cuda_decode.h"
#include "worker/model/kv_pool.h"

namespace allot {

// Returns the name, like "NVIDIA H200"; "NVIDIA GPU" if the driver does not say.
std::string cudaDeviceName();

// Returns the GPU's memory as a place for pages, which are copied on `stream`. If
// KvPlace::copy_pages cannot start a copy, `refusal` is set, unless it already is.
KvPlace cudaPlace(kernels::cuda::Stream stream,
                  std::shared_ptr<std::optional<std::string>> refusal);

}  // namespace allot
