// The operators' schemas, and what they give for tensors without data (Meta), which torch.compile
// and torch.export trace with.
#include "python/operators/operators.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>
#include <torch/version.h>

#include "python/operators/workspaces.h"

namespace allot::bindings {
namespace {

// Tensors with data beside some without come by here, too.
void expectMeta(const at::Tensor& tensor, const char* name) {
  if (tensor.defined() && !tensor.is_meta()) {
    refuse(std::string(name) + " is on " + tensor.device().str() + ", but the cache is on meta");
  }
}

// [.., head_dim] and without the last, whatever is symbolic in the sizes.
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
  // A cache of one layer, zeros: keys and values [pages, kv_heads, page_size, head_dim] of dtype
  // (float32), the shadow of keys in shadow_bits with its scales and mean keys, bounds and sums of
  // values (allot/kernels/paged_kv.h). What is not asked for is an empty tensor in its place.
  m.def(
      "make_cache(int pages, int kv_heads, int page_size, int head_dim, *, "
      "ScalarType? dtype=None, Device? device=None, int shadow_bits=0, bool bounds=False, "
      "bool value_sums=False) -> Tensor[]",
      makeCache);

  // What a cache holds for a method of decode: bits of the keys' shadow, and whether their bounds.
  m.def("method_needs(str method) -> (int, bool)", [](const std::string& text) {
    const kernels::MethodOptions& method = methodOf(text, kernels::Phase::kDecode);
    return std::tuple<int64_t, bool>(kernels::shadowBits(method), kernels::readsBounds(method));
  });

  // Scratch memory: on the CPU `threads` threads, on a GPU what plans make of it.
  m.def("make_workspace(Device device, int threads=1) -> int", makeWorkspace);
  m.def("free_workspace(int workspace) -> ()", freeWorkspace);
  // Room for steps and chunks of at most these sizes. A GPU has to have it before a step and may
  // wait here; on the CPU a step makes room for itself.
  m.def(
      "plan_decode(int workspace, Tensor[] cache, str method, *, int rows, int heads, "
      "int max_length, int max_budget, bool statistics=False) -> ()",
      planDecode);
  m.def(
      "plan_prefill(int workspace, Tensor[] cache, str method, *, int heads, int count, int keys) "
      "-> ()",
      planPrefill);
  // Rises when memory has moved: graphs captured before are of no use.
  m.def("workspace_moves(int workspace) -> int", [](int64_t number) {
    return static_cast<int64_t>(workspaceOf(number)->cuda_decode.moves());
  });
  // Waits for PyTorch's stream, then says in one sentence what a GPU saw to be wrong since the last
  // call; empty: nothing.
  m.def("failure(int workspace) -> str", failureOf);

  // Keys and values float32 [rows, count, kv_heads, head_dim] into the positions from starts [rows]
  // on (kernels::appendKv).
  m.def(
      "append_kv(Tensor keys, Tensor values, Tensor(a!)[] cache, Tensor page_table, Tensor starts, "
      "int workspace) -> ()");
  // Means of all values of each row, [rows, kv_heads, head_dim] (kernels::meanValues).
  m.def("mean_values(Tensor[] cache, Tensor page_table, Tensor lengths) -> Tensor");
  // One decode step of one layer (kernels::decodeAttention): queries float32 [rows, heads,
  // head_dim], page_table int32 [rows, max_pages], lengths int32 [rows], budgets words [rows] or
  // [rows, heads], sequences and steps words [rows]; bias float32 [rows, at least the longest
  // length], zero_budget_values float32 [rows, kv_heads, head_dim]. statistics: int64 [rows, 7],
  // added to: draws, unique_rows, group_rows, dense_rows, key_bytes, value_bytes, dense_bytes.
  // drawn: int64 [heads, words], on the CPU: a bit for each value row that a head read. Gives out,
  // as queries, and with_lse the log of the softmax's denominator, float32 [rows, heads], else an
  // empty tensor.
  m.def(
      "decode_attention(Tensor queries, Tensor[] cache, Tensor page_table, Tensor lengths, "
      "Tensor budgets, Tensor sequences, Tensor steps, str method, int workspace, *, int layer=0, "
      "int seed=0, float? scale=None, int window=0, Tensor? bias=None, Tensor? "
      "zero_budget_values=None, "
      "int zero_budget_window=0, Tensor(a!)? statistics=None, Tensor(b!)? drawn=None, "
      "bool with_lse=False) "
      "-> (Tensor, Tensor)");
  // The blocks of keys that queries float32 [count, heads, head_dim] at positions from `first` on
  // attend to: int32 [heads, blocks of queries, words], a bit each (sample-attention, sale).
  m.def(
      "prefill_select(Tensor queries, Tensor[] cache, Tensor page_table, SymInt first, str method, "
      "int workspace, *, float? scale=None, int window=0, Tensor? tau=None) -> Tensor");
  // Attention of these queries, whose keys and values are in the cache; page_table int32
  // [max_pages]. budgets: words [heads], of methods that draw; none: as many as there are. Gives
  // out and lse as decode_attention does.
  m.def(
      "prefill_attend(Tensor queries, Tensor[] cache, Tensor page_table, SymInt first, str method, "
      "int workspace, *, Tensor? blocks=None, float? scale=None, int window=0, int layer=0, "
      "int seed=0, int sequence=0, Tensor? budgets=None, int zero_budget_window=0, bool "
      "zero_budget_means=False, "
      "bool with_lse=False) "
      "-> (Tensor, Tensor)");
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
// Without it a backward pass would go on without the gradients.
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
