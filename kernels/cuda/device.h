#pragma once
// Which GPU it is. Private to kernels/cuda.
#include "kernels/cuda/buffer.h"

namespace allot::kernels::cuda {

// Shared memory that kernels declare by themselves, at most.
constexpr int kDeclaredBytes = 12 << 10;

struct Device {
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
  int shared_bytes = 0;  // that a block may have beside what kernels declare
};

// The current one; refused if these kernels do not run on it.
Refusal findDevice(Device* device);

}  // namespace allot::kernels::cuda
