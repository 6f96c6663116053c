// Queries, keys and values of a step on the GPU: biases, norms of heads and rotations are those of
// their definitions, in double.
#include <array>
#include <cmath>
#include <random>

#include "allot/kernels/paged_kv.h"
#include "tests/gpu/gpu_fixture.h"
#include "worker/model/cuda_ops.h"

namespace allot {
namespace {

using cuda_ops::Heads;
using cuda_ops::Number;
using kernels::DeviceArray;

constexpr int kRows = 5, kPositions = 40;
constexpr double kEps = 1e-6;

struct Case {
  Heads heads;
  bool bias;
  bool norms;
  bool rotates;
};

struct Inputs {
  std::vector<float> qkv, bias, query_norm, key_norm, cosines, sines;
  std::vector<int32_t> positions;
};

// One head of a row as it should be: kind 0 query, 1 key, 2 value.
std::vector<double> expectedHead(const Inputs& in, const Case& c, int row, int head) {
  const int d = c.heads.head_dim, all = c.heads.heads + 2 * c.heads.kv_heads;
  std::vector<double> x(static_cast<size_t>(d));
  double squares = 0;
  for (int i = 0; i < d; ++i) {
    const auto at = static_cast<size_t>((row * all + head) * d + i);
    x[i] = in.qkv[at];
    if (c.bias) x[i] += in.bias[head * d + i];
    squares += x[i] * x[i];
  }
  if (head >= c.heads.heads + c.heads.kv_heads) return x;
  if (c.norms) {
    const std::vector<float>& norm = head < c.heads.heads ? in.query_norm : in.key_norm;
    for (int i = 0; i < d; ++i) x[i] *= norm[i] / std::sqrt(squares / d + kEps);
  }
  if (!c.rotates) return x;
  const size_t angle = static_cast<size_t>(in.positions[row] * d / 2);
  std::vector<double> turned(x.size());
  for (int i = 0; i < d / 2; ++i) {
    const double cosine = in.cosines[angle + i], sine = in.sines[angle + i];
    turned[i] = x[i] * cosine - x[i + d / 2] * sine;
    turned[i + d / 2] = x[i + d / 2] * cosine + x[i] * sine;
  }
  return turned;
}

class SplitRope : public kernels::GpuTest {
 protected:
  Inputs inputsOf(const Heads& heads) {
    const auto d = static_cast<size_t>(heads.head_dim);
    const size_t width = static_cast<size_t>(heads.heads + 2 * heads.kv_heads) * d;
    Inputs in{normals(kRows * width, 0.1, 3),
              normals(width, 0, 1),
              normals(d, 1, 0.3),
              normals(d, 1, 0.3),
              {},
              {},
              {39, 0, 7, 1, 20}};
    for (size_t i = 0; i < kPositions * d / 2; ++i) {
      in.cosines.push_back(static_cast<float>(std::cos(0.37 * static_cast<double>(i))));
      in.sines.push_back(static_cast<float>(std::sin(0.37 * static_cast<double>(i))));
    }
    return in;
  }

  // Queries, keys and values, [kRows, heads of the kind, head_dim].
  static std::array<std::vector<float>, 3> split(Number number, const Inputs& in, const Case& c,
                                                 bool rounded = false) {
    std::vector<uint16_t> narrow;
    for (const float x : in.qkv) narrow.push_back(kernels::toBFloat16(x));
    const DeviceArray<uint16_t> bfloat16(narrow);
    const DeviceArray<float> wide(in.qkv), bias(in.bias), query_norm(in.query_norm),
        key_norm(in.key_norm), cosines(in.cosines), sines(in.sines);
    const DeviceArray<int32_t> positions(in.positions);
    const auto d = static_cast<size_t>(c.heads.head_dim);
    const size_t kv = kRows * static_cast<size_t>(c.heads.kv_heads) * d;
    DeviceArray<float> queries(kRows * static_cast<size_t>(c.heads.heads) * d), keys(kv),
        values(kv);
    DeviceArray<uint16_t> rounded_queries(queries.size());
    cuda_ops::HeadNorms norms;
    if (c.norms) norms = {query_norm.get(), key_norm.get(), static_cast<float>(kEps)};
    const void* from = number == Number::kFloat32 ? static_cast<const void*>(wide.get())
                                                  : static_cast<const void*>(bfloat16.get());
    cuda_ops::splitRope(number, from, c.bias ? bias.get() : nullptr, norms, positions.get(),
                        c.rotates ? cosines.get() : nullptr, c.rotates ? sines.get() : nullptr,
                        kRows, c.heads,
                        {queries.get(), keys.get(), values.get(),
                         rounded ? static_cast<void*>(rounded_queries.get()) : nullptr},
                        nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    if (!rounded) return {queries.host(), keys.host(), values.host()};
    std::vector<float> widened;
    for (const uint16_t x : rounded_queries.host()) widened.push_back(kernels::fromBFloat16(x));
    return {widened, keys.host(), values.host()};
  }

 private:
  std::vector<float> normals(size_t count, double mean, double spread) {
    std::normal_distribution<double> draw(mean, spread);
    std::vector<float> list(count);
    for (float& x : list) x = static_cast<float>(draw(random_));
    return list;
  }

  std::mt19937 random_{29};
};

void expectDefinitions(const Inputs& in, const Case& c,
                       const std::array<std::vector<float>, 3>& made) {
  const int heads = c.heads.heads, kv_heads = c.heads.kv_heads, d = c.heads.head_dim;
  for (int row = 0; row < kRows; ++row) {
    for (int head = 0; head < heads + 2 * kv_heads; ++head) {
      const int kind = head < heads ? 0 : head < heads + kv_heads ? 1 : 2;
      const int count = kind == 0 ? heads : kv_heads;
      const int first = kind == 0 ? 0 : heads + (kind - 1) * kv_heads;
      const std::vector<double> should = expectedHead(in, c, row, head);
      for (int i = 0; i < d; ++i) {
        const auto at = static_cast<size_t>((row * count + head - first) * d + i);
        ASSERT_NEAR(made[kind][at], should[i], 1e-5 * (1 + std::fabs(should[i])))
            << "row " << row << ", head " << head << ", channel " << i;
      }
    }
  }
}

TEST_F(SplitRope, IsTheDefinitions) {
  for (const int d : {64, 128}) {
    for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {12, 2}, {7, 7}, {16, 8}}) {
      for (const int options : {0, 1, 2, 3, 4, 7}) {
        const Case c{{heads, kv_heads, d}, options % 2 == 1, options / 2 % 2 == 1, options < 4};
        SCOPED_TRACE(std::to_string(heads) + " heads over " + std::to_string(kv_heads) + " of " +
                     std::to_string(d) + (c.bias ? ", bias" : "") + (c.norms ? ", norms" : "") +
                     (c.rotates ? "" : ", without positions"));
        Inputs in = inputsOf(c.heads);
        expectDefinitions(in, c, split(Number::kFloat32, in, c));
        for (float& x : in.qkv) x = kernels::fromBFloat16(kernels::toBFloat16(x));
        auto made = split(Number::kBFloat16, in, c);
        expectDefinitions(in, c, made);
        for (float& x : made[0]) x = kernels::fromBFloat16(kernels::toBFloat16(x));
        EXPECT_EQ(split(Number::kBFloat16, in, c, true), made);
      }
    }
  }
}

}  // namespace
}  // namespace allot
