#include "python/operators/operators.h"

#include <ATen/Functions.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "python/operators/workspaces.h"

namespace allot::bindings {
namespace {

using kernels::Phase;
using kernels::Prompts;

constexpr int kBlock = 64;

int wordsOfBlocks(const kernels::PrefillInputs& in, int key_block) {
  return (std::max(in.first + in.count, 1) - 1) / key_block / 32 + 1;
}

kernels::PrefillInputs inputsOf(const kernels::PagedKv& kv, at::Device device,
                                const at::Tensor& queries, const at::Tensor& page_table,
                                int64_t first, const OptionalDouble& scale, int64_t window) {
  kernels::PrefillInputs in;
  in.queries = dataAs<float>(queries, "queries", at::kFloat, device, {-1, -1, kv.head_dim});
  in.count = asInt(queries.size(0), "count");
  in.heads = asInt(queries.size(1), "heads");
  in.page_table = dataAs<int32_t>(page_table, "page_table", at::kInt, device, {-1});
  in.max_pages = asInt(page_table.size(0), "max_pages");
  in.first = asInt(first, "first");
  in.scale = scaleOf(scale, kv.head_dim);
  in.window = asInt(window, "window");
  expectHeads(in.heads, kv.kv_heads);
  if (first + in.count > int64_t{in.max_pages} * kv.page_size) {
    refuse("first + count = " + std::to_string(first + in.count) + " is beyond the page table: " +
           std::to_string(in.max_pages) + " pages of " + std::to_string(kv.page_size) + " keys");
  }
  return in;
}

// Sets a bit for each block of keys of the lists.
void setBits(const kernels::BlockLists& lists, int words, uint32_t* bits) {
  for (size_t list = 0; list + 1 < lists.begin.size(); ++list) {
    for (uint32_t i = lists.begin[list]; i < lists.begin[list + 1]; ++i) {
      bits[list * words + lists.blocks[i] / 32] |= 1u << lists.blocks[i] % 32;
    }
  }
}

kernels::BlockLists listsOf(const kernels::MethodOptions& method, const uint32_t* bits,
                            int64_t count, int words) {
  kernels::BlockLists lists;
  lists.query_block = kernels::queryBlockOf(method);
  lists.key_block = kernels::keyBlockOf(method);
  lists.begin.push_back(0);
  for (int64_t list = 0; list < count; ++list) {
    for (int word = 0; word < words; ++word) {
      for (uint32_t rest = bits[list * words + word]; rest != 0; rest &= rest - 1) {
        lists.blocks.push_back(static_cast<uint32_t>(word * 32 + __builtin_ctz(rest)));
      }
    }
    lists.begin.push_back(static_cast<uint32_t>(lists.blocks.size()));
  }
  return lists;
}

// Returns SALE's thresholds, [heads] on the cache's device: `tau`, or the method's for every head.
at::Tensor tauOf(const kernels::MethodOptions& method, const OptionalTensor& tau, int heads,
                 const at::TensorOptions& like, at::Device device) {
  if (tau) {
    dataOf(*tau, "tau", at::kFloat, device, {heads});
    return *tau;
  }
  if (method.profile_tau) refuse("sale tau=profile has a threshold for each head: pass tau");
  return at::full({heads}, method.tau, like);
}

kernels::QueryDraws drawsOf(int64_t layer, int64_t seed, int64_t sequence,
                            int64_t zero_budget_window, bool zero_budget_means,
                            const uint32_t* budgets) {
  if (sequence < 0 || sequence > int64_t{UINT32_MAX}) {
    refuse("sequence = " + std::to_string(sequence) + " is not from 0 to 4294967295");
  }
  return {.seed = static_cast<uint64_t>(seed),
          .sequence = static_cast<uint32_t>(sequence),
          .layer = static_cast<uint32_t>(asInt(layer, "layer")),
          .budget = UINT32_MAX,
          .budgets = budgets,
          .zero_budget_window = asInt(zero_budget_window, "zero_budget_window"),
          .zero_budget_means = zero_budget_means};
}

}  // namespace

std::pair<int64_t, int64_t> blockSizes(const std::string& method) {
  const kernels::MethodOptions& options = methodOf(method, Phase::kPrefill);
  return {kernels::queryBlockOf(options), kernels::keyBlockOf(options)};
}

void planPrefill(int64_t workspace, at::TensorList cache, const std::string& method, int64_t heads,
                 int64_t count, int64_t keys) {
  const auto [kv, device] = cacheOf(cache);
  const kernels::MethodOptions& options = methodOf(method, Phase::kPrefill);
  const auto space = workspaceOf(workspace, device);
  const kernels::cuda::PrefillBounds bounds{
      .heads = asInt(heads, "heads"), .count = asInt(count, "count"), .keys = asInt(keys, "keys")};
  if (!device.is_cuda()) return;  // a prompt on the CPU needs no plan
  const std::lock_guard lock(space->mutex);
  const c10::DeviceGuard guard(device);
  refuseIf(space->cuda_prefill.plan(options, kv, bounds));
}

at::Tensor prefillSelect(const at::Tensor& queries, at::TensorList cache,
                         const at::Tensor& page_table, int64_t first, const std::string& method,
                         int64_t workspace, const OptionalDouble& scale, int64_t window,
                         const OptionalTensor& tau) {
  const auto [kv, device] = cacheOf(cache);
  const kernels::MethodOptions& options = methodOf(method, Phase::kPrefill);
  if (!kernels::makesLists(options)) {
    refuse(method + " chooses no blocks beforehand: prefill_attend is all of it");
  }
  const auto in = inputsOf(kv, device, queries, page_table, first, scale, window);
  const auto space = workspaceOf(workspace, device);
  const c10::DeviceGuard guard(device);
  const auto like = queries.options().requires_grad(false);
  const int blocks = kernels::queryBlocks(in, kernels::queryBlockOf(options));
  const int words = wordsOfBlocks(in, kernels::keyBlockOf(options));
  const at::Tensor bits = at::zeros({in.heads, blocks, words}, like.dtype(at::kInt));
  if (in.count == 0) return bits;
  at::Tensor thresholds;
  if (kernels::hasHeadThresholds(options)) {
    thresholds = tauOf(options, tau, in.heads, like, device);
  }
  const float* const taus = thresholds.defined() ? thresholds.data_ptr<float>() : nullptr;
  const std::lock_guard lock(space->mutex);
  if (device.is_cuda()) {
    kernels::cuda::KeyBits list;
    const kernels::cuda::Stream stream = currentStream(device);
    refuseIf(
        kernels::cuda::selectBlocks(options, kv, in, taus, &space->cuda_prefill, &list, stream));
    // The next selection overwrites the workspace's bits.
    bits.copy_(
        at::from_blob(const_cast<uint32_t*>(list.bits), {in.heads, blocks, words}, bits.options()));
    return bits;
  }
  kernels::BlockLists lists;
  refuseIf(kernels::selectBlocks(options, kv, in, taus, &space->prefill, &lists));
  setBits(lists, words, static_cast<uint32_t*>(bits.data_ptr()));
  return bits;
}

std::tuple<at::Tensor, at::Tensor> prefillAttend(
    const at::Tensor& queries, at::TensorList cache, const at::Tensor& page_table, int64_t first,
    const std::string& method, int64_t workspace, const OptionalTensor& blocks,
    const OptionalDouble& scale, int64_t window, int64_t layer, int64_t seed, int64_t sequence,
    const OptionalTensor& budgets, int64_t zero_budget_window, bool zero_budget_means,
    bool with_lse) {
  const auto [kv, device] = cacheOf(cache);
  const kernels::MethodOptions& options = methodOf(method, Phase::kPrefill);
  auto in = inputsOf(kv, device, queries, page_table, first, scale, window);
  const bool lists = kernels::makesLists(options);
  const int query_blocks = kernels::queryBlocks(in, kernels::queryBlockOf(options));
  const int words = wordsOfBlocks(in, kernels::keyBlockOf(options));
  if (lists != (blocks.has_value() && blocks->defined())) {
    refuse(method + (lists ? " attends to the blocks that prefill_select chooses: pass blocks"
                           : " takes no blocks"));
  }
  const void* const bits =
      lists ? dataOf(*blocks, "blocks", at::kInt, device, {in.heads, query_blocks, words})
            : nullptr;
  in.skip = kernels::skipThreshold(options);
  const auto draws = drawsOf(layer, seed, sequence, zero_budget_window, zero_budget_means,
                             budgets ? wordsOf(*budgets, "budgets", device, {in.heads}) : nullptr);
  const auto space = workspaceOf(workspace, device);
  const c10::DeviceGuard guard(device);
  const auto like = queries.options().requires_grad(false);
  const at::Tensor result = at::empty({in.count, in.heads, kv.head_dim}, like);
  const at::Tensor lse = with_lse ? at::empty({in.count, in.heads}, like) : at::empty({0}, like);
  if (in.count == 0) return {result, lse};
  const kernels::PrefillOutputs out{.out = result.data_ptr<float>(),
                                    .lse = with_lse ? lse.data_ptr<float>() : nullptr};
  const Prompts by = kernels::traitsOf(options.method).prompts;
  const bool sampled = by == Prompts::kDrawnBlocks;
  const std::lock_guard lock(space->mutex);
  if (device.is_cuda()) {
    refuseIf(kernels::cuda::prefillUnsupported(options));
    const kernels::cuda::Stream stream = currentStream(device);
    auto* const scratch = &space->cuda_prefill;
    const kernels::cuda::KeyBits list{.key_block = kernels::keyBlockOf(options),
                                      .bits = static_cast<const uint32_t*>(bits),
                                      .words = words,
                                      .first_block = kernels::firstQueryBlock(in, kBlock),
                                      .blocks = query_blocks};
    refuseIf(sampled ? kernels::cuda::attendSampledBlocks(kv, in, draws, scratch, out, stream)
                     : kernels::cuda::attendBlocks(kv, in, list, scratch, out, stream));
  } else if (sampled) {
    refuseIf(kernels::attendSampledBlocks(kv, in, draws, &space->prefill, out));
  } else if (by == Prompts::kDrawnRows) {
    refuseIf(kernels::attendSampledRows(options, kv, in, draws, &space->prefill, out));
  } else if (by == Prompts::kQueries) {
    space->planDecode(in.first + in.count, in.heads / kv.kv_heads, kv.head_dim);
    refuseIf(kernels::attendQueries(options, kv, in, draws, &space->decode,
                                    {.out = out.out, .lse = out.lse}));
  } else {
    const kernels::BlockLists chosen = listsOf(options, static_cast<const uint32_t*>(bits),
                                               lists ? in.heads * query_blocks : 0, words);
    const kernels::KeyBlocks view = chosen.view();
    refuseIf(kernels::attendBlocks(kv, in, lists ? &view : nullptr, &space->prefill, out));
  }
  return {result, lse};
}

}  // namespace allot::bindings
