#pragma once
// What a workspace holds between its plan and its steps, and how kernels are launched. Private to
// kernels/cuda; host, one caller at a time.
#include <array>
#include <utility>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/method_step.h"

namespace allot::kernels::cuda {

struct Workspace::Impl {
  Device device;
  bool ready = false;
  StepBounds bounds;
  int kv_heads = 0;  // whose head groups were loaded
  MethodOptions method;
  int max_splits = 0;
  uint32_t draw_stride = 0;
  Buffer splits, split_bytes, subtile_weights, scores, draw_keys, draw_weights, chosen, pilot_bits,
      sets, page_scores, tiles, queries, features, group_features, wrong;
  unsigned long long* host_wrong = nullptr;  // pinned

  // Split kernels that were configured, with how many blocks of how many threads they run as.
  struct Launch {
    StepKernel kernel = nullptr;
    int threads = 0;
    int shared_bytes = 0;
    int blocks = 0;
  };
  std::vector<Launch> launches;
  // Whether a kernel's code waits for the one before it, so that it may be launched while that one
  // still works.
  std::vector<std::pair<const void*, bool>> waiting;

  ~Impl() { cudaFreeHost(host_wrong); }

  std::array<const Buffer*, 15> buffers() const {
    return {&splits,       &split_bytes, &subtile_weights, &scores,         &draw_keys,
            &draw_weights, &chosen,      &pilot_bits,      &sets,           &page_scores,
            &tiles,        &queries,     &features,        &group_features, &wrong};
  }

  Refusal prepare();

  // Kernels are in the device's memory, and may have the shared memory that they need, before the
  // first launch: neither may happen while a graph is captured.
  Refusal load(const MethodOptions& method, const PagedKv& kv, const StepBounds& of, int splits);

  // Asked of the kernel that was loaded, not of the GPU: code for an older architecture, which the
  // driver compiles for a newer GPU, has no wait.
  template <typename Argument>
  bool waits(void (*kernel)(Argument)) {
    const auto* name = reinterpret_cast<const void*>(kernel);
    for (const auto& [known, waits] : waiting) {
      if (known == name) return waits;
    }
    cudaFuncAttributes loaded{};
    const bool waits = cudaFuncGetAttributes(&loaded, name) == cudaSuccess &&
                       loaded.ptxVersion * 10 >= ALLOT_OVERLAP_ARCH &&
                       loaded.binaryVersion * 10 >= ALLOT_OVERLAP_ARCH;
    // Its neighbours have most of a multiprocessor's memory shared: one that is divided in another
    // way has to be empty first.
    if (waits) {
      cudaFuncSetAttribute(name, cudaFuncAttributePreferredSharedMemoryCarveout,
                           cudaSharedmemCarveoutMaxShared);
    }
    if (!waits) cudaGetLastError();  // forgets why not
    waiting.emplace_back(name, waits);
    return waits;
  }

  // Launches a kernel while the one before it still works, if its code waits for that one's end.
  template <typename Argument>
  cudaError_t launchEarly(void (*kernel)(Argument), unsigned blocks, unsigned threads, size_t bytes,
                          cudaStream_t stream, const Argument& argument) {
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = waits(kernel) ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, argument);
  }

  // Whether rows are so long that sets of keys are in the workspace.
  bool longSets(const MethodOptions& method, int max_length) const;
  size_t combineBytes(const MethodOptions& method, int max_length, int splits) const;
  // Words of each of the statistics' two sets of keys: what a row needs, or there is room for.
  int statisticsWords(int max_length) const;
  size_t statisticsBytes(int max_length) const;

  Step::Space space(const MethodOptions& method) const;

  // What a step of some methods begins with.
  Refusal launchBefore(const MethodOptions& method, const PagedKv& kv, Step* step,
                       cudaStream_t stream) const;

  // Room for what some methods alone leave for later kernels of a step.
  Refusal makeRoom(const MethodOptions& method, const PagedKv& kv, const StepBounds& of);

  // The split kernel of a step, and as how many blocks it runs.
  Refusal chooseSplitKernel(SplitMode mode, const PagedKv& kv, const DecodeInputs& in,
                            Launch* launch);

  // As many warps a block as give the most on a multiprocessor.
  Refusal configure(const SplitKernel& split, int rows, Launch* launch);
};

}  // namespace allot::kernels::cuda
