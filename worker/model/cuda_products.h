#pragma once
// CudaProducts: products of a step's rows with the weights on a GPU, by one algorithm of cuBLASLt
// for each matrix shape. One thread. Private to worker/model/.
//
// The library picks its kernel by the number of rows, and kernels differ in the order of their
// sums. The bits of a row must not depend on the number of other rows. So the library's first
// choice for kRowTile rows is kept for good, the split of the inner dimension included. That choice
// alone decides the order of a sum. Measured on an H200 (kernels/bench/RESULTS.md): 192 rows take
// 1.4 to 2 times as long as 64, not three times, since the weights are read once.
#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "worker/model/cuda_ops.h"

namespace allot {

// A matrix [inner, outer]. Element (k, n) is at k * outer + n, or if transposed at n * inner + k.
struct ProductMatrix {
  const void* data = nullptr;
  int64_t inner = 0, outer = 0;
  bool transposed = false;
};

class CudaProducts {
 public:
  // Rows come in whole tiles of this many.
  static constexpr int64_t kRowTile = 64;

  // Errors of the constructor are returned by multiply().
  CudaProducts();
  ~CudaProducts();
  CudaProducts(const CudaProducts&) = delete;
  CudaProducts& operator=(const CudaProducts&) = delete;

  // Computes out = in times the matrix, summed in float32. in: [rows, inner] and the matrix are of
  // `number`, out: [rows, outer] of out_number. Starts kernels on `stream`, allocates nothing on
  // the device and waits for nothing. Returns a sentence if it fails. All calls share a workspace.
  // Requires: rows is a multiple of kRowTile; products are in one stream at a time.
  [[nodiscard]] std::optional<std::string> multiply(cuda_ops::Number number, const void* in,
                                                    int64_t rows, const ProductMatrix& matrix,
                                                    cuda_ops::Number out_number, void* out,
                                                    cudaStream_t stream);

 private:
  struct Plan;
  using Key = std::tuple<cuda_ops::Number, cuda_ops::Number, int64_t, int64_t, bool>;

  Plan* planFor(const Key& key);

  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace allot
