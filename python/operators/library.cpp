// The operators' schemas, and their results for tensors without data (Meta), with which
// torch.compile and torch.export trace.
#include "python/operators/operators.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>
#include <torch/version.h>

#include "python/operators/workspaces.h"

namespace allot::bindings {
namespace {

// Refuses a tensor with data: PyTorch calls Meta functions if any tensor has none.
void expectMeta(const at::Tensor& tensor, const char* name) {
  if (tensor.defined() && !tensor.is_meta()) {
    refuse(std::string(name) + " is on " + tensor.device().str() + ", but the cache is on meta");
  }
}

// Returns results without data: out like the queries [.., head_dim], and lse [..].
std::tuple<at::Tensor, at::Tensor> attendedLike(const at::Tensor& queries, bool with_lse) {
  expectMeta(queries, "queries");
  const auto contiguous = at::MemoryFormat::Contiguous;
  return {at::empty_like(queries, contiguous),
          with_lse ? at::empty_like(queries.select(-1, 0), contiguous)
                   : at::empty({0}, queries.options())};
}

std::tuple<at::Tensor, at::Tensor> decodeAttentionMeta(
    const at::Tensor& queries, at::TensorList, const at::Tensor&, const at::Tensor&,
    const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::string&, int64_t, int64_t,
    int64_t, const OptionalDouble&, int64_t, const OptionalTensor&, const OptionalTensor&, int64_t,
    const OptionalTensor&, const OptionalTensor&, bool with_lse) {
  return attendedLike(queries, with_lse);
}

void appendKvMeta(const at::Tensor& keys, const at::Tensor& values, at::TensorList,
                  const at::Tensor&, const at::Tensor&, int64_t) {
  expectMeta(keys, "keys");
  expectMeta(values, "values");
}

#if TORCH_VERSION_MAJOR >= 2
using Size = c10::SymInt;

at::Tensor meanValuesMeta(at::TensorList cache, const at::Tensor&, const at::Tensor& lengths) {
  expectMeta(lengths, "lengths");
  const at::Tensor& keys = cache[0];
  return at::empty_symint({lengths.sym_size(0), keys.sym_size(1), keys.sym_size(3)},
                          keys.options().dtype(at::kFloat));
}

at::Tensor prefillSelectMeta(const at::Tensor& queries, at::TensorList, const at::Tensor&,
                             Size first, const std::string& method, int64_t, const OptionalDouble&,
                             int64_t, const OptionalTensor&) {
  expectMeta(queries, "queries");
  const auto [query_block, key_block] = blockSizes(method);
  const Size end = first + queries.sym_size(0);
  const Size blocks = (end - 1) / query_block - first / query_block + 1;
  const Size words = (end - 1) / (key_block * 32) + 1;
  return at::empty_symint({queries.sym_size(1), blocks, words}, queries.options().dtype(at::kInt));
}

std::tuple<at::Tensor, at::Tensor> prefillAttendMeta(const at::Tensor& queries, at::TensorList,
                                                     const at::Tensor&, Size, const std::string&,
                                                     int64_t, const OptionalTensor&,
                                                     const OptionalDouble&, int64_t, int64_t,
                                                     int64_t, int64_t, const OptionalTensor&,
                                                     int64_t, bool, bool with_lse) {
  return attendedLike(queries, with_lse);
}
#endif

TORCH_LIBRARY(allot, m) {
  // Returns a cache of one layer, zeros, as the list that cacheOf() reads (tensors.h,
  // allot/kernels/paged_kv.h). dtype is float32 by default. Parts that are not asked for are empty
  // tensors. shadow_bits 3, 4 or 8 makes codes, scales and mean_keys.
  m.def(
      "make_cache(int pages, int kv_heads, int page_size, int head_dim, *, "
      "ScalarType? dtype=None, Device? device=None, int shadow_bits=0, bool bounds=False, "
      "bool value_sums=False) -> Tensor[]",
      makeCache);

  // Returns what a decode method reads: bits of the keys' shadow (0: none), and if it reads bounds
  // and sums of values.
  m.def("method_needs(str method) -> (int, bool, bool)", [](const std::string& text) {
    const kernels::MethodOptions& method = methodOf(text, kernels::Phase::kDecode);
    return std::tuple<int64_t, bool, bool>(kernels::shadowBits(method),
                                           kernels::readsBounds(method),
                                           method.weights == kernels::Weights::kCentred);
  });

  // Makes scratch memory, with `threads` threads on the CPU.
  m.def("make_workspace(Device device, int threads=1) -> int", makeWorkspace);
  m.def("free_workspace(int workspace) -> ()", freeWorkspace);
  // Make room for steps and chunks of at most these sizes. A GPU needs a plan before a step and may
  // wait here. On the CPU steps make room for themselves.
  m.def(
      "plan_decode(int workspace, Tensor[] cache, str method, *, int rows, int heads, "
      "int max_length, int max_budget, bool statistics=False) -> ()",
      planDecode);
  m.def(
      "plan_prefill(int workspace, Tensor[] cache, str method, *, int heads, int count, int keys) "
      "-> ()",
      planPrefill);
  // Returns a count that rises if a GPU's memory for decode moves: graphs captured before are
  // invalid.
  m.def("workspace_moves(int workspace) -> int", [](int64_t number) {
    return static_cast<int64_t>(workspaceOf(number)->cuda_decode.moves());
  });
  // Waits for PyTorch's stream, then returns one sentence about an error that the GPU saw since the
  // last call; empty: none. A CPU has none.
  m.def("failure(int workspace) -> str", failureOf);

  // Writes keys and values float32 [rows, count, kv_heads, head_dim] into the positions from starts
  // int32 [rows] on (kernels::appendKv). page_table: int32 [rows, max_pages].
  m.def(
      "append_kv(Tensor keys, Tensor values, Tensor(a!)[] cache, Tensor page_table, Tensor starts, "
      "int workspace) -> ()");
  // Returns the means of all values of each row, float32 [rows, kv_heads, head_dim]
  // (kernels::meanValues). page_table int32 [rows, max_pages], lengths int32 [rows].
  m.def("mean_values(Tensor[] cache, Tensor page_table, Tensor lengths) -> Tensor");
  // Computes one decode step of one layer (kernels::decodeAttention). queries: float32 [rows,
  // heads, head_dim]. page_table: int32 [rows, max_pages]. lengths: int32 [rows]. budgets: words
  // [rows] or [rows, heads]. sequences, steps: words [rows]. bias: float32 [rows, at least the
  // longest length]. zero_budget_values: float32 [rows, kv_heads, head_dim]. statistics: int64
  // [rows, 7], added to: draws, unique_rows, group_rows, dense_rows, key_bytes, value_bytes,
  // dense_bytes. drawn: int64 [heads, more words than the longest length / 64], on the CPU: a bit
  // for each value row that a head read. Returns out, float32 like queries, and lse
  // (DecodeOutputs), float32 [rows, heads]; an empty tensor unless with_lse. Words are int32 whose
  // bits are unsigned.
  m.def(
      "decode_attention(Tensor queries, Tensor[] cache, Tensor page_table, Tensor lengths, "
      "Tensor budgets, Tensor sequences, Tensor steps, str method, int workspace, *, int layer=0, "
      "int seed=0, float? scale=None, int window=0, Tensor? bias=None, "
      "Tensor? zero_budget_values=None, int zero_budget_window=0, Tensor(a!)? statistics=None, "
      "Tensor(b!)? drawn=None, bool with_lse=False) -> (Tensor, Tensor)");
  // Returns the blocks of keys that sample-attention or sale chooses for queries float32 [count,
  // heads, head_dim] at positions from `first` on: int32 [heads, blocks of queries, words], a bit a
  // block. page_table: int32 [max_pages]. tau: float32 [heads], for sale.
  m.def(
      "prefill_select(Tensor queries, Tensor[] cache, Tensor page_table, SymInt first, str method, "
      "int workspace, *, float? scale=None, int window=0, Tensor? tau=None) -> Tensor");
  // Computes the attention of the queries of prefill_select(). blocks: its result, for its two
  // methods. budgets: words [heads], for methods that draw; without them every budget is 2^32 - 1.
  // zero_budget_window, zero_budget_means: kernels::QueryDraws. Returns out and lse as
  // decode_attention does, [count, heads, ..].
  m.def(
      "prefill_attend(Tensor queries, Tensor[] cache, Tensor page_table, SymInt first, str method, "
      "int workspace, *, Tensor? blocks=None, float? scale=None, int window=0, int layer=0, "
      "int seed=0, int sequence=0, Tensor? budgets=None, int zero_budget_window=0, "
      "bool zero_budget_means=False, bool with_lse=False) -> (Tensor, Tensor)");
}

void registerFor(torch::Library& m) {
  m.impl("append_kv", appendKv);
  m.impl("mean_values", meanValues);
  m.impl("decode_attention", decodeAttention);
  m.impl("prefill_select", prefillSelect);
  m.impl("prefill_attend", prefillAttend);
}
TORCH_LIBRARY_IMPL(allot, CPU, m) { registerFor(m); }
TORCH_LIBRARY_IMPL(allot, CUDA, m) { registerFor(m); }
// Refuses a backward pass, which would otherwise go on without the gradients.
TORCH_LIBRARY_IMPL(allot, Autograd, m) {
  for (const char* name : {"decode_attention", "prefill_attend", "mean_values"}) {
    m.impl(name, torch::autograd::autogradNotImplementedFallback());
  }
}
TORCH_LIBRARY_IMPL(allot, Meta, m) {
  m.impl("append_kv", appendKvMeta);
  m.impl("decode_attention", decodeAttentionMeta);
#if TORCH_VERSION_MAJOR >= 2
  m.impl("mean_values", meanValuesMeta);
  m.impl("prefill_select", prefillSelectMeta);
  m.impl("prefill_attend", prefillAttendMeta);
#endif
}

}  // namespace
}  // namespace allot::bindings
