// Where things lie in the split kernel's shared memory (kernels/cuda/swizzle.h): every address
// once, and no two lanes that are served together in one bank. Without a GPU.
#include "kernels/cuda/swizzle.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace allot::kernels::cuda {
namespace {

constexpr int kSplitKeys = 256;

// How often the busiest bank is used where `width` bytes of each lane are served `lanes` at a time.
int conflicts(int lanes, uint32_t width, const std::function<uint32_t(int)>& address) {
  int most = 0;
  for (int first = 0; first < 32; first += lanes) {
    int uses[32] = {};
    for (int lane = first; lane < first + lanes; ++lane) {
      EXPECT_EQ(address(lane) % width, 0u);
      for (uint32_t byte = 0; byte < width; byte += 4) {
        most = std::max(most, ++uses[(address(lane) + byte) / 4 % 32]);
      }
    }
  }
  return most;
}
// Of 16 bytes a lane, and of matrix loads: eight rows of 16 bytes.
int chunkConflicts(const std::function<uint32_t(int)>& address) {
  return conflicts(8, 16, address);
}

template <typename Pattern>
void expectPermutes(uint32_t count, uint32_t unit) {
  std::set<uint32_t> reached;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t to = Pattern::of(i * unit);
    EXPECT_EQ(Pattern::of(to), i * unit);
    EXPECT_LT(to, count * unit);
    EXPECT_EQ(to % unit, 0u);
    reached.insert(to);
  }
  EXPECT_EQ(reached.size(), count);
}

template <typename Tile>
class Tiles : public testing::Test {};
using Dims = testing::Types<TileLayout<64>, TileLayout<128>>;
TYPED_TEST_SUITE(Tiles, Dims);

TYPED_TEST(Tiles, ArePermutedWithinThemselves) {
  using Tile = TypeParam;
  expectPermutes<typename Tile::Pattern>(Tile::kBytes / 16, 16);
  for (int row = 0; row < 16; ++row) {
    for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
      EXPECT_EQ(Tile::at(row, chunk) / Tile::kRowBytes, static_cast<uint32_t>(row));
    }
  }
}

// Slots begin at multiples of 256 bytes, not of a tile: steps must be right from any of them.
TYPED_TEST(Tiles, StepsAlongAndDownArriveWhereTheyShould) {
  using Tile = TypeParam;
  for (const uint32_t slot : {0u, 256u, 1280u, 256u * 37}) {
    for (int lane = 0; lane < 32; ++lane) {
      const int row = lane / Tile::kChunks, chunk = lane % Tile::kChunks;
      for (int j = 0; j < 16 / Tile::kRowsAtOnce; ++j) {
        EXPECT_EQ(Tile::down(slot + Tile::copiedBy(lane), j),
                  slot + Tile::at(row + j * Tile::kRowsAtOnce, chunk));
      }
      for (int step = 0; step < Tile::kChunks / 2; ++step) {
        EXPECT_EQ(Tile::along(slot + Tile::keysOf(lane), 2 * step),
                  slot + Tile::at(lane % 16, lane / 16 + 2 * step));
        EXPECT_EQ(Tile::along(slot + Tile::valuesOf(lane), 2 * step),
                  slot + Tile::at(lane % 8 + lane / 16 * 8, lane / 8 % 2 + 2 * step));
      }
    }
  }
}

TYPED_TEST(Tiles, CopiesAndMatrixLoadsMeetInNoBank) {
  using Tile = TypeParam;
  std::set<uint32_t> written;
  for (int j = 0; j < 16 / Tile::kRowsAtOnce; ++j) {
    const auto copy = [&](int lane) { return Tile::down(Tile::copiedBy(lane), j); };
    EXPECT_EQ(chunkConflicts(copy), 1) << j;
    for (int lane = 0; lane < 32; ++lane) written.insert(copy(lane));
  }
  EXPECT_EQ(written.size(), static_cast<size_t>(Tile::kBytes / 16));  // the whole tile
  for (int step = 0; step < Tile::kChunks / 2; ++step) {
    EXPECT_EQ(chunkConflicts([&](int lane) { return Tile::along(Tile::keysOf(lane), 2 * step); }),
              1);
    EXPECT_EQ(chunkConflicts([&](int lane) { return Tile::along(Tile::valuesOf(lane), 2 * step); }),
              1);
  }
}

// The twin: without the pattern the same loads meet eight times.
TYPED_TEST(Tiles, PlainRowsWouldMeet) {
  using Tile = TypeParam;
  const auto plain = [](int lane) {
    return static_cast<uint32_t>(lane % 16 * Tile::kRowBytes + lane / 16 * 16);
  };
  EXPECT_EQ(chunkConflicts(plain), 8);
}

template <typename Codes>
class CodeTiles : public testing::Test {};
using CodeDims = testing::Types<CodeLayout<64>, CodeLayout<128>>;
TYPED_TEST_SUITE(CodeTiles, CodeDims);

TYPED_TEST(CodeTiles, ArePermutedAndCopiedWhole) {
  using Codes = TypeParam;
  expectPermutes<typename Codes::Pattern>(Codes::kBytes / 16, 16);
  std::set<uint32_t> written;
  for (int j = 0; j < Codes::kBytes / 512; ++j) {
    const auto copy = [&](int lane) { return Codes::copiedBy(lane) + j * 512; };
    EXPECT_EQ(chunkConflicts(copy), 1);
    // A chunk stays among the four of its 64 bytes: copies are as fast as in order.
    for (int lane = 0; lane < 32; ++lane) {
      EXPECT_EQ(copy(lane) / 64, static_cast<uint32_t>(lane * 16 + j * 512) / 64);
      written.insert(copy(lane));
    }
  }
  EXPECT_EQ(written.size(), static_cast<size_t>(Codes::kBytes / 16));
}

TYPED_TEST(CodeTiles, ReadsFindTheirKeysAndMeetInNoBank) {
  using Codes = TypeParam;
  const int steps = Codes::kBytes / 256;  // of 32 channels, four lanes' eight each
  for (int v = 0; v < steps; ++v) {
    const auto read = [&](int lane) { return Codes::readBy(lane / 4, lane % 4) + v * 256; };
    EXPECT_EQ(chunkConflicts(read), 1);
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4, tile = g / 4;
      // Chunk 4 p + i holds channels 8 p of keys 4 i; it was copied to the pattern's place.
      const int chunk = 4 * (t + 4 * v) + g % 4;
      EXPECT_EQ(read(lane), tile * Codes::kBytes + Codes::copiedBy(chunk % 32) + chunk / 32 * 512);
    }
  }
  const auto plain = [](int lane) {
    return static_cast<uint32_t>(lane / 16 * Codes::kBytes + (lane % 4 * 4 + lane / 4 % 4) * 16);
  };
  EXPECT_EQ(chunkConflicts(plain), 2);  // the twin
}

// The lines of a head group: lane 4 g + t writes those of head `apart` t.
template <int kHeadGroup>
void expectLinesApart(int apart) {
  using Scores = ScoreLayout<kSplitKeys, kHeadGroup>;
  for (int tile = 0; tile < kSplitKeys / 16; ++tile) {
    // Scores of keys g and g + 8, a float each.
    for (const int half : {0, 8}) {
      const auto score = [&](int lane) {
        return Scores::at(lane % 4 * apart, tile * 16 + half + lane / 4);
      };
      EXPECT_EQ(conflicts(32, 4, score), 1);
    }
  }
  // Four keys of a lane at a time, from codes.
  EXPECT_EQ(chunkConflicts([&](int lane) {
              return Scores::at(lane % 4 * apart, lane / 16 * 16 + lane / 4 % 4 * 4);
            }),
            1);
  // Eight keys of one head a lane, in two halves: these meet twice.
  for (const int half : {0, 4}) {
    EXPECT_EQ(chunkConflicts([&](int lane) { return Scores::at(1, 8 * lane + half); }), 2);
  }
}

TEST(Scores, LinesOfFourHeadsMeetInNoBank) {
  expectLinesApart<4>(1);
  expectLinesApart<8>(2);
  expectLinesApart<16>(2);
}

}  // namespace
}  // namespace allot::kernels::cuda
