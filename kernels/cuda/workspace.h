#pragma once
// The state of a workspace between its plan and its steps, and the launch of kernels. Private to
// kernels/cuda. Owned by cuda::Workspace; host, one caller at a time.
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
  // Of the plan.
  int kv_heads = 0, head_dim = 0;
  Element element = Element::kFloat32;
  MethodOptions method;
  int max_splits = 0;
  uint32_t draw_stride = 0;
  int part_stride = 0, fixed_parts = 0;
  Buffer splits, split_bytes, subtile_weights, scores, draw_keys, draw_weights, chosen, pilot_bits,
      sets, page_scores, tiles, shared_heads, parts, part_values, ranks, rank_splits, rank_levels,
      group_chosen, pilot_parts, queries, features, group_features, wrong;
  unsigned long long* host_wrong = nullptr;  // pinned

  // A configured split kernel and its largest grid.
  struct Launch {
    StepKernel kernel = nullptr;
    int threads = 0;
    int shared_bytes = 0;
    int blocks = 0;
  };
  std::vector<Launch> launches;
  // Kernels, with true if their code waits for the kernel before them and may be launched early.
  std::vector<std::pair<const void*, bool>> waiting;

  ~Impl() { cudaFreeHost(host_wrong); }

  std::array<const Buffer*, 23> buffers() const {
    return {&splits,         &split_bytes, &subtile_weights,
            &scores,         &draw_keys,   &draw_weights,
            &chosen,         &pilot_bits,  &sets,
            &page_scores,    &tiles,       &shared_heads,
            &parts,          &part_values, &ranks,
            &rank_splits,    &rank_levels, &group_chosen,
            &pilot_parts,    &queries,     &features,
            &group_features, &wrong};
  }

  Refusal prepare();

  // Loads the kernels into device memory, which a graph's capture does not allow, and sets their
  // shared memory for the plan's rows. A step with another number of rows sets its split kernel's
  // shared memory again (configure()).
  Refusal load(const MethodOptions& method, const PagedKv& kv, const StepBounds& of, int splits);

  // Returns true if the loaded kernel waits for its predecessor. Code for an architecture below
  // ALLOT_OVERLAP_ARCH does not, even where the driver compiled it for a newer GPU.
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
    // Kernels that are launched early use the largest share of shared memory: a multiprocessor must
    // be empty before its memory is divided otherwise.
    if (waits) {
      cudaFuncSetAttribute(name, cudaFuncAttributePreferredSharedMemoryCarveout,
                           cudaSharedmemCarveoutMaxShared);
    }
    if (!waits) cudaGetLastError();  // clears the error
    waiting.emplace_back(name, waits);
    return waits;
  }

  // Launches a kernel while the one before it still runs, if its code waits for that one's end.
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

  // Returns true if sets of keys are in the workspace, since shared memory has no room for them.
  bool longSets(const MethodOptions& method, int max_length) const;
  size_t combineBytes(const MethodOptions& method, int max_length, int splits) const;
  // Returns the words of each of the statistics' two sets of keys: a row's, or as many as fit.
  int statisticsWords(int max_length) const;
  size_t statisticsBytes(int max_length) const;

  Step::Space space(const MethodOptions& method) const;

  // Launches bernoulli's or quest's first kernel.
  Refusal launchBefore(const MethodOptions& method, const PagedKv& kv, Step* step,
                       cudaStream_t stream) const;

  // Launches the kernels of heads that choose together.
  cudaError_t launchGroupChoice(const MethodOptions& method, const PagedKv& kv, const Step& step,
                                cudaStream_t stream);

  // Launches the kernel or kernels that combine the splits.
  cudaError_t launchCombine(const MethodOptions& method, const PagedKv& kv, const DecodeInputs& in,
                            const Step& step, cudaStream_t stream);

  // Makes room for the key sets and counts of methods that choose by scores or bounds, page scores,
  // tile shares, parts of shared draws or choices, and bernoulli's estimates. plan() does the rest.
  Refusal makeRoom(const MethodOptions& method, const PagedKv& kv, const StepBounds& of);

  // Chooses the split kernel of a step and its grid.
  Refusal chooseSplitKernel(SplitMode mode, const PagedKv& kv, const DecodeInputs& in,
                            Launch* launch);

  // Chooses the warps of a block, for the most warps on a multiprocessor.
  Refusal configure(const SplitKernel& split, int rows, Launch* launch);
};

}  // namespace allot::kernels::cuda
