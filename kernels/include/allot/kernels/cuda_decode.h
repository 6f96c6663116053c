#pragma once
// Decode attention on an NVIDIA GPU: the functions of decode.h and paged_kv.h over the same
// structs, whose pointers are then device memory. Needs CUDA's runtime and no framework.
//
// Shapes: bfloat16 and float16 caches, head_dim 64 or 128, up to 16 query heads a KV head, pages of
// 16 keys or a larger power of two. Queries and a cache's keys, values, codes, scales and bounds
// must begin at multiples of 16 bytes, or are refused.
//
// Use: Workspace::plan() once, for the largest sizes; then appendKv() and decodeAttention() once a
// layer and step. These two launch kernels on the caller's stream and return. They do not allocate,
// synchronise or copy to or from the host, so that a step can be captured in a CUDA graph. Lengths,
// budgets, page tables and steps may change in device memory between replays, within the plan. A
// workspace has one caller at a time.
//
// On Hopper and later the kernels use programmatic dependent launch: each may start while the
// kernel before it on the stream still runs, and waits for that kernel's end before it reads that
// kernel's results. Other kernels of the stream that are launched this way must wait for the kernel
// before them, too.
//
// A row's output depends on its own inputs alone, to the last bit: not on the other rows, the page
// size or the number of multiprocessors. The row's keys are cut into splits, whose sums are added
// in one order. A row that a method reads whole has the bits of `dense` if at most four query heads
// share a KV head, and else rounds differently.
//
// Agreement with the CPU (kernels/cpu):
//   scores        a query is replaced by a sum of two numbers of the cache's type, which is within
//                 2^-16 (bfloat16) or 2^-21 (float16) of it. Products are summed in float32.
//   4-bit scores  sums of products of codes are the CPU's integers, which are scaled in float32.
//                 The page scores of quest, the queries of bernoulli and the cache's bounds have
//                 the CPU's bits.
//   weights       2^(s' - e) / 2 in float16, with s' the score in powers of two and e the split's
//                 largest s', rounded up. The rounding error is at most 2^-11 of the weight, or
//                 2^-25. Sums of weights and draws from them are exact, in integers. A split whose
//                 e is more than 16 below E, the head's largest e, has its sum of 2^s' / 2 rounded
//                 to a multiple of 2^(E - 40). If all weights of a head are 0 or powers of two
//                 (equal scores, masked keys), draws are the CPU's.
//   head budgets  a head's draws and output have the bits that they have if all heads have its
//                 budget. Exceptions: s2anta-flash with tiles of 256 sums the drawn values of four
//                 heads together, and rounds by the draws of all four; with draws=group or
//                 choose=group heads depend on their group.
//   draws=group   the mixture is of the float16 weights, the CPU's of its own. Draws from equal
//                 mixtures are equal. A head's weight of a drawn row is within 2^-9 of the CPU's,
//                 or 2^-20.
//   zero_budget_window   is refused.
//   chosen keys   those of top-k, vattention, adaptive-denominator and skip-softmax are the CPU's
//                 if deciding scores differ by more than their rounding. Adaptive samples are the
//                 CPU's if their sizes are, which the rounding of the pilot's sums may change.
//                 With choose=group it is ranks that decide, sums over the group's heads.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "allot/kernels/decode.h"

struct CUstream_st;

namespace allot::kernels::cuda {

using Stream = CUstream_st*;  // cudaStream_t

// Keys of one split of heads that draw: one tile of s2anta-flash with its default tileSize.
constexpr int kSplitKeys = 256;

// Returns nothing if this build has the kernels and this machine a GPU that runs them; else why
// not.
std::optional<std::string> unavailable();

// Returns nothing if the GPU decodes with this method; else one sentence that says what it decodes.
std::optional<std::string> unsupported(const MethodOptions& method);

// The largest step of a plan.
struct StepBounds {
  int rows = 0;
  int heads = 0;
  int max_length = 0;       // keys of a row
  uint32_t max_budget = 0;  // of heads that draw; with exactAbove=never every head does
  bool statistics = false;  // room for DecodeOutputs' statistics and for draws()
};

// The draws of the last step's heads that draw, in device memory, [rows * heads, stride]. Keys
// ascend. Exceptions: santa's are in the order drawn; a list of vattention or adaptive-denominator
// begins with the keys that are always read. With draws=group a head's list has the group's draws
// and the head's weight of each; santa's ascend by rounds of 128 draws. -1 stands for a draw from a
// head or split whose keys are all masked. HeadStatistics::draws counts a head's other entries,
// except with draws=group and top-k's choose=group.
struct DrawList {
  const int32_t* keys = nullptr;
  const float* weights = nullptr;  // of each entry in the output
  uint32_t stride = 0;
};

// The device memory that decodeAttention() works in. Steps that share it must not overlap.
class Workspace {
 public:
  Workspace();
  ~Workspace();
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;

  // Makes room for steps of at most these rows, lengths and budgets, with these heads, this method
  // and caches of kv's shapes. Memory only grows, and growing waits for the device and moves the
  // memory (moves()). Refuses a method, shape, element or length that the GPU does not decode,
  // budgets above 2^24 (with draws=group 2^24 over the heads of a group) with exactAbove=never, and
  // too little memory.
  [[nodiscard]] std::optional<std::string> plan(const MethodOptions& method, const PagedKv& kv,
                                                const StepBounds& bounds);
  size_t bytes() const;
  // Returns a count that rises whenever the memory moves, which invalidates graphs captured before.
  uint64_t moves() const;

  // Waits for the stream, then returns one error of the steps and appends since the previous
  // failure(), in a sentence that names row and KV head: a score that is not finite, a key or value
  // that is not (appendKv has left it out), a length or budget out of bounds, a page outside the
  // pool. Outputs of that row are NaN or unspecified. Also returns errors of CUDA.
  [[nodiscard]] std::optional<std::string> failure(Stream stream);

  // Requires: a plan with statistics.
  DrawList draws() const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Launches one decode step of one layer; all pointers of kv, in and out are device memory
// (sampling_seconds and value_rows are ignored). Returns the errors that the host can see: sizes
// beyond the plan, an unsupported input, a failed launch. Workspace::failure() returns the others.
[[nodiscard]] std::optional<std::string> decodeAttention(const MethodOptions& method,
                                                         const PagedKv& kv, const DecodeInputs& in,
                                                         Workspace* workspace,
                                                         const DecodeOutputs& out, Stream stream);

// Writes what kernels::appendKv writes; the only shadow may be one of 4 bits. Bits are the CPU's,
// except those of a mean key over several positions and of its sequence's shadow: the mean key's
// sums are doubles in another order, exact unless magnitudes differ by 2^20 or more. Leaves out
// vectors that are not finite or have no place in the pool; Workspace::failure() reports them.
[[nodiscard]] std::optional<std::string> appendKv(const PagedKv& kv, const AppendInputs& in,
                                                  Workspace* workspace, Stream stream);

// Computes kernels::meanValues; all pointers are device memory. Refuses a cache without value_sums.
// A row with a wrong length or page gets the mean 0; the row's decode step reports the error.
[[nodiscard]] std::optional<std::string> meanValues(const PagedKv& kv, const MeanInputs& in,
                                                    float* means, Stream stream);

// Copies one page, as kernels::copyPage does; of shadows the one of 4 bits alone.
[[nodiscard]] std::optional<std::string> copyPage(const PagedKv& kv, int64_t from, int64_t to,
                                                  Stream stream);

}  // namespace allot::kernels::cuda
