#pragma once
// Decode attention on an NVIDIA GPU: the functions of decode.h and paged_kv.h over the same
// structs, whose pointers are then device memory. bfloat16 and float16 caches, head sizes 64 and
// 128, up to 16 query heads a KV head, pages of a power of two of keys, 16 or more. Queries and a
// cache's keys, values, codes, scales and bounds begin at multiples of 16 bytes, all else wherever
// its type may; what begins elsewhere is refused before anything is launched.
//
// plan() once a step on the host, by sizes alone; then appendKv() and decodeAttention() once a
// layer. These launch kernels on the caller's stream and return: they allocate nothing, wait for
// nothing and copy nothing, so that a whole step can be captured in a CUDA graph and replayed while
// lengths, budgets, page tables and steps change in device memory, within what was planned. From
// Hopper on they may be brought in while the kernel in front of them on the stream still works, and
// wait for its end before they read anything (programmatic dependent launch). That is order enough
// where kernels in front of them that were launched so wait, too; and one that is launched so
// behind appendKv has to wait before it reads the cache.
//
// A row's output does not depend on the other rows, on the page size or on the device's number of
// multiprocessors: work is cut into splits of keys of one row, and sums over splits are in one
// order. Equal seeds give equal bits. Rows that a method reads whole have dense's bits where up to
// four query heads share a KV head; above that dense sums them in larger packs.
//
// How it agrees with the CPU (kernels/cpu):
//   scores        products of cache elements with queries in two parts of the cache's type (their
//                 sum is good to 2^-16 for bfloat16, 2^-21 for float16), float32 sums.
//   4-bit scores  the same integers, then float32 products; pages' scores (quest), bernoulli's
//                 queries, bounds and shadows are the CPU's to the bit.
//   masses        float16 of 2^(s' - e), s' the score in powers of two, e the least whole number
//                 above all s' of the split, and one more: a multiple of 2^-24, within 2^-11 of the
//                 mass or within 2^-25 of the split's largest. Sums of masses are exact integers,
//                 and so are draws; a split that is lighter than another by 2^-16 or more is
//                 rounded to 2^-40 of that one's largest mass, at any length of the row. Where
//                 masses are powers of two apart (equal scores, masked keys) draws are the CPU's.
//   head budgets  a head draws what it would if all had its budget, and its output has those bits,
//                 but for s2anta-flash's with tiles of 256: there up to four heads of a group
//                 gather values together, and float32 sums round by what the others drew.
//   zero_budget_window   is refused.
//   chosen keys   top-k's, vattention's, adaptive-denominator's and skip-softmax's are the CPU's
//                 where scores that decide differ by more than their rounding; budgets are, within
//                 the rounding of the pilot's sums, and of equal budgets the samples are the same.
// Free of any framework: CUDA's runtime alone.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "allot/kernels/decode.h"

struct CUstream_st;

namespace allot::kernels::cuda {

using Stream = CUstream_st*;  // cudaStream_t

// Keys of one split of work: of one tile of s2anta-prop and s2anta-flash.
constexpr int kSplitKeys = 256;

// Nothing if this build has the kernels and a GPU that they run on is there; else why not.
std::optional<std::string> unavailable();

// Nothing if the GPU decodes with this method; else one sentence that says what it does decode.
std::optional<std::string> unsupported(const MethodOptions& method);

// No step has more than this.
struct StepBounds {
  int rows = 0;
  int heads = 0;
  int max_length = 0;       // keys of a row
  uint32_t max_budget = 0;  // draws a head, of rows that draw (budget < length)
  bool statistics = false;  // any of DecodeOutputs' statistics, or draws(), is wanted
};

// What the last step drew, for rows that draw; device memory, [rows * heads, stride]. Ascending
// by key; of santa in the order drawn, of vattention what is always read before the sample. -1: a
// head or split whose keys are all masked. How many there are says HeadStatistics::draws.
struct DrawList {
  const int32_t* keys = nullptr;
  const float* weights = nullptr;  // of one draw in the output
  uint32_t stride = 0;
};

// Device memory that decodeAttention() works in. One step at a time.
class Workspace {
 public:
  Workspace();
  ~Workspace();
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;

  // Room for steps of at most these sizes with this method on such a cache (its shapes count, not
  // its pointers). Grows only; where it grows it waits for the device, and graphs captured before
  // must not be replayed. Refused: a method, shape or element that the GPU does not decode, and
  // too little memory.
  [[nodiscard]] std::optional<std::string> plan(const MethodOptions& method, const PagedKv& kv,
                                                const StepBounds& bounds);
  size_t bytes() const;
  // Rises whenever its memory has moved, so that a graph captured before is of no use any more.
  uint64_t moves() const;

  // Waits for the stream, then says what went wrong in the steps since the last call, if anything
  // did: a score that is not finite, keys or values that are not (appendKv: those were not
  // written), a length or page outside the pool, a budget beyond the plan. Outputs of the row
  // concerned are NaN or unspecified. One sentence; names row and KV head.
  [[nodiscard]] std::optional<std::string> failure(Stream stream);

  // Requires a plan with statistics.
  DrawList draws() const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// One decode step of one layer; all pointers of kv, in and out are device memory (`out` may hold
// anything; sampling_seconds is ignored). Returns what the host can see to be wrong: sizes beyond
// the plan, a method that the GPU does not decode, a launch that failed. What only the device sees
// is for Workspace::failure().
[[nodiscard]] std::optional<std::string> decodeAttention(const MethodOptions& method,
                                                         const PagedKv& kv, const DecodeInputs& in,
                                                         Workspace* workspace,
                                                         const DecodeOutputs& out, Stream stream);

// Writes keys and values with the shadow (4 bits; no other), the bounds, the sums of values and the
// centre that the cache holds, as kernels::appendKv does and with the same bits.
[[nodiscard]] std::optional<std::string> appendKv(const PagedKv& kv, const AppendInputs& in,
                                                  Workspace* workspace, Stream stream);

// kernels::meanValues, with the same bits; all pointers are device memory. A sequence whose length
// or page is wrong has the mean 0: the step says so.
[[nodiscard]] std::optional<std::string> meanValues(const PagedKv& kv, const MeanInputs& in,
                                                    float* means, Stream stream);

// Copies one page with all that belongs to it.
[[nodiscard]] std::optional<std::string> copyPage(const PagedKv& kv, int64_t from, int64_t to,
                                                  Stream stream);

}  // namespace allot::kernels::cuda
