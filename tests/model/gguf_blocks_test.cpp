// Blocks of GGUF's quantised types, put together here from numbers that are chosen first: bit by
// bit from the published layouts (llama.cpp's ggml-common.h and the comments of its block_q*), in
// the direction from number to bit, while the reader goes the other way. Scales are powers of two
// times a small odd number, so that every value is exact in float32.
#include "worker/model/gguf_blocks.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/results.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

// A float16 that is a normal number without rounding: mantissa * 2^exponent, mantissa below 2^11.
uint16_t halfOf(int mantissa, int exponent) {
  if (mantissa == 0) return 0;
  const uint16_t sign = mantissa < 0 ? 0x8000 : 0;
  mantissa = std::abs(mantissa);
  int shift = 0;
  while (mantissa < 1024) mantissa *= 2, ++shift;
  const int biased = exponent + 10 - shift + 15;
  EXPECT_GT(biased, 0);
  EXPECT_LT(biased, 31);
  return static_cast<uint16_t>(sign | biased << 10 | (mantissa - 1024));
}

double valueOf(int mantissa, int exponent) { return std::ldexp(mantissa, exponent); }

// One block: its bytes, and what they stand for.
class Block {
 public:
  explicit Block(size_t bytes) : bytes(bytes) {}
  // Sets `count` bits from bit `first` of byte `at` on.
  void put(size_t at, int first, int count, int number) {
    ASSERT_GE(number, 0);
    ASSERT_LT(number, 1 << count);
    ASSERT_LE(first + count, 8);
    bytes.at(at) = static_cast<uint8_t>(bytes.at(at) | number << first);
  }
  void putHalf(size_t at, uint16_t half) {
    bytes.at(at) = static_cast<uint8_t>(half & 255);
    bytes.at(at + 1) = static_cast<uint8_t>(half >> 8);
  }

  Bytes bytes;
  std::vector<float> values;
};

// Numbers of a block, below `limit` each: random, random but for 0, all 0 or all the largest.
class Numbers {
 public:
  enum Kind { kRandom, kPositive, kLeast, kMost };
  Numbers(Kind kind, uint32_t seed) : kind_(kind), random_(seed) {}
  int below(int limit) {
    if (kind_ == kLeast) return 0;
    if (kind_ == kMost) return limit - 1;
    const int least = kind_ == kPositive ? 1 : 0;
    return least + static_cast<int>(random_() % static_cast<uint32_t>(limit - least));
  }

 private:
  Kind kind_;
  std::mt19937 random_;
};

// Scale 5 * 2^-9 and, for the types that have one, minimum 3 * 2^-7 or, where it is added, -3 *
// 2^-7.
constexpr int kScale = 5, kScaleExponent = -9, kLeast = 3, kLeastExponent = -7;
const double kD = valueOf(kScale, kScaleExponent), kM = valueOf(kLeast, kLeastExponent);

// The low four bits of element i are in byte i % 16, the second half's above the first's; the fifth
// is bit i of 32.
void putFiveBits(Block* block, size_t high, size_t low, int i, int code) {
  block->put(low + static_cast<size_t>(i) % 16, i < 16 ? 0 : 4, 4, code % 16);
  block->put(high + static_cast<size_t>(i) / 8, i % 8, 1, code / 16);
}

// Q5_1, with a minimum, or Q5_0.
Block q5(Numbers* numbers, bool has_minimum) {
  Block block(has_minimum ? 24 : 22);
  const size_t high = has_minimum ? 4 : 2;
  block.putHalf(0, halfOf(kScale, kScaleExponent));
  if (has_minimum) block.putHalf(2, halfOf(-kLeast, kLeastExponent));
  for (int i = 0; i < 32; ++i) {
    const int code = numbers->below(32);
    putFiveBits(&block, high, high + 4, i, code);
    block.values.push_back(static_cast<float>(has_minimum ? kD * code - kM : kD * (code - 16)));
  }
  return block;
}

// Two low bits of 256 elements in 64 bytes from `at` on: the first 128 elements in 32 bytes, of
// which the first 32 have the lowest two bits.
void putTwoBits(Block* block, size_t at, int i, int code) {
  const int half = i / 128, within = i % 128;
  block->put(at + static_cast<size_t>(32 * half + within % 32), within / 32 * 2, 2, code);
}

Block q2_K(Numbers* numbers) {
  Block block(84);
  block.putHalf(80, halfOf(kScale, kScaleExponent));
  block.putHalf(82, halfOf(kLeast, kLeastExponent));
  for (int sub = 0; sub < 16; ++sub) {
    const int scale = numbers->below(16), minimum = numbers->below(16);
    block.put(static_cast<size_t>(sub), 0, 4, scale);
    block.put(static_cast<size_t>(sub), 4, 4, minimum);
    for (int i = 16 * sub; i < 16 * sub + 16; ++i) {
      const int code = numbers->below(4);
      putTwoBits(&block, 16, i, code);
      block.values.push_back(static_cast<float>(kD * scale * code - kM * minimum));
    }
  }
  return block;
}

Block q3_K(Numbers* numbers) {
  Block block(110);
  block.putHalf(108, halfOf(kScale, kScaleExponent));
  for (int sub = 0; sub < 16; ++sub) {
    const int scale = numbers->below(64);
    // Low four bits: two sub-blocks a byte, eight apart. High two: four a byte, four apart.
    block.put(static_cast<size_t>(96 + sub % 8), sub / 8 * 4, 4, scale % 16);
    block.put(static_cast<size_t>(104 + sub % 4), sub / 4 * 2, 2, scale / 16);
    for (int i = 16 * sub; i < 16 * sub + 16; ++i) {
      const int code = numbers->below(8);  // -4 to 3
      putTwoBits(&block, 32, i, code % 4);
      block.put(static_cast<size_t>(i % 32), i / 32, 1, code / 4);
      block.values.push_back(static_cast<float>(kD * (scale - 32) * (code - 4)));
    }
  }
  return block;
}

// Scales and minima of eight sub-blocks, six bits each, in the twelve bytes from `at` on: of the
// first four they are the low bits of a byte each; of the last four the low four bits share a byte,
// and the high two are what the first eight bytes leave.
void putScale(Block* block, size_t at, int sub, int scale, int minimum) {
  const auto s = static_cast<size_t>(sub);
  if (sub < 4) {
    block->put(at + s, 0, 6, scale);
    block->put(at + 4 + s, 0, 6, minimum);
    return;
  }
  block->put(at + 4 + s, 0, 4, scale % 16);
  block->put(at + 4 + s, 4, 4, minimum % 16);
  block->put(at + s - 4, 6, 2, scale / 16);
  block->put(at + s, 6, 2, minimum / 16);
}

// Q4_K where `high` is 0, else Q5_K with its fifth bits there.
Block q45_K(Numbers* numbers, size_t bytes, size_t high, size_t low) {
  Block block(bytes);
  block.putHalf(0, halfOf(kScale, kScaleExponent));
  block.putHalf(2, halfOf(kLeast, kLeastExponent));
  for (int sub = 0; sub < 8; ++sub) {
    const int scale = numbers->below(64), minimum = numbers->below(64);
    putScale(&block, 4, sub, scale, minimum);
    for (size_t i = 0; i < 32; ++i) {
      const int code = numbers->below(high > 0 ? 32 : 16);
      block.put(low + static_cast<size_t>(sub / 2) * 32 + i, sub % 2 * 4, 4, code % 16);
      if (high > 0) block.put(high + i, sub, 1, code / 16);
      block.values.push_back(static_cast<float>(kD * scale * code - kM * minimum));
    }
  }
  return block;
}

Block q6_K(Numbers* numbers) {
  Block block(210);
  block.putHalf(208, halfOf(kScale, kScaleExponent));
  for (int sub = 0; sub < 16; ++sub) {
    const int scale = numbers->below(256) - 128;
    block.put(static_cast<size_t>(192 + sub), 0, 8, scale & 255);
    for (int i = 16 * sub; i < 16 * sub + 16; ++i) {
      const int code = numbers->below(64), half = i / 128, within = i % 128;
      block.put(static_cast<size_t>(64 * half + within % 64), within / 64 * 4, 4, code % 16);
      block.put(static_cast<size_t>(128 + 32 * half + within % 32), within / 32 * 2, 2, code / 16);
      block.values.push_back(static_cast<float>(kD * scale * (code - 32)));
    }
  }
  return block;
}

struct Type {
  GgmlType type;
  std::function<Block(Numbers*)> make;
};

const std::map<std::string, Type>& types() {
  static const std::map<std::string, Type> all = {
      {"Q5_0", {GgmlType::kQ5_0, [](Numbers* numbers) { return q5(numbers, false); }}},
      {"Q5_1", {GgmlType::kQ5_1, [](Numbers* numbers) { return q5(numbers, true); }}},
      {"Q2_K", {GgmlType::kQ2_K, q2_K}},
      {"Q3_K", {GgmlType::kQ3_K, q3_K}},
      {"Q4_K", {GgmlType::kQ4_K, [](Numbers* numbers) { return q45_K(numbers, 144, 0, 16); }}},
      {"Q5_K", {GgmlType::kQ5_K, [](Numbers* numbers) { return q45_K(numbers, 176, 16, 48); }}},
      {"Q6_K", {GgmlType::kQ6_K, q6_K}},
  };
  return all;
}

class GgufBlocks : public testing::TestWithParam<std::string> {
 protected:
  const Type& type() const { return types().at(GetParam()); }
  const BlockLayout& layout() const { return *blockLayout(static_cast<uint32_t>(type().type)); }
};

TEST_P(GgufBlocks, AreTheNumbersTheyWereMadeOf) {
  ASSERT_EQ(layout().name, GetParam());
  for (const auto kind : {Numbers::kRandom, Numbers::kLeast, Numbers::kMost}) {
    // Rows of three blocks, so that one beside another is seen as well.
    Bytes bytes;
    std::vector<float> values;
    Numbers numbers(kind, 17);
    for (int row = 0; row < 5; ++row) {
      for (int i = 0; i < 3; ++i) {
        const Block block = type().make(&numbers);
        bytes.insert(bytes.end(), block.bytes.begin(), block.bytes.end());
        values.insert(values.end(), block.values.begin(), block.values.end());
      }
    }
    ASSERT_EQ(bytes.size(), 15 * layout().bytes);
    ASSERT_EQ(values.size(), static_cast<size_t>(15 * layout().elements));
    std::vector<float> out(values.size() + 1, -77);
    toFloat(
        {type().type, {5, 3 * layout().elements}, reinterpret_cast<const std::byte*>(bytes.data())},
        out.data());
    EXPECT_EQ(out.back(), -77);  // nothing beyond the tensor
    out.pop_back();
    EXPECT_EQ(out, values);
  }
}

// Large enough for several threads, each with its own part, of no equal size.
TEST_P(GgufBlocks, ALargeTensorIsThatOfItsBlocks) {
  const int64_t blocks = (int64_t{3} << 20) / layout().elements + 7;
  Numbers numbers(Numbers::kRandom, 19);
  std::vector<Block> some;
  for (int i = 0; i < 13; ++i) some.push_back(type().make(&numbers));
  Bytes bytes;
  for (int64_t i = 0; i < blocks; ++i) {
    const Block& block = some[i % 13];
    bytes.insert(bytes.end(), block.bytes.begin(), block.bytes.end());
  }
  std::vector<float> out(static_cast<size_t>(blocks * layout().elements), -77);
  toFloat(
      {type().type, {blocks * layout().elements}, reinterpret_cast<const std::byte*>(bytes.data())},
      out.data());
  for (int64_t i = 0; i < blocks; ++i) {
    const std::vector<float>& values = some[i % 13].values;
    ASSERT_TRUE(std::equal(values.begin(), values.end(), out.begin() + i * layout().elements))
        << "block " << i << " of " << blocks;
  }
}

// Every bit of a block belongs to some number of it. (No scale of these numbers is 0.)
TEST_P(GgufBlocks, EveryBitCounts) {
  Numbers numbers(Numbers::kPositive, 23);
  Block block = type().make(&numbers);
  const auto decoded = [&] {
    std::vector<float> out(block.values.size());
    toFloat(
        {type().type, {layout().elements}, reinterpret_cast<const std::byte*>(block.bytes.data())},
        out.data());
    return out;
  };
  for (size_t at = 0; at < block.bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      block.bytes[at] ^= static_cast<uint8_t>(1 << bit);
      EXPECT_FALSE(decoded() == block.values) << "byte " << at << ", bit " << bit;
      block.bytes[at] ^= static_cast<uint8_t>(1 << bit);
    }
  }
  EXPECT_EQ(decoded(), block.values);
}

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string textOf(const std::string& text) { return raw(uint64_t{text.size()}) + text; }

// A file of version 3 with one tensor t of these sizes, the fastest first, and so many bytes of
// data.
std::string fileOf(uint32_t type, const std::vector<uint64_t>& sizes, size_t bytes) {
  std::string file = "GGUF" + raw(uint32_t{3}) + raw(uint64_t{1}) + raw(uint64_t{0}) + textOf("t") +
                     raw(static_cast<uint32_t>(sizes.size()));
  for (const uint64_t size : sizes) file += raw(size);
  file += raw(type) + raw(uint64_t{0});
  file.resize((file.size() + 31) / 32 * 32 + bytes);
  return file;
}

std::string openError(const std::string& bytes) {
  const TempFolder folder;
  const auto gguf = Gguf::open(folder.write("t.gguf", bytes));
  return gguf ? "opened" : gguf.error().message;
}

TEST_P(GgufBlocks, SizesThatAreNotTheFilesAreRefused) {
  const auto number = static_cast<uint32_t>(type().type);
  const auto wide = static_cast<uint64_t>(layout().elements);
  const size_t row = 2 * layout().bytes;
  EXPECT_EQ(openError(fileOf(number, {2 * wide, 3}, 3 * row)), "opened");
  EXPECT_EQ(openError(fileOf(number, {2 * wide, 3}, 3 * row + 5)), "opened");
  EXPECT_THAT(openError(fileOf(number, {2 * wide, 3}, 3 * row - 1)),
              HasSubstr("tensor \"t\" ends beyond the file; it is cut short, download it again"));
  EXPECT_THAT(openError(fileOf(number, {2 * wide - 1, 3}, 3 * row)),
              HasSubstr("tensor \"t\": rows of " + std::to_string(2 * wide - 1) +
                        " are no blocks of " + GetParam()));
  EXPECT_THAT(openError(fileOf(number, {wide << 40, 1 << 10}, row)), HasSubstr("ends beyond"));
  EXPECT_THAT(openError(fileOf(number, {wide << 40, uint64_t{1} << 40}, row)),
              HasSubstr("the product of its shape overflows"));
  // Nothing times much is nothing, in one order; in the other, the product has overflown by then.
  EXPECT_THAT(openError(fileOf(number, {0, uint64_t{1} << 40, uint64_t{1} << 40}, row)),
              HasSubstr("tensor \"t\" has a size of 0 in its shape"));
}

INSTANTIATE_TEST_SUITE_P(Types, GgufBlocks,
                         testing::Values("Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
                         [](const auto& param) { return param.param; });

// What a document, or a message, says is read.
TEST(GgufBlockTypes, OthersAreRefusedByNameOfWhatIsRead) {
  const TempFolder folder;
  for (const uint32_t type : {4u, 5u, 9u, 15u, 16u, 29u, 31u, UINT32_MAX}) {
    EXPECT_EQ(blockLayout(type), nullptr) << type;
    const std::string path = folder.write("t.gguf", fileOf(type, {256, 1}, 1024));
    const auto gguf = valueOf(Gguf::open(path));
    EXPECT_THAT(
        gguf.tensor("t", {1, 256}),
        isError(ErrorCode::kUsage,
                path + ": tensor \"t\" is of ggml's type " + std::to_string(type) +
                    ", which is not supported; supported: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, "
                    "Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K"));
  }
  EXPECT_THAT(readFile(ALLOT_SOURCE_DIR "/docs/models.md"), HasSubstr(blockTypesText()));
}

}  // namespace
}  // namespace allot
