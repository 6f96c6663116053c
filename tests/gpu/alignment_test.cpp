// Every function that launches refuses arrays that its kernels would fault on, before it asks for a
// GPU: here there need be none.
#include <gmock/gmock.h>

#include <functional>

#include "allot/kernels/cuda_prefill.h"
#include "allot/kernels/cuda_tile_sums.h"

namespace allot::kernels {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Addresses that nobody reads.
template <typename T>
T* addressOf(uintptr_t behind) {
  return reinterpret_cast<T*>((uintptr_t{1} << 12) + behind);
}

// A cache with everything but what moves, whose array begins 8 bytes behind a multiple of 16.
PagedKv cacheWith(const std::string& moves) {
  const auto at = [&](const char* name) { return moves == name ? uintptr_t{8} : uintptr_t{0}; };
  PagedKv kv;
  kv.element = Element::kBFloat16;
  kv.keys = addressOf<void>(at("the cache's keys"));
  kv.values = addressOf<void>(at("the cache's values"));
  kv.bounds = addressOf<void>(at("the cache's bounds"));
  kv.pages = 4, kv.kv_heads = 2, kv.page_size = 16, kv.head_dim = 64;
  kv.shadows[0].bits = 4;
  kv.shadows[0].codes = addressOf<uint8_t>(at("the cache's codes"));
  kv.shadows[0].scales = addressOf<float>(at("the cache's scales"));
  return kv;
}

// By name: calls with nothing but what they look at before.
using Call = std::function<std::optional<std::string>(const PagedKv&, const float*)>;
std::vector<std::pair<const char*, Call>> callsWithQueries() {
  const auto prompt = [](const float* queries) {
    return PrefillInputs{.queries = queries, .max_pages = 4, .count = 16, .heads = 4, .scale = 1};
  };
  return {{"decodeAttention",
           [](const PagedKv& kv, const float* queries) {
             cuda::Workspace workspace;
             const DecodeInputs in{.queries = queries, .rows = 1, .heads = 4, .max_pages = 4};
             return cuda::decodeAttention({}, kv, in, &workspace, {}, nullptr);
           }},
          {"tileSums",
           [](const PagedKv& kv, const float* queries) {
             const DecodeInputs in{.queries = queries, .rows = 1, .heads = 4, .max_pages = 4};
             return cuda::tileSums(kv, in, 16, 1, nullptr, nullptr);
           }},
          {"attendBlocks",
           [=](const PagedKv& kv, const float* queries) {
             cuda::PrefillWorkspace workspace;
             return cuda::attendBlocks(kv, prompt(queries), {}, &workspace, {}, nullptr);
           }},
          {"attendSampledBlocks",
           [=](const PagedKv& kv, const float* queries) {
             cuda::PrefillWorkspace workspace;
             return cuda::attendSampledBlocks(kv, prompt(queries), {}, &workspace, {}, nullptr);
           }},
          {"selectBlocks", [=](const PagedKv& kv, const float* queries) {
             cuda::PrefillWorkspace workspace;
             cuda::KeyBits list;
             return cuda::selectBlocks(methodDefaults(Method::kSale), kv, prompt(queries), nullptr,
                                       &workspace, &list, nullptr);
           }}};
}

void expectNamed(const std::optional<std::string>& refused, const std::string& name,
                 const char* multiple = "16") {
  ASSERT_TRUE(refused) << "it was taken";
  EXPECT_THAT(*refused, StartsWith("the data of " + name + " begin at an address"));
  EXPECT_THAT(*refused, HasSubstr(std::string("no multiple of ") + multiple + ","));
}

TEST(GpuAlignment, CachesAndQueriesBetween16Bytes) {
  for (const char* name : {"queries", "the cache's keys", "the cache's values", "the cache's codes",
                           "the cache's scales", "the cache's bounds"}) {
    const PagedKv kv = cacheWith(name);
    const bool queries = std::string(name) == "queries";
    for (const auto& [function, call] : callsWithQueries()) {
      SCOPED_TRACE(std::string(function) + ", " + name);
      expectNamed(call(kv, addressOf<float>(queries ? 8 : 0)), name);
    }
    if (queries) continue;
    SCOPED_TRACE(std::string("appendKv, ") + name);
    cuda::Workspace workspace;
    expectNamed(cuda::appendKv(kv, {.rows = 1, .count = 1, .max_pages = 4}, &workspace, nullptr),
                name);
  }
}

TEST(GpuAlignment, OutputsOfPromptsBetween8Bytes) {
  const PagedKv kv = cacheWith("nothing");
  const PrefillInputs in{
      .queries = addressOf<float>(0), .max_pages = 4, .count = 16, .heads = 4, .scale = 1};
  const PrefillOutputs out{.out = addressOf<float>(4)};
  cuda::PrefillWorkspace workspace;
  expectNamed(cuda::attendBlocks(kv, in, {}, &workspace, out, nullptr), "outputs", "8");
  expectNamed(cuda::attendSampledBlocks(kv, in, {}, &workspace, out, nullptr), "outputs", "8");
  const PrefillOutputs rounded{.rounded = addressOf<float>(8)};
  expectNamed(cuda::attendBlocks(kv, in, {}, &workspace, rounded, nullptr), "outputs");
  expectNamed(cuda::attendSampledBlocks(kv, in, {}, &workspace, rounded, nullptr), "outputs");
}

TEST(GpuAlignment, RoundedQueriesOfPromptsBetween16Bytes) {
  const PrefillInputs in{
      .rounded = addressOf<float>(8), .max_pages = 4, .count = 16, .heads = 4, .scale = 1};
  cuda::PrefillWorkspace workspace;
  expectNamed(cuda::attendBlocks(cacheWith("nothing"), in, {}, &workspace, {}, nullptr), "queries");
}

}  // namespace
}  // namespace allot::kernels
