#pragma once
// Products of a step's rows with the weights, on a GPU: one algorithm of cuBLASLt for each matrix,
// whatever the number of rows.
//
// The library picks another kernel, with sums in another order, for another number of rows, and a
// row's bits must not depend on how many are beside it. So its first choice for kRowTile rows is
// made for good, split of the inner dimension included: a sum's order then follows from it alone.
// Measured on an H200 (kernels/bench/RESULTS.md): 192 rows take 1.4 to 2 times as long as 64, not
// three times, since the weights are read once. Private to worker/model/. One thread.
#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "worker/model/cuda_ops.h"

namespace allot {

// A matrix [inner, outer] as it lies: element (k, n) at k * outer + n, or transposed at
// n * inner + k.
struct ProductMatrix {
  const void* data = nullptr;
  int64_t inner = 0, outer = 0;
  bool transposed = false;
};

class CudaProducts {
 public:
  // Rows come in whole tiles of so many.
  static constexpr int64_t kRowTile = 64;

  // What goes wrong is said by multiply().
  CudaProducts();
  ~CudaProducts();
  CudaProducts(const CudaProducts&) = delete;
  CudaProducts& operator=(const CudaProducts&) = delete;

  // out [rows, outer] of out_number = in [rows, inner] times the matrix, both of `number`, summed
  // in float32. rows: a multiple of kRowTile. Starts kernels on `stream`, allocates nothing on the
  // device and waits for nothing. A sentence if it cannot.
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
