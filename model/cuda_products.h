#pragma once
// Products of a step's rows with the weights, on a GPU: cuBLASLt, with sums in one order for each
// matrix, whatever the number of rows.
//
// The library picks another kernel for another number of rows, perhaps with sums in another order,
// and a row's bits must not depend on how many are beside it. So its first choice for kRowTile rows
// settles the bits, split of the inner dimension included. For more rows the first product tries
// what the library would take there, on random rows and the real matrix: the fastest algorithm that
// gives the same bits in every output is taken for that number of rows from then on
// (kernels/bench/NOTES.md). Private to model/. One thread.
#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "model/cuda_ops.h"

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
  // in float32. rows: a multiple of kRowTile. Starts kernels on `stream`; allocates nothing on the
  // device and waits for nothing, but for the first product of a matrix's shape with a number of
  // rows, unless the stream is being captured. A sentence if it cannot.
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
