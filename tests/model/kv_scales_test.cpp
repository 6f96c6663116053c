// Scales of eight-bit keys and values: where a checkpoint has them, and that its numbers are stored
// by them.
#include "worker/model/kv_scales.h"

#include <gmock/gmock.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/model/recall_7m.h"
#include "tests/results.h"
#include "tests/temp_folder.h"
#include "worker/model/decoder.h"

namespace allot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Tensors = std::map<std::string, std::vector<float>>;

// Adds float32 tensors to a safetensors file; an empty one is begun.
std::string withTensors(const std::string& file, const Tensors& tensors) {
  auto header = nlohmann::json::object();
  std::string data;
  uint64_t size = 0;
  if (!file.empty()) {
    std::memcpy(&size, file.data(), sizeof size);
    header = nlohmann::json::parse(file.substr(8, size));
    data = file.substr(8 + size);
  }
  for (const auto& [name, numbers] : tensors) {
    const std::string bytes(reinterpret_cast<const char*>(numbers.data()), numbers.size() * 4);
    header[name] = {{"dtype", "F32"},
                    {"shape", {numbers.size()}},
                    {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  }
  const std::string text = header.dump();
  size = text.size();
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes + text + data;
}

const std::string kLayer0 = "model.layers.0.self_attn.", kLayer1 = "model.layers.1.self_attn.";

Result<KvScales> scalesOf(const Tensors& tensors) {
  const TempFolder folder;
  folder.write("model.safetensors", withTensors("", tensors));
  ModelConfig config;
  config.layers = 2;
  config.kv_heads = 2;
  return readKvScales(folder.path(), config);
}

TEST(KvScales, AreTheCheckpointsAndElseOne) {
  const KvScales read = valueOf(scalesOf({{kLayer0 + "k_scale", {0.5f}},
                                          {kLayer0 + "v_scale", {2.0f, 4.0f}},
                                          {kLayer1 + "k_proj.k_scale", {0.25f}},
                                          {kLayer1 + "q_scale", {3.0f}}}));
  EXPECT_THAT(read.keys, ElementsAre(0.5f, 0.5f, 0.25f, 0.25f));
  EXPECT_THAT(read.values, ElementsAre(2.0f, 4.0f, 1.0f, 1.0f));
  EXPECT_TRUE(isKvScale(kLayer0 + "k_scale") && isKvScale(kLayer1 + "k_proj.k_scale"));
  EXPECT_FALSE(isKvScale(kLayer1 + "q_scale") || isKvScale(kLayer1 + "q_proj.k_scale"));
  const KvScales none = valueOf(scalesOf({{kLayer1 + "q_scale", {3.0f}}}));
  EXPECT_TRUE(none.keys.empty() && none.values.empty());
}

TEST(KvScales, OfAnotherShapeOrNoScaleAreRefusedWithTheMend) {
  EXPECT_THAT(scalesOf({{kLayer0 + "k_scale", {1, 2, 3}}}),
              isError("tensor " + kLayer0 +
                      "k_scale has 3 numbers: scales of eight-bit keys and "
                      "values are 1 or 2, one for each KV head; or set spec.model.kvDtype to "
                      "bfloat16"));
  for (const auto& [scale, text] : {std::pair{0.0f, "0"},
                                    {-1.0f, "-1"},
                                    {1e-38f, "1e-38"},
                                    {1e38f, "1e+38"},
                                    {INFINITY, "inf"},
                                    {NAN, "nan"}}) {
    EXPECT_THAT(scalesOf({{kLayer1 + "v_scale", {scale}}}),
                isError(HasSubstr(std::string("has the scale ") + text +
                                  ", which is not from 2^-100 to 2^100; or set spec.model")));
  }
}

// The first layer's keys and values do not depend on what is stored.
TEST(KvScales, NumbersAreStoredByThem) {
  const std::string linear = std::string(ALLOT_SOURCE_DIR) + "/tests/golden/families/linear";
  const TempFolder copy;
  copy.write("config.json", readFile(linear + "/config.json"));
  copy.write("model.safetensors",
             withTensors(readFile(linear + "/model.safetensors"),
                         {{kLayer0 + "k_scale", {0.125f}}, {kLayer0 + "v_scale", {1.0f / 4096}}}));
  const auto load = [&](kernels::Element element) {
    return valueOf(Decoder::load(copy.path(), {.kv_bytes = size_t{1} << 20, .element = element}));
  };
  const auto exact = load(kernels::Element::kFloat32), scaled = load(kernels::Element::kE4M3);
  EXPECT_TRUE(exact->unusedTensors().empty());
  EXPECT_TRUE(scaled->unusedTensors().empty());
  EXPECT_EQ(exact->parameters(), scaled->parameters());
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 5};
  const Prompt a = valueOf(exact->prefill(ids)), b = valueOf(scaled->prefill(ids));
  ASSERT_EQ(a.pages, b.pages);
  const kernels::PagedKv from = exact->pool().layer(0), to = scaled->pool().layer(0);
  ASSERT_EQ(from.key_scales, nullptr);
  ASSERT_EQ(*to.key_scales, 0.125f);
  ASSERT_EQ(*to.value_scales, 1.0f / 4096);
  ASSERT_EQ(*scaled->pool().layer(1).key_scales, 1.0f);
  uint64_t beyond = 0;
  for (size_t j = 0; j < ids.size(); ++j) {
    const int64_t at = from.offset(a.pages[0], 0, static_cast<int>(j));
    for (int64_t i = at; i < at + from.head_dim; ++i) {
      const auto check = [&](const void* numbers, const void* codes, float scale) {
        const float x = static_cast<const float*>(numbers)[i] / scale;
        EXPECT_EQ(static_cast<const uint8_t*>(codes)[i], kernels::toE4M3(x));
        beyond += std::abs(x) > 464 ? 1 : 0;
      };
      check(from.keys, to.keys, 0.125f);
      check(from.values, to.values, 1.0f / 4096);
    }
  }
  EXPECT_GT(beyond, 0u);  // of values, whose scale is too small
  EXPECT_EQ(scaled->saturatedNumbers(), beyond);
}

}  // namespace
}  // namespace allot
