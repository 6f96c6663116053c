#pragma once
// What the CPU says of a step of the GPU's: draws from the same scores, and outputs and statistics
// from the draws that the GPU made.
#include <vector>

#include "tests/gpu/gpu_fixture.h"

namespace allot::kernels {

// One head's scores as the CPU has them for this method (a shadow's, where it reads one, or those
// of bernoulli's query), bias included.
std::vector<float> cpuScores(const MethodOptions& method, const Cache& cache, int row, int head);
// What the CPU chooses for a head of a row that draws, of a group if the method draws for groups;
// nothing if every key is masked.
Selection cpuSelection(const MethodOptions& method, const Cache& cache, int row, int head);

std::vector<uint32_t> countsOf(const HeadDraws& draws, int n);
uint64_t drawsIn(const Selection& chosen);  // the sum of its counts
// Draws that fall on other keys: half the sum of the counts' differences.
int movedDraws(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b);

// How many of a head's draws are to be expected on other keys because the GPU's weights are float16
// numbers: for each key's end, the draws between where it is and where those weights put it.
double expectedMoves(const MethodOptions& method, const Cache& cache, int row, int head);

// Gaps k for which the CPU's integer weights of scores 0 and -k ln 2 are 2^30 and 2^(30 - k).
std::vector<int> exactGaps();
// Scores whose weights are powers of two on the CPU and the GPU: queries of zero, and a bias.
enum class Coarse { kEqual, kGaps, kMasked, kOneHeavy };
constexpr Coarse kAllCoarse[] = {Coarse::kEqual, Coarse::kGaps, Coarse::kMasked, Coarse::kOneHeavy};
void makeCoarse(Cache* cache, Coarse kind, uint64_t seed);

// |x - y| / |y|, of lists that start at x and y; 0 if both are 0.
// Calls visit(row, head) for every head of every row, up to the first that fails fatally.
template <typename Visit>
void forEachHead(const Cache& cache, const Visit& visit) {
  for (int i = 0; i < cache.rows() * cache.shape.heads; ++i) {
    const int row = i / cache.shape.heads, head = i % cache.shape.heads;
    SCOPED_TRACE(testing::Message() << "row " << row << ", n " << cache.lengths[row] << ", S "
                                    << cache.budgets[row] << ", head " << head);
    visit(row, head);
    if (testing::Test::HasFatalFailure()) return;
  }
}

double relativeDistance(const float* x, const double* y, int count);

// The output is the weighted sum of the draws, to `tolerance` (relative).
void expectOutputsFollowDraws(const Cache& cache, const GpuResult& run, const MethodOptions& method,
                              double tolerance = 1e-4);
// All statistics are what the draws say, for a cache of `element`.
void expectStatisticsFollowDraws(const Cache& cache, const GpuResult& run,
                                 const MethodOptions& method, Element element);
// Both.
void expectFollowsDraws(const Cache& cache, const GpuResult& run, const MethodOptions& method,
                        Element element);
// Equal statistics; means of weights to 1e-3.
void expectStatistics(const Cache::Result& gpu, const Cache::Result& expected);

// log sum_j exp(s_j), exact in double, of every row and head that has scores to be added up.
void expectLse(const Cache& cache, const Cache::Result& run, const MethodOptions& method);

}  // namespace allot::kernels
