#pragma once
// The current GPU's limits. Private to kernels/cuda; host, any thread.
#include "kernels/cuda/buffer.h"

namespace allot::kernels::cuda {

// Room for the static shared memory of kernels that are limited by Device::shared_bytes.
constexpr int kDeclaredBytes = 12 << 10;

struct Device {
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
  int shared_bytes = 0;    // dynamic shared memory of a block, at most
  bool is_hopper = false;  // and the build has code with Hopper's instructions, sm_90a
};

// Describes the calling thread's current GPU. Refuses one that these kernels do not run on.
Refusal findDevice(Device* device);

}  // namespace allot::kernels::cuda
