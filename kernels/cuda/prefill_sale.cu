// SALE's selection (kernels/cpu/select_sale.cpp). Means and thresholds are sums in another order
// than the CPU's, rounded to float32. Lists are the CPU's unless this rounding decides: all else
// has the CPU's operations, and products of codes are whole numbers.
#include "kernels/cuda/prefill_keys.cuh"
#include "kernels/cuda/prefill_sale_reach.cuh"

namespace allot::kernels::cuda {
namespace {

// Writes the thresholds of 64 queries of one head, from the first block of keys and the local ones.
// Scores are products with the keys as they are, of queries in `Parts` bfloat16 terms; the product
// with the mean key, which codes are without, is taken from the threshold.
template <int D, int Parts>
__global__ void __launch_bounds__(128, 3)
    findThresholds(const PromptChunk chunk, const SaleChunk sale) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const int head = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y);
  const int kv_head = head / (chunk.heads / chunk.kv_heads);
  const int begin = blockBegin(chunk, b), end = blockEnd(chunk, b);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int seen = saleBlocksSeen(end);
  if (keepsAll(sale, head, seen)) return;
  const int local = (seen - localBlocks(seen)) * kSaleBlock;  // the first key of the local blocks
  const int row = (firstBlock(chunk) + b) * kQueryBlock + warp * 16;
  QueryTile<D, Parts> queries;
  queries.load(chunk, head, row, lane);
  const int g = lane / 4, t = lane % 4;
  // Products of rows g and g + 8 with the mean key, of this thread's channels.
  float of_mean[2] = {0, 0};
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 mean = *reinterpret_cast<const float2*>(sale.key_means + kv_head * D + 16 * k +
                                                           i / 2 * 8 + 2 * t);
#pragma unroll
      for (int part = Parts - 1; part >= 0; --part) {
        const float2 query = ElementOf<Cached>::pair(queries.at[part][k][i]);
        of_mean[i % 2] = fmaf(query.x, mean.x, fmaf(query.y, mean.y, of_mean[i % 2]));
      }
    }
  }
  RunningSum sums;
  bool outside = false;  // such keys are zeros in the codes, too, and attention reports the page
  const auto add = [&](uint32_t tile, const TilePlaces& places) {
    float scores[8][4];
    queries.score(tile, lane, scores);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = row + g + 8 * half, oldest = oldestOf(chunk, position);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = places.position(n, t) + i;
          const bool counts =
              (key < kSaleBlock || key >= local) && key <= position && key >= oldest;
          if (!counts) scores[n][2 * half + i] = minusInfinity();
        }
      }
    }
    sums.add(scores, chunk.scale * kLog2E);
  };
  const auto addTiles = [&](int from, int to) {
    forEachTile<D, 128>(chunk, kv_head, from, to, chunkEnd(chunk), sharedAddress(shared), &outside,
                        add);
  };
  addTiles(0, 1);
  addTiles(local / kTileKeys64, (end - 1) / kTileKeys64 + 1);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float top = sums.top[half];  // of the row
    const float sum = sumOfRow(sums.sum[half]), mean = sumOfRow(of_mean[half]);
    const int position = row + g + 8 * half;
    if (t != 0 || position < begin || position >= end) continue;
    const int at = position - firstBlock(chunk) * kQueryBlock;
    const double log_sum = log(static_cast<double>(sale.tau[head]) * static_cast<double>(sum));
    const double log_top = static_cast<double>(top) * static_cast<double>(kLn2);
    const double of_mean_key = static_cast<double>(chunk.scale) * static_cast<double>(mean);
    const auto threshold = static_cast<float>(log_top + log_sum - of_mean_key);
    if (!isNumber(threshold)) report(chunk, PromptWrong::kScore, head, begin / kQueryBlock);
    sale.thresholds[static_cast<int64_t>(head) * sale.rows + at] = threshold;
  }
}

template <int D>
void launchReached(const PromptChunk& chunk, const SaleChunk& sale, unsigned blocks, bool on_hopper,
                   cudaStream_t stream) {
  const auto words = static_cast<size_t>(sale.words) * sizeof(uint32_t);
  if constexpr (D == 128) {
    if (on_hopper) {
      using Shared = SaleShared<D>;
      const size_t bytes = sizeof(Shared) + Shared::kRows * words;
      cudaFuncSetAttribute(findReachedOnHopper<D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes));
      const auto rows = static_cast<unsigned>(chunk.heads / chunk.kv_heads) * blocks;
      const unsigned parts = (rows + Shared::kRows - 1) / Shared::kRows;
      findReachedOnHopper<D>
          <<<static_cast<unsigned>(chunk.kv_heads) * parts, kReachThreads, bytes, stream>>>(chunk,
                                                                                            sale);
      return;
    }
  }
  constexpr int kBlocks = 2;
  const size_t bytes = 2 * sizeof(SaleStage<D, 1>) + kBlocks * words;
  cudaFuncSetAttribute(findReached<D, kBlocks>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(bytes));
  findReached<D, kBlocks>
      <<<dim3(static_cast<unsigned>(chunk.heads), (blocks + kBlocks - 1) / kBlocks), kBlocks * 128,
         bytes, stream>>>(chunk, sale);
}

template <int D>
void launch(const PromptChunk& chunk, const SaleChunk& sale, bool on_hopper, cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(chunk.heads);
  const auto kv_heads = static_cast<unsigned>(chunk.kv_heads);
  const auto splits = static_cast<unsigned>(sale.splits);
  const int end = chunk.first + chunk.count;
  const int oldest =
      chunk.window > 0 && chunk.first >= chunk.window ? chunk.first + 1 - chunk.window : 0;
  const auto blocks =
      static_cast<unsigned>((end - 1) / kQueryBlock - chunk.first / kQueryBlock + 1);
  if (!sale.all) {
    sumQueries<D><<<dim3(heads, splits), D, 0, stream>>>(chunk, sale);
    takeMeans<D><<<heads, D, 0, stream>>>(sale, chunk.count, sale.query_means);
    sumKeys<D><<<dim3(kv_heads, splits), 128, 0, stream>>>(chunk, sale);
    takeMeans<D><<<kv_heads, D, 0, stream>>>(sale, end - oldest, sale.key_means);
    const auto key_blocks = static_cast<unsigned>((end - 1) / kSaleBlock - oldest / kSaleBlock + 1);
    codeKeys<D><<<dim3(key_blocks, kv_heads), 128, 0, stream>>>(chunk, sale);
    codeQueries<D><<<dim3(4 * blocks, heads), 128, 0, stream>>>(chunk, sale);
    constexpr int kBytes = 2 * SharedTile<D>::kBytes;
    const auto find = chunk.queries ? findThresholds<D, 2> : findThresholds<D, 1>;
    find<<<dim3(heads, blocks), 128, kBytes, stream>>>(chunk, sale);
  }
  launchReached<D>(chunk, sale, blocks, on_hopper, stream);
}

}  // namespace

void launchSale(const PromptChunk& chunk, const SaleChunk& sale, int head_dim, bool on_hopper,
                cudaStream_t stream) {
  head_dim == 64 ? launch<64>(chunk, sale, on_hopper, stream)
                 : launch<128>(chunk, sale, on_hopper, stream);
}

}  // namespace allot::kernels::cuda
