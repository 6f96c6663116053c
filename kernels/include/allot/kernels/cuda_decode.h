#pragma once
// Decode attention on an NVIDIA GPU: the functions of decode.h and paged_kv.h over the same
// structs, whose pointers are then device memory. Needs CUDA's runtime and no framework.
//
// Shapes: bfloat16 and float16 caches, head_dim 64 or 128, up to 16 query heads a KV head, pages of
// 16 keys or a larger power of two. Queries and a cache's keys, values, codes, scales and bounds
// begin at multiples of 16 bytes. Other arrays need only their type's alignment. Misaligned arrays
// are refused.
//
// Use: Workspace::plan() once on the host, by sizes alone; then appendKv() and decodeAttention()
// once a layer and step. These launch kernels on the caller's stream and return. They do not
// allocate, synchronise or copy to or from the host, so that a step can be captured in a CUDA
// graph. Lengths, budgets, page tables and steps may change in device memory between replays,
// within the plan. A workspace has one caller at a time.
//
// On Hopper and later the kernels use programmatic dependent launch: they start while the kernel
// before them still runs, and wait for its end before they read. This is safe if every earlier
// kernel that uses programmatic dependent launch also waits for its predecessor. A kernel of yours
// that is launched this way after appendKv must wait before it reads the cache.
//
// A row's output does not depend on the other rows, on the page size or on the number of
// multiprocessors: each split has keys of one row, and splits are added in one order. Equal seeds
// give equal bits. Rows that a method reads whole have dense's bits if up to four query heads share
// a KV head. Above that dense sums the heads in larger groups.
//
// Agreement with the CPU (kernels/cpu):
//   scores        products of cache elements with queries as two terms of the cache's type (their
//                 sum is good to 2^-16 for bfloat16, 2^-21 for float16), float32 sums.
//   4-bit scores  the CPU's integers, then float32 products. Page scores (quest), bernoulli's
//                 queries and bounds are the CPU's to the bit; of shadows see appendKv().
//   weights       float16 of 2^(s' - e) / 2, s' the score in powers of two, e the largest s' of the
//                 split, rounded up: a multiple of 2^-24, within 2^-11 of the weight or within
//                 2^-25 of the split's largest. Sums of weights are exact integers, and so are
//                 draws. A split that is lighter than another by 2^-16 or more is rounded to 2^-40
//                 of the other's largest weight, at any length of the row. If weights are powers of
//                 two apart (equal scores, masked keys), draws are the CPU's.
//   head budgets  a head draws as if all heads had its budget, and its output has those bits.
//                 Exception: s2anta-flash with tiles of 256, whose head groups of four gather
//                 values together, so that float32 sums round by what the other heads drew.
//   zero_budget_window   is refused.
//   chosen keys   those of top-k, vattention, adaptive-denominator and skip-softmax are the CPU's
//                 if deciding scores differ by more than their rounding. Budgets are the CPU's
//                 within the rounding of the pilot's sums. Equal budgets give equal samples.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "allot/kernels/decode.h"

struct CUstream_st;

namespace allot::kernels::cuda {

using Stream = CUstream_st*;  // cudaStream_t

// Keys of one split, which is one tile of s2anta-prop and s2anta-flash.
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
  uint32_t max_budget = 0;  // of heads that draw; with exactAbove=never all do
  bool statistics = false;  // room for DecodeOutputs' statistics and for draws()
};

// The draws of the last step, for heads that draw; device memory, [rows * heads, stride]. They
// ascend by key; santa's are in the order drawn, and vattention's begin with the keys that are
// always read. -1 stands for a head or split whose keys are all masked. HeadStatistics::draws has
// their number.
struct DrawList {
  const int32_t* keys = nullptr;
  const float* weights = nullptr;  // of one draw in the output
  uint32_t stride = 0;
};

// The device memory that decodeAttention() works in. One step at a time.
class Workspace {
 public:
  Workspace();
  ~Workspace();
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;

  // Makes room for steps of at most these rows, lengths and budgets, with these heads, this method
  // and caches of kv's shapes. Memory only grows. Growing waits for the device, and graphs captured
  // before must not be replayed. Refuses a method, shape, element or length that the GPU does not
  // decode, budgets above 2^24 with exactAbove=never, and too little memory.
  [[nodiscard]] std::optional<std::string> plan(const MethodOptions& method, const PagedKv& kv,
                                                const StepBounds& bounds);
  size_t bytes() const;
  // Returns a count that rises whenever the memory moves: graphs captured before are then invalid.
  uint64_t moves() const;

  // Waits for the stream, then returns one error of the steps and appends since the last call, in a
  // sentence that names row and KV head: a score that is not finite, a key or value that is not
  // (appendKv did not write it), a length or budget beyond its bounds, a page outside the pool.
  // Outputs of that row are NaN or unspecified. Also returns errors of CUDA.
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

// Writes what kernels::appendKv writes; of shadows a cache may hold the one of 4 bits alone. Bits
// are the CPU's, except of a mean key of several positions and its shadow: the sums for it are
// doubles in another order, exact unless magnitudes differ by 2^20 or more. Leaves out vectors that
// are not finite or have no place in the pool; Workspace::failure() reports them.
[[nodiscard]] std::optional<std::string> appendKv(const PagedKv& kv, const AppendInputs& in,
                                                  Workspace* workspace, Stream stream);

// Computes kernels::meanValues; all pointers are device memory. Refuses a cache without value_sums.
// A row with a wrong length or page has the mean 0, and its step reports the error.
[[nodiscard]] std::optional<std::string> meanValues(const PagedKv& kv, const MeanInputs& in,
                                                    float* means, Stream stream);

// Copies one page, as kernels::copyPage does, with the shadow of 4 bits alone.
[[nodiscard]] std::optional<std::string> copyPage(const PagedKv& kv, int64_t from, int64_t to,
                                                  Stream stream);

}  // namespace allot::kernels::cuda
