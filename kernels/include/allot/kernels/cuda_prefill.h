#pragma once
// Prefill attention on an NVIDIA GPU: prefill.h's functions over the same structs, whose pointers
// are then device memory. Needs CUDA's runtime and no framework.
//
// Shapes: bfloat16 caches, head_dim 64 or 128, pages of 16 keys or a larger power of two, blocks of
// 64 queries, prompts of up to 2^22 positions. Arrays are aligned as cuda_decode.h says, outputs to
// 8 bytes.
//
// Use: PrefillWorkspace::plan() once for a prompt on the host, by sizes alone; then, chunk by chunk
// and layer by layer, a selection and attendBlocks(). These launch kernels on the caller's stream
// and return. They do not allocate, synchronise or copy to or from the host, so that they can be
// captured in a CUDA graph. A selection's list is one bit a block, on the device; the host does not
// read it. A workspace has one caller at a time.
//
// A query's output depends on the query, its keys, its values and its list alone, to the last bit:
// not on the page size, the other heads or, except with skip and sampled blocks, the chunk.
//
// Agreement with the CPU (kernels/cpu):
//   outputs          queries, and weights relative to the running maximum, are rounded to bfloat16
//                    before they are multiplied; sums are float32.
//   SALE             the CPU's lists, unless the rounding of a mean or a threshold decides: these
//                    are double sums in another order. All else has the CPU's operations.
//   SampleAttention  the CPU's lists if the attention that decides between two blocks differs by
//                    more than 2^-16 of the whole; scores are products of queries as three
//                    bfloat16 terms.
//   skip-softmax     the CPU's choice if a deciding weight differs from the threshold by more than
//                    a score's rounding.
//   sampled blocks   the CPU's draws if no block's weight is within 2^-16 of a draw's threshold.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "allot/kernels/cuda_decode.h"
#include "allot/kernels/prefill.h"

namespace allot::kernels::cuda {

// Returns nothing if the GPU reads prompts with this method, or dense; else one sentence that says
// which methods it has.
std::optional<std::string> prefillUnsupported(const MethodOptions& method);

// The key blocks to attend to: one bit each, for each head and block of 64 queries. A list that was
// made for a chunk is valid for a part of it.
struct KeyBits {
  int key_block = 64;              // positions in a key block: 16, 32 or 64
  const uint32_t* bits = nullptr;  // [heads, blocks, words]; null: dense
  int words = 0;
  int first_block = 0;  // of queries
  int blocks = 0;
};

// The largest call of a plan.
struct PrefillBounds {
  int heads = 0;
  int count = 0;  // queries of a chunk
  int keys = 0;   // positions, the prompt's length
};

// The device memory that a prefill works in. One chunk at a time.
class PrefillWorkspace {
 public:
  PrefillWorkspace();
  ~PrefillWorkspace();
  PrefillWorkspace(PrefillWorkspace&&) noexcept;
  PrefillWorkspace& operator=(PrefillWorkspace&&) noexcept;

  // Makes room for chunks of at most these sizes, with this method and caches of kv's shapes.
  // Memory only grows, and growing waits for the device. Refuses what the GPU does not have, and
  // too little memory.
  [[nodiscard]] std::optional<std::string> plan(const MethodOptions& method, const PagedKv& kv,
                                                const PrefillBounds& bounds);
  size_t bytes() const;

  // Waits for the stream, then returns one error since the last call, in a sentence that names head
  // and query block: a score that is not finite, a page outside the pool; or an error of CUDA.
  [[nodiscard]] std::optional<std::string> failure(Stream stream);

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Launches attention over a list, or over all keys with `in.skip`, skip-softmax's threshold. Here
// and below all pointers of kv, in and out are device memory, statistics too (added to). Each
// function returns the errors that the host sees; PrefillWorkspace::failure() returns others.
[[nodiscard]] std::optional<std::string> attendBlocks(const PagedKv& kv, const PrefillInputs& in,
                                                      const KeyBits& list,
                                                      PrefillWorkspace* workspace,
                                                      const PrefillOutputs& out, Stream stream);

// Launches SampleAttention's selection. The list is the workspace's, until its next selection.
// Requires: options.block is 64.
[[nodiscard]] std::optional<std::string> selectSampleAttention(
    const PagedKv& kv, const PrefillInputs& in, const SampleAttentionOptions& options,
    PrefillWorkspace* workspace, KeyBits* list, Stream stream);

// Launches SALE's selection, with codes of 4 bits. SaleOptions::tau [heads] is device memory, whose
// numbers are not checked. The list is the workspace's, until its next selection.
[[nodiscard]] std::optional<std::string> selectSale(const PagedKv& kv, const PrefillInputs& in,
                                                    const SaleOptions& options,
                                                    PrefillWorkspace* workspace, KeyBits* list,
                                                    Stream stream);

// Launches attention over sampled blocks. QueryDraws::budgets is device memory, or null.
[[nodiscard]] std::optional<std::string> attendSampledBlocks(
    const PagedKv& kv, const PrefillInputs& in, const QueryDraws& draws,
    PrefillWorkspace* workspace, const PrefillOutputs& out, Stream stream);

}  // namespace allot::kernels::cuda
