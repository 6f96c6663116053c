#include "worker/model/safetensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "core/digest.h"
#include "tests/results.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kModelFolder = ALLOT_SOURCE_DIR "/experiments/models/recall-7m";

std::string fileBytes(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(uint64_t{header.size()} >> (8 * i));
  return bytes + header + data;
}

json entry(const char* dtype, std::vector<int64_t> shape, int64_t begin, int64_t end) {
  return {{"dtype", dtype}, {"shape", std::move(shape)}, {"data_offsets", {begin, end}}};
}

// 24 bytes of data: a [2, 3] of BF16, b [2] of F32, c [1] of I32.
json goodHeader() {
  return {{"__metadata__", {{"format", "pt"}}},
          {"a", entry("BF16", {2, 3}, 0, 12)},
          {"b", entry("F32", {2}, 12, 20)},
          {"c", entry("I32", {1}, 20, 24)}};
}

std::string someData() {
  std::string data(24, '\0');
  std::iota(data.begin(), data.end(), '\1');
  return data;
}

Result<Safetensors> openBytes(const TempFolder& folder, const std::string& bytes) {
  folder.write("model.safetensors", bytes);
  return Safetensors::open(folder.path());
}

std::string errorOf(const std::string& bytes) {
  const TempFolder folder;
  const auto file = openBytes(folder, bytes);
  if (file.has_value()) return "opened";
  EXPECT_EQ(file.error().code, ErrorCode::kUsage);
  EXPECT_THAT(file.error().message, HasSubstr(folder.path() + "/model.safetensors"));
  return file.error().message;
}

TEST(Safetensors, Recall7m) {
  const auto file = valueOf(Safetensors::open(kModelFolder));
  const std::vector<std::string> names = file.names();
  EXPECT_EQ(names.size(), 74u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_TRUE(std::binary_search(names.begin(), names.end(), "model.layers.7.mlp.up_proj.weight"));
  EXPECT_FALSE(std::binary_search(names.begin(), names.end(), "__metadata__"));
  const auto view = valueOf(file.tensor("model.embed_tokens.weight", {1024, 256}));
  EXPECT_EQ(view.type, TensorType::kBF16);
  EXPECT_EQ(view.elements(), 1024 * 256);
  std::vector<float> values(1024 * 256);
  toFloat(view, values.data());
  // As Hugging Face's safetensors and NumPy read them.
  EXPECT_THAT(std::vector<float>(values.begin(), values.begin() + 4),
              ElementsAre(-0.06494140625f, -0.048828125f, -0.00433349609375f, -0.0732421875f));
  EXPECT_EQ(values.back(), -0.052734375f);
  EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0), 515.1356818359345, 1e-9);
  EXPECT_EQ(file.digest(), "bbb4c234cc3bb8f4241ee514e48c0f311e56f368ac9af6bd0708b8b71b385cab");
}

TEST(Safetensors, HandsOutCheckedViews) {
  const TempFolder folder;
  // A header of odd length, so that the data is not aligned.
  std::string header = goodHeader().dump();
  if (header.size() % 2 == 0) header += ' ';
  auto opened = valueOf(openBytes(folder, fileBytes(header, someData())));
  const Safetensors file = std::move(opened);  // views outlive a move
  EXPECT_THAT(file.names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(file.digest(), sha256Hex(fileBytes(header, someData())));

  const auto b = valueOf(file.tensor("b", {2}));
  EXPECT_EQ(std::memcmp(b.data, someData().data() + 12, 8), 0);
  float values[6];
  float expected[2];
  std::memcpy(expected, someData().data() + 12, 8);
  toFloat(b, values);
  EXPECT_EQ(values[0], expected[0]);
  EXPECT_EQ(values[1], expected[1]);
  const auto a = valueOf(file.tensor("a", {2, 3}));
  toFloat(a, values);
  EXPECT_EQ(values[5], std::ldexp(1.0f + 0x0b / 128.0f, 0x18 - 127));  // bytes 0x0b 0x0c

  EXPECT_THAT(file.tensor("a", {3, 2}).error().message,
              HasSubstr("tensor \"a\" has shape [2, 3], but config.json asks for [3, 2]"));
  EXPECT_THAT(file.tensor("c", {1}).error().message,
              HasSubstr("tensor \"c\" has dtype \"I32\", which is not supported; supported: F32, "
                        "F16, BF16"));
  EXPECT_EQ(file.tensor("d", {1}).error().message,
            "tensor \"d\" is not in model.safetensors; the weights are not those of config.json");
  EXPECT_EQ(file.tensor("model.b", {2}).error().message,
            "tensor \"model.b\" is not in model.safetensors, but \"b\" is; save the model with the "
            "names of config.json's architecture");
}

TEST(Safetensors, ScalarsEmptyTensorsAndUnknownDtypes) {
  const TempFolder folder;
  const json header = {{"scalar", entry("F16", {}, 0, 2)},
                       {"empty", entry("F32", {0, 5}, 1, 1)},  // inside another: no overlap
                       {"packed", entry("F4", {3}, 2, 4)}};
  const auto file =
      valueOf(openBytes(folder, fileBytes(header.dump(), std::string("\x00\x3c??", 4))));
  float value = 0;
  toFloat(*file.tensor("scalar", {}), &value);
  EXPECT_EQ(value, 1.0f);
  EXPECT_EQ(file.tensor("empty", {0, 5})->elements(), 0);
  EXPECT_THAT(file.tensor("packed", {3}).error().message, HasSubstr("dtype \"F4\""));
}

TEST(Safetensors, EveryHalfAndBfloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    TensorView view{"x", TensorType::kF16, {1}, reinterpret_cast<const std::byte*>(&half), 2};
    for (const auto& [type, fraction_bits, bias] :
         {std::tuple(TensorType::kF16, 10, 15), std::tuple(TensorType::kBF16, 7, 127)}) {
      view.type = type;
      float value = 0;
      toFloat(view, &value);
      const int exponent = (half & 0x7fff) >> fraction_bits;
      const int fraction = half & ((1 << fraction_bits) - 1);
      const bool all_ones = exponent == 2 * bias + 1;
      ASSERT_EQ(std::signbit(value), half >> 15 != 0) << bits;
      if (all_ones && fraction != 0) {
        ASSERT_TRUE(std::isnan(value)) << bits;
        continue;
      }
      const int whole = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
      const float expected = all_ones ? std::numeric_limits<float>::infinity()
                                      : std::ldexp(static_cast<float>(whole),
                                                   std::max(exponent, 1) - bias - fraction_bits);
      ASSERT_EQ(std::fabs(value), expected) << bits;
    }
  }
}

TEST(Safetensors, RefusesLyingHeaders) {
  struct Bad {
    json entry;  // of tensor "a"
    const char* message;
  };
  const int64_t kBig = int64_t{1} << 62;
  const Bad kBad[] = {
      {entry("BF16", {2, 3}, 0, 14), "data_offsets span 14 bytes, but shape [2, 3] of BF16"},
      {entry("BF16", {2, 4}, 0, 12), "data_offsets span 12 bytes, but shape [2, 4] of BF16"},
      {entry("F32", {2, 3}, 0, 12), "of F32 does not take as many"},
      {entry("BF16", {2, 3}, 12, 0), "data_offsets begin at 12 and end at 0"},
      {entry("BF16", {2, 3}, 16, 28), "ends at byte 28 of the data, but the file has 24"},
      {entry("BF16", {2, 3}, kBig, kBig + 12), "of the data, but the file has 24"},
      {entry("BF16", {2, 3}, 2, 14), "tensors \"a\" and \"b\" overlap"},
      {entry("BF16", {2, 3}, -12, 0), "has no data_offsets"},
      {entry("BF16", {-2, -3}, 0, 12), "shape: -2 is not a size"},
      {entry("BF16", {kBig, 4}, 0, 12), "the product of its shape overflows"},
      {entry("BF16", {kBig + 3, 2}, 0, 12), "the product of its shape overflows"},
      {entry("BF16", {kBig, 1}, 0, 0), "data_offsets span 0 bytes"},  // times 2 overflows
      {entry("BF16", std::vector<int64_t>(17, 1), 0, 2), "has no shape"},
      {{{"dtype", "BF16"}, {"shape", {2.5}}, {"data_offsets", {0, 5}}}, "2.5 is not a size"},
      {{{"dtype", 7}, {"shape", {6}}, {"data_offsets", {0, 12}}}, "has no dtype"},
      {{{"dtype", "BF16"}, {"shape", {6}}, {"data_offsets", {0}}}, "has no data_offsets"},
      {{{"dtype", "BF16"}, {"shape", {6}}, {"data_offsets", {0, ~uint64_t{0}}}},
       "has no data_offsets"},
      {"text", "has no dtype"},
  };
  ASSERT_EQ(errorOf(fileBytes(goodHeader().dump(), someData())), "opened");
  for (const Bad& bad : kBad) {
    json header = goodHeader();
    header["a"] = bad.entry;
    EXPECT_THAT(errorOf(fileBytes(header.dump(), someData())),
                AllOf(HasSubstr("\"a\""), HasSubstr(bad.message)));
  }
}

TEST(Safetensors, RefusesBrokenFiles) {
  const std::string good = fileBytes(goodHeader().dump(), someData());
  EXPECT_THAT(errorOf(""), HasSubstr("has 0 bytes, too few"));
  EXPECT_THAT(errorOf("version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 123\n"),
              HasSubstr("is a Git LFS pointer, not the file itself; run git lfs pull there"));
  EXPECT_THAT(errorOf(good.substr(0, 7)), HasSubstr("has 7 bytes, too few"));
  EXPECT_THAT(errorOf(good.substr(0, good.size() - 1)), HasSubstr("it is cut short"));
  EXPECT_THAT(errorOf(good.substr(0, 40)), HasSubstr("says that its header has"));
  EXPECT_THAT(errorOf(std::string(8, '\xff') + "{}"),
              HasSubstr("header has 18446744073709551615 bytes"));
  EXPECT_THAT(errorOf(fileBytes("{\"a\": ", "")), HasSubstr("is not JSON"));
  EXPECT_THAT(errorOf(fileBytes("[]", "")), HasSubstr("not a JSON object"));
  EXPECT_THAT(errorOf(fileBytes(std::string(60, '['), "")), HasSubstr("is not JSON"));
  const TempFolder folder;
  EXPECT_THAT(Safetensors::open(folder.path()).error().message,
              HasSubstr("the model folder lacks model.safetensors: " + folder.path()));
  std::filesystem::create_directory(folder.path() + "/model.safetensors");
  EXPECT_THAT(Safetensors::open(folder.path()).error().message, HasSubstr("not a plain file"));
}

// Damaged headers are refused, or all views lie in the file: reading them is the check.
TEST(Safetensors, DamagedFiles) {
  const std::string good = fileBytes(goodHeader().dump(), someData());
  std::mt19937 random(7);
  const TempFolder folder;
  int opened = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string bytes = good;
    const size_t changes = 1 + random() % 2;
    for (size_t change = 0; change < changes; ++change) {
      const size_t at = i % 10 == 0 ? random() % 8 : 8 + random() % (good.size() - 8);
      bytes[at] =
          i % 10 == 0 ? static_cast<char>(random()) : "0123456789-.,[]{}\":eF"[random() % 21];
    }
    const auto file = openBytes(folder, bytes);
    if (!file.has_value()) continue;
    ++opened;
    for (const char* name : {"a", "b"}) {
      for (int64_t size = 0; size < 10; ++size) {
        for (const auto& shape : {std::vector<int64_t>{size}, {2, size}, {size, 3}}) {
          const auto view = file->tensor(name, shape);
          if (!view.has_value()) continue;
          std::vector<float> values(static_cast<size_t>(view->elements()));
          toFloat(*view, values.data());
        }
      }
    }
  }
  EXPECT_GT(opened, 100);
}

class Sharded : public testing::Test {
 protected:
  void SetUp() override {
    first_ = fileBytes(json{{"a", entry("BF16", {2, 3}, 0, 12)}}.dump(), someData().substr(0, 12));
    second_ = fileBytes(json{{"b", entry("F32", {3}, 0, 12)}}.dump(), someData().substr(12));
    folder_.write("model-00001-of-00002.safetensors", first_);
    folder_.write("model-00002-of-00002.safetensors", second_);
    weights_ = {{"a", "model-00001-of-00002.safetensors"},
                {"b", "model-00002-of-00002.safetensors"}};
  }
  Result<Safetensors> open() {
    folder_.write("model.safetensors.index.json", json{{"weight_map", weights_}}.dump());
    return Safetensors::open(folder_.path());
  }

  TempFolder folder_;
  std::string first_;
  std::string second_;
  json weights_;
};

TEST_F(Sharded, ReadsAllShards) {
  const auto file = valueOf(open());
  EXPECT_THAT(file.names(), ElementsAre("a", "b"));
  EXPECT_TRUE(file.tensor("a", {2, 3}).has_value());
  EXPECT_EQ(std::memcmp(file.tensor("b", {3})->data, someData().data() + 12, 12), 0);
  EXPECT_EQ(file.digest(), sha256Hex(first_ + second_));
}

TEST_F(Sharded, RefusesBadIndexes) {
  for (const json& name : {json("../model.safetensors"), json("/etc/passwd"), json(".."), json("."),
                           json(""), json("a/b"), json(std::string("a\0b", 3)), json(7)}) {
    weights_["a"] = name;
    const auto file = open();
    ASSERT_FALSE(file.has_value()) << name;
    EXPECT_THAT(file.error().message, AllOf(HasSubstr("index.json: tensor \"a\": "),
                                            HasSubstr("is not a plain file name")));
  }
  weights_["a"] = "model-00002-of-00002.safetensors";
  EXPECT_THAT(open().error().message, HasSubstr("says that tensor \"a\" is in model-00002-of-"));
  weights_["a"] = "model-00003-of-00002.safetensors";
  EXPECT_THAT(open().error().message, HasSubstr("model-00003-of-00002.safetensors: No such file"));
  weights_ = json::array();
  EXPECT_THAT(open().error().message, HasSubstr("has no weight_map"));
}

TEST_F(Sharded, RefusesATensorInTwoShards) {
  folder_.write("model-00002-of-00002.safetensors", first_);
  EXPECT_THAT(open().error().message, HasSubstr("tensor \"a\" is in "));
}

}  // namespace
}  // namespace allot
