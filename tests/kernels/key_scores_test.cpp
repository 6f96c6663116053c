// Scores of keys: exact ones to the bit whatever the page, shadow ones to the integer.
#include "kernels/cpu/key_scores.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/key_pool.h"

namespace allot::kernels {
namespace {

// Bits and the place of that shadow in a KeyPool.
struct Bits {
  int bits;
  int shadow;
};
constexpr Bits kBits[] = {{3, 0}, {4, 1}, {8, 2}};

std::vector<float> scoresOf(const KeyPool& pool, int kv_head, int n,
                            const std::vector<float>& queries, int bits) {
  const int group = static_cast<int>(queries.size()) / pool.kv.head_dim;
  const int64_t stride = (n + 31) / 32 * 32;
  std::vector<float> padded(group * stride, -7.0f), scores;
  const KeyRange keys{&pool.kv, pool.table.data(), kv_head, n};
  if (bits == 0) {
    exactScores(keys, queries.data(), group, 0.125f, padded.data(), stride);
  } else {
    shadowScores(keys, bits, queries.data(), group, 0.125f, padded.data(), stride);
  }
  for (int g = 0; g < group; ++g) {
    // Shadows come by the tile; exact scores stop at n.
    const int written = bits == 0 ? n : (n + kTileKeys - 1) / kTileKeys * kTileKeys;
    for (int j = written; j < stride; ++j) EXPECT_EQ(padded[g * stride + j], -7.0f) << j;
    scores.insert(scores.end(), padded.begin() + g * stride, padded.begin() + g * stride + n);
  }
  return scores;
}

KeyPool filled(Element element, int page_size, int head_dim, int n, uint64_t seed,
               float mean = 0.5f) {
  KeyPool pool({element, 320 / page_size + 1, 2, page_size, head_dim}, seed);
  auto keys = normals(static_cast<size_t>(n) * 2 * head_dim, 11);
  for (float& key : keys) key += mean;
  EXPECT_EQ(pool.append(0, n, keys.data(), keys.data()), std::nullopt);
  return pool;
}

TEST(ExactScores, AreTheProducts) {
  for (Element element : {Element::kFloat32, Element::kBFloat16}) {
    for (int head_dim : {16, 64, 128}) {
      for (int group : {1, 2, 3, 4, 5, 7, 8}) {
        const KeyPool pool = filled(element, 16, head_dim, 53, 1);
        const auto queries = normals(static_cast<size_t>(group) * head_dim, 12);
        const auto scores = scoresOf(pool, 1, 53, queries, 0);
        for (int g = 0; g < group; ++g) {
          for (int j = 0; j < 53; ++j) {
            double product = 0, size = 0;
            for (int d = 0; d < head_dim; ++d) {
              const double term =
                  static_cast<double>(queries[g * head_dim + d]) * pool.key(1, j, d);
              product += term;
              size += std::fabs(term);
            }
            ASSERT_NEAR(scores[g * 53 + j], 0.125 * product, 0.125 * size * 2e-6);
          }
        }
      }
    }
  }
}

// Pages, the group and being asked for alone never change a bit.
TEST(ExactScores, AreTheSameBitsHoweverAsked) {
  for (Element element : {Element::kFloat32, Element::kBFloat16}) {
    const auto queries = normals(7 * 64, 13);
    for (int n : {1, 15, 16, 17, 255, 256, 257, 300}) {
      const KeyPool one_page = filled(element, 320, 64, n, 1);
      const auto expected = scoresOf(one_page, 1, n, queries, 0);
      for (int page_size : {1, 4, 16, 24, 64, 160}) {
        const KeyPool pool = filled(element, page_size, 64, n, 2);
        ASSERT_EQ(scoresOf(pool, 1, n, queries, 0), expected) << page_size << " " << n;
        for (int g = 0; g < 7; ++g) {
          const std::vector<float> query(&queries[g * 64], &queries[g * 64] + 64);
          const std::vector<float> row(&expected[g * n], &expected[g * n] + n);
          ASSERT_EQ(scoresOf(pool, 1, n, query, 0), row);
          std::vector<int32_t> rows(n);
          std::iota(rows.begin(), rows.end(), 0);
          std::vector<float> scattered(n);
          exactScoresOf({&pool.kv, pool.table.data(), 1, n}, query.data(), 0.125f, rows.data(), n,
                        scattered.data());
          ASSERT_EQ(scattered, row);
        }
      }
    }
  }
}

// The codes of one key as the header defines them, decoded by brute force from the stored bits.
int codeOf(const KeyPool& pool, Bits shadow, int kv_head, int j, int d) {
  const int head_dim = pool.kv.head_dim;
  const int64_t position = pool.offset(kv_head, j) / head_dim;
  const uint8_t* tile = pool.codes[shadow.shadow].data() +
                        position / kTileKeys * pool.kv.shadows[shadow.shadow].tileBytes(head_dim);
  const int byte = static_cast<int>(position % kTileKeys) * 4 + d % 4, vector = d / 4;
  if (shadow.bits == 8) return tile[vector * 64 + byte] - 128;
  if (shadow.bits == 4) return (tile[vector / 2 * 64 + byte] >> (vector % 2 * 4) & 15) - 8;
  const int low = tile[vector / 4 * 64 + byte] >> (vector % 4 * 2) & 3;
  const uint8_t* third = tile + head_dim * 4 + vector * 8;
  return (low | (third[byte / 8] >> byte % 8 & 1) << 2) - 4;
}

// k~ is within half a step of what the cache holds (not of what was appended).
TEST(Shadow, IsWithinHalfAStepOfTheHeldKey) {
  for (Element element : {Element::kFloat32, Element::kBFloat16}) {
    const KeyPool pool = filled(element, 32, 64, 75, 1, 4.0f);
    for (const Bits shadow : kBits) {
      const int limit = (1 << (shadow.bits - 1)) - 1;
      for (int head = 0; head < 2; ++head) {
        for (int j = 0; j < 75; ++j) {
          const float scale = pool.scale(shadow.shadow, head, j);
          int largest = 0;
          for (int d = 0; d < 64; ++d) {
            const int code = codeOf(pool, shadow, head, j, d);
            const double held = static_cast<double>(pool.key(head, j, d)) - pool.mean_key(head)[d];
            ASSERT_NEAR(scale * code, held, scale * (0.5 + 1e-4)) << shadow.bits;
            largest = std::max(largest, std::abs(code));
          }
          ASSERT_EQ(largest, limit) << "every key uses its whole range";
        }
      }
    }
  }
}

TEST(Shadow, ScoresAreTheIntegerProducts) {
  for (int head_dim : {16, 64, 128}) {
    for (int group : {1, 3, 4, 6}) {
      constexpr int n = 77;
      const KeyPool pool = filled(Element::kBFloat16, 16, head_dim, n, 3);
      const auto queries = normals(static_cast<size_t>(group) * head_dim, 14);
      for (const Bits shadow : kBits) {
        const auto scores = scoresOf(pool, 1, n, queries, shadow.bits);
        for (int g = 0; g < group; ++g) {
          float largest = 0;
          for (int d = 0; d < head_dim; ++d) {
            largest = std::max(largest, std::fabs(queries[g * head_dim + d]));
          }
          for (int j = 0; j < n; ++j) {
            int64_t dot = 0;
            for (int d = 0; d < head_dim; ++d) {
              const auto query = std::lrintf(queries[g * head_dim + d] * (127 / largest));
              dot += query * codeOf(pool, shadow, 1, j, d);
            }
            const float expected = static_cast<float>(dot) *
                                   (0.125f * (largest / 127) * pool.scale(shadow.shadow, 1, j));
            ASSERT_EQ(scores[g * n + j], expected) << shadow.bits;
          }
        }
      }
    }
  }
}

// Every instruction set, with the largest codes and queries there are: byte products that saturate
// would show here first.
TEST(Shadow, EveryInstructionSetGivesTheSameIntegers) {
  std::mt19937_64 random(15);
  for (int head_dim : {16, 48, 128, 1024}) {
    for (const Bits shadow : kBits) {
      std::vector<uint8_t> tile(KeyShadow{.bits = shadow.bits}.tileBytes(head_dim));
      std::vector<int8_t> queries(4 * static_cast<size_t>(head_dim));
      for (int round = 0; round < 20; ++round) {
        for (uint8_t& byte : tile) byte = static_cast<uint8_t>(round < 2 ? 0xff : random());
        for (int8_t& query : queries) {
          query = round == 0   ? 127
                  : round == 1 ? -127
                               : static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
        }
        for (int heads = 1; heads <= 4; ++heads) {
          std::vector<int32_t> plain(heads * kTileKeys), other(heads * kTileKeys);
          tileDots(ShadowCode::kPlain, shadow.bits)(tile.data(), tile.data(), head_dim,
                                                    queries.data(), heads, plain.data());
          if (round < 2) {
            const int code = (1 << shadow.bits) - 1, sign = round == 0 ? 127 : -127;
            ASSERT_EQ(plain, std::vector<int32_t>(heads * kTileKeys, head_dim * code * sign));
          }
          for (ShadowCode code : {ShadowCode::kAvx2, ShadowCode::kVnni}) {
            if (!runsHere(code)) continue;
            tileDots(code, shadow.bits)(tile.data(), tile.data(), head_dim, queries.data(), heads,
                                        other.data());
            ASSERT_EQ(other, plain) << shadow.bits << " bits, head_dim " << head_dim;
          }
        }
      }
    }
  }
}

TEST(Shadow, PagesAndLengthsNeverChangeABit) {
  const auto queries = normals(6 * 64, 16);
  for (int n : {1, 15, 16, 17, 31, 33, 63, 64, 65, 300}) {
    for (const Bits shadow : kBits) {
      const auto expected =
          scoresOf(filled(Element::kBFloat16, 320, 64, n, 1), 1, n, queries, shadow.bits);
      for (int page_size : {16, 64, 160}) {
        const KeyPool pool = filled(Element::kBFloat16, page_size, 64, n, 2);
        ASSERT_EQ(scoresOf(pool, 1, n, queries, shadow.bits), expected) << page_size << " " << n;
      }
    }
  }
}

// Numbers at the ends of what the cache takes: nothing that is not finite comes out of finite keys.
TEST(Shadow, TinyEqualAndHugeKeys) {
  const float huge = std::numeric_limits<float>::max();
  for (float size : {0.0f, 1e-45f, 1e-38f, 3.0f, huge}) {
    KeyPool pool({Element::kFloat32, 2, 1, 16, 16});
    std::vector<float> keys(20 * 16, size);
    // The second half of the keys is the opposite of the first: the mean key is 0 for even counts.
    for (size_t i = keys.size() / 2; i < keys.size(); ++i) keys[i] = -size;
    ASSERT_EQ(pool.append(0, 20, keys.data(), keys.data()), std::nullopt);
    ASSERT_EQ(pool.append(20, 1, keys.data(), keys.data()), std::nullopt);
    for (const Bits shadow : kBits) {
      for (int j = 0; j < 21; ++j) {
        const float scale = pool.scale(shadow.shadow, 0, j);
        ASSERT_TRUE(std::isfinite(scale));
        const double key = static_cast<double>(scale) * codeOf(pool, shadow, 0, j, 3);
        // Keys too small to have an inverse stand for the mean key.
        const double expected = size < 1e-30f ? 0.0 : j < 10 || j == 20 ? 1.0 : -1.0;
        ASSERT_NEAR(size < 1e-30f ? key : key / size, expected, 1e-5) << size;
      }
    }
  }
}

}  // namespace
}  // namespace allot::kernels
