#pragma once
// Prefill attention on an NVIDIA GPU: prefill.h's functions, except attendQueries(), over the same
// structs, whose pointers are then device memory. Needs CUDA's runtime and no framework.
//
// Shapes: bfloat16 caches, head_dim 64 or 128, pages of 16 keys or a larger power of two, blocks of
// 64 queries, prompts of up to 2^22 positions. Arrays must be aligned as cuda_decode.h says,
// outputs to 8 bytes, bfloat16 ones to 16.
//
// Use: PrefillWorkspace::plan() once, for the largest sizes of a prompt; then, chunk by chunk and
// layer by layer, a selection and attendBlocks(), or attendSampledBlocks(). The functions after
// plan() launch kernels on the caller's stream and return. They do not allocate, synchronise or
// copy to or from the host, so that they can be captured in a CUDA graph. A selection's list is one
// bit a block, on the device; the host does not read it. A workspace has one caller at a time.
//
// A query's output depends on the query, its keys, its values and its list alone, to the last bit:
// not on the page size, the other heads or, except with skip and sampled blocks, the chunk. A list
// of all blocks of 64 has dense attention's bits.
//
// On Hopper (H100, H200; a build for sm_90a) dense attention and lists have a kernel of their own,
// with tensor maps and warp groups. The host reads the driver's encoder of
// tensor maps for it, and each call makes three maps.
//
// Agreement with the CPU (kernels/cpu):
//   outputs          queries, and weights relative to the running maximum or, on Hopper, to a
//                    reference that is lower by at most a factor of 2^8
//                    in the weight, enter products rounded to bfloat16; sums are
//                    float32.
//   SALE             the CPU's lists, unless rounding decides. Means and mean scores are double
//   sums
//                    in another order, rounded to float32. Thresholds differ by at most 2^-16 of
//                    the largest sum over channels of |query (key - mean key)|, |query key| and
//                    |query mean key|, times the scale: queries are there sums of two bfloat16
//                    terms. Codes and their products are the CPU's.
//   SampleAttention  the CPU's lists, unless two columns, or two slashes, of which one is kept hold
//                    attention within 2^-16 of the whole. Queries are sums of three bfloat16 terms.
//   skip-softmax     the CPU's choice, unless a block's largest weight is within a score's rounding
//                    of the threshold.
//   sampled blocks   the CPU's draws if queries are bfloat16 numbers and no prefix sum of the
//                    blocks' weights is within 2^-16 of the whole from a draw's threshold.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "allot/kernels/cuda_decode.h"
#include "allot/kernels/prefill.h"

namespace allot::kernels::cuda {

// Returns nothing if the GPU reads prompts with this method; else one sentence that says which
// methods it has.
std::optional<std::string> prefillUnsupported(const MethodOptions& method);
// Returns nothing if it also has kernels for caches of kv's shapes and this number of query heads.
std::optional<std::string> prefillUnsupported(const MethodOptions& method, const PagedKv& kv,
                                              int heads);

// Returns true if dense prompts have Hopper's kernel: on the current device, and in this build.
bool isHopper();

// The key blocks to attend to: one bit each, for each head and block of 64 queries. A call with a
// part of the chunk may use the chunk's list.
struct KeyBits {
  int key_block = 64;              // positions in a key block: 16, 32 or 64
  const uint32_t* bits = nullptr;  // [heads, blocks, words]; null: dense
  int words = 0;
  int first_block = 0;  // first block of queries
  int blocks = 0;       // blocks of queries
};

// The largest call of a plan.
struct PrefillBounds {
  int heads = 0;
  int count = 0;  // queries of a chunk
  int keys = 0;   // positions, the prompt's length
};

// The device memory that a prefill works in. Calls that share it must not overlap.
class PrefillWorkspace {
 public:
  PrefillWorkspace();
  ~PrefillWorkspace();
  PrefillWorkspace(PrefillWorkspace&&) noexcept;
  PrefillWorkspace& operator=(PrefillWorkspace&&) noexcept;

  // Makes room for chunks of at most these sizes, with this method and caches of kv's shapes.
  // Memory only grows, and growing waits for the device. On Hopper each plan takes 2 bytes a
  // channel of a chunk's queries. Refuses a method, shape or length without a kernel, and too
  // little memory.
  [[nodiscard]] std::optional<std::string> plan(const MethodOptions& method, const PagedKv& kv,
                                                const PrefillBounds& bounds);
  size_t bytes() const;
  // Returns true if the plan's method takes PrefillInputs::rounded: all but sampled blocks, on
  // Hopper. Its bits are those of equal queries in float32.
  // Requires: plan().
  bool takesRounded() const;
  // Returns how many positions of a dense prompt to read at once, at most `most`: on Hopper those
  // whose items of 128 queries of a head fill whole waves best, elsewhere `most`.
  // Requires: plan().
  int densePositions(int heads, int most) const;

  // Waits for the stream, then returns one error since the previous failure(), naming head and
  // query block: a score that is not finite, a page outside the pool; or an error of CUDA.
  [[nodiscard]] std::optional<std::string> failure(Stream stream);

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Launches attention over a list, or over all keys if list.bits is null; in.skip > 0 needs a null
// one. Here and below all pointers of kv, in and out are device memory, statistics included. Each
// function returns the errors that the host sees; PrefillWorkspace::failure() returns the others.
[[nodiscard]] std::optional<std::string> attendBlocks(const PagedKv& kv, const PrefillInputs& in,
                                                      const KeyBits& list,
                                                      PrefillWorkspace* workspace,
                                                      const PrefillOutputs& out, Stream stream);

// Launches the selection of the plan's method. tau [heads] is device memory, whose numbers are not
// checked. list->bits is valid until the workspace's next selection. Refuses what gpuUnsupported()
// refuses of the method's parameters.
[[nodiscard]] std::optional<std::string> selectBlocks(const MethodOptions& method,
                                                      const PagedKv& kv, const PrefillInputs& in,
                                                      const float* tau, PrefillWorkspace* workspace,
                                                      KeyBits* list, Stream stream);

// Launches attention over sampled blocks. QueryDraws::budgets is device memory, or null.
[[nodiscard]] std::optional<std::string> attendSampledBlocks(
    const PagedKv& kv, const PrefillInputs& in, const QueryDraws& draws,
    PrefillWorkspace* workspace, const PrefillOutputs& out, Stream stream);

}  // namespace allot::kernels::cuda
