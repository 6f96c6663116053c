#pragma once
// Prefill attention on an NVIDIA GPU: prefill.h's functions over the same structs, whose pointers
// are then device memory. bfloat16 caches, head sizes 64 and 128, pages of a power of two of keys,
// 16 or more, blocks of 64 queries. Arrays begin where cuda_decode.h says, and outputs at multiples
// of 8 bytes.
//
// plan() once for a prompt on the host, by sizes alone; then, chunk by chunk and layer by layer, a
// selection and attendBlocks(). These launch kernels on the caller's stream and return: they
// allocate nothing, wait for nothing and copy nothing, so that they can be captured in a CUDA
// graph. Which blocks a selection chose is a bit for each, on the device: nobody reads a list on
// the host.
//
// How it agrees with the CPU (kernels/cpu):
//   outputs       queries, and weights relative to the largest score so far, are rounded to
//                 bfloat16 before they are multiplied; sums are float32.
//   SALE          the CPU's lists, bit for bit: means are sums in double precision, codes and
//                 thresholds the same operations in the same order.
//   SampleAttention  the CPU's lists where the mass that decides between two blocks differs by more
//                 than 2^-16 of the whole; scores are products of queries in three bfloat16 parts.
//   skip-softmax  as the CPU's, where a weight that decides differs from the threshold by more
//                 than a score's rounding.
//   sampled blocks  the CPU's draws where no block's mass is within 2^-16 of a draw's threshold.
// A query's output depends on nothing but its keys, its values and its list: not on the chunk, the
// page size or the other heads, to the last bit.
// Free of any framework: CUDA's runtime alone.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "allot/kernels/cuda_decode.h"
#include "allot/kernels/prefill.h"

namespace allot::kernels::cuda {

// Nothing if the GPU reads prompts with this method, or dense; else one sentence that says with
// which it does.
std::optional<std::string> prefillUnsupported(const MethodOptions& method);

// Which key blocks are attended to: one bit each, for each head and block of 64 queries. A list
// that was made for a chunk serves for parts of it.
struct KeyBits {
  int key_block = 64;              // positions in a key block: 16, 32 or 64
  const uint32_t* bits = nullptr;  // [heads, blocks, words]; nothing: dense
  int words = 0;
  int first_block = 0;  // of queries
  int blocks = 0;
};

// No call has more than this.
struct PrefillBounds {
  int heads = 0;
  int count = 0;  // queries of a chunk
  int keys = 0;   // positions, the prompt's length
};

// Device memory that prompts are read in. One chunk at a time.
class PrefillWorkspace {
 public:
  PrefillWorkspace();
  ~PrefillWorkspace();
  PrefillWorkspace(PrefillWorkspace&&) noexcept;
  PrefillWorkspace& operator=(PrefillWorkspace&&) noexcept;

  // Room for chunks of at most these sizes with this method on such a cache. Grows only; where it
  // grows it waits for the device. Refused: what the GPU does not do, and too little memory.
  [[nodiscard]] std::optional<std::string> plan(const MethodOptions& method, const PagedKv& kv,
                                                const PrefillBounds& bounds);
  size_t bytes() const;

  // Waits for the stream, then says what went wrong since the last call, if anything did: a score
  // that is not finite, a page outside the pool. One sentence; names head and query block.
  [[nodiscard]] std::optional<std::string> failure(Stream stream);

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// All pointers of kv, in and out are device memory, statistics too (added to). `in.skip` is
// skip-softmax. Each returns what the host can see to be wrong; what only the device sees is for
// PrefillWorkspace::failure().
[[nodiscard]] std::optional<std::string> attendBlocks(const PagedKv& kv, const PrefillInputs& in,
                                                      const KeyBits& list,
                                                      PrefillWorkspace* workspace,
                                                      const PrefillOutputs& out, Stream stream);

// The lists are the workspace's, until its next selection. SampleAttentionOptions::block is 64.
[[nodiscard]] std::optional<std::string> selectSampleAttention(
    const PagedKv& kv, const PrefillInputs& in, const SampleAttentionOptions& options,
    PrefillWorkspace* workspace, KeyBits* list, Stream stream);

// SaleOptions::tau is device memory, [heads]; not looked at before it is used. 4 bits alone.
[[nodiscard]] std::optional<std::string> selectSale(const PagedKv& kv, const PrefillInputs& in,
                                                    const SaleOptions& options,
                                                    PrefillWorkspace* workspace, KeyBits* list,
                                                    Stream stream);

// QueryDraws::budgets is device memory, where it is there.
[[nodiscard]] std::optional<std::string> attendSampledBlocks(
    const PagedKv& kv, const PrefillInputs& in, const QueryDraws& draws,
    PrefillWorkspace* workspace, const PrefillOutputs& out, Stream stream);

}  // namespace allot::kernels::cuda
