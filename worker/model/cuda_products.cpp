#include "worker/model/cuda_products.h"

#include <cuda_runtime_api.h>

#include <algorithm>

namespace allot {
namespace {

// Enough for the parts of a split product of kMostRows rows, 8 parts and 4096 outputs.
constexpr size_t kWorkspaceBytes = size_t{64} << 20;
// Most rows of one cuBLASLt call. More rows take several calls of the same algorithm.
constexpr int64_t kMostRows = 512;

cudaDataType typeOf(cuda_ops::Number number) {
  return number == cuda_ops::Number::kFloat32 ? CUDA_R_32F : CUDA_R_16BF;
}

size_t sizeOf(cuda_ops::Number number) { return number == cuda_ops::Number::kFloat32 ? 4 : 2; }

// Owns an object of the library.
template <typename T, cublasStatus_t (*Destroy)(T)>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (object_) Destroy(object_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  T* put() { return &object_; }
  T get() const { return object_; }

 private:
  T object_ = nullptr;
};

using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

}  // namespace

// The library's matrices are column-major: out has the shape [outer, rows] there.
struct CudaProducts::Plan {
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> product;
  Layout matrix;
  std::map<int64_t, std::pair<Layout, Layout>> sides;  // of in and out, by rows
  cublasLtMatmulAlgo_t algorithm{};
  int64_t most_rows = 0;  // of one call
  std::string refusal;

  bool makeSides(const Key& key, int64_t rows) {
    const auto& [number, out_number, inner, outer, transposed] = key;
    if (sides.contains(rows)) return true;
    auto& [in, out] = sides[rows];
    const bool made =
        cublasLtMatrixLayoutCreate(in.put(), typeOf(number), static_cast<uint64_t>(inner),
                                   static_cast<uint64_t>(rows), inner) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatrixLayoutCreate(out.put(), typeOf(out_number), static_cast<uint64_t>(outer),
                                   static_cast<uint64_t>(rows), outer) == CUBLAS_STATUS_SUCCESS;
    if (!made) sides.erase(rows);
    return made;
  }

  bool make(cublasLtHandle_t handle, const Key& key) {
    const auto& [number, out_number, inner, outer, transposed] = key;
    const cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const auto rows_there = static_cast<uint64_t>(transposed ? inner : outer);
    const auto columns_there = static_cast<uint64_t>(transposed ? outer : inner);
    if (cublasLtMatmulDescCreate(product.put(), CUBLAS_COMPUTE_32F, CUDA_R_32F) ||
        cublasLtMatmulDescSetAttribute(product.get(), CUBLASLT_MATMUL_DESC_TRANSA, &operation,
                                       sizeof operation) ||
        cublasLtMatrixLayoutCreate(matrix.put(), typeOf(number), rows_there, columns_there,
                                   static_cast<int64_t>(rows_there)) ||
        !makeSides(key, kRowTile)) {
      return false;
    }
    Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference;
    if (cublasLtMatmulPreferenceCreate(preference.put()) ||
        cublasLtMatmulPreferenceSetAttribute(preference.get(),
                                             CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kWorkspaceBytes, sizeof kWorkspaceBytes)) {
      return false;
    }
    cublasLtMatmulHeuristicResult_t chosen{};
    int found = 0;
    const auto& [in, out] = sides.at(kRowTile);
    if (cublasLtMatmulAlgoGetHeuristic(handle, product.get(), matrix.get(), in.get(), out.get(),
                                       out.get(), preference.get(), 1, &chosen, &found) ||
        found == 0) {
      return false;
    }
    algorithm = chosen.algo;
    // As many rows at once as the workspace has room for.
    for (most_rows = kMostRows; most_rows > kRowTile; most_rows /= 2) {
      if (!makeSides(key, most_rows)) return false;
      const auto& [wide_in, wide_out] = sides.at(most_rows);
      cublasLtMatmulHeuristicResult_t checked{};
      if (cublasLtMatmulAlgoCheck(handle, product.get(), matrix.get(), wide_in.get(),
                                  wide_out.get(), wide_out.get(), &algorithm,
                                  &checked) == CUBLAS_STATUS_SUCCESS &&
          checked.workspaceSize <= kWorkspaceBytes) {
        break;
      }
    }
    return true;
  }
};

CudaProducts::CudaProducts() {
  cublasLtCreate(&handle_);
  if (cudaMalloc(&workspace_, kWorkspaceBytes) != cudaSuccess) {
    cudaGetLastError();  // forgets it
    workspace_ = nullptr;
  }
}

CudaProducts::~CudaProducts() {
  plans_.clear();
  if (handle_) cublasLtDestroy(handle_);
  cudaFree(workspace_);
}

CudaProducts::Plan* CudaProducts::planFor(const Key& key) {
  auto& plan = plans_[key];
  if (!plan) {
    plan = std::make_unique<Plan>();
    if (!plan->make(handle_, key)) plan->refusal = "cuBLASLt has no product of this model's shape";
  }
  return plan.get();
}

std::optional<std::string> CudaProducts::multiply(cuda_ops::Number number, const void* in,
                                                  int64_t rows, const ProductMatrix& matrix,
                                                  cuda_ops::Number out_number, void* out,
                                                  cudaStream_t stream) {
  if (!handle_ || !workspace_) {
    return "cuBLASLt finds no room for its workspace: lower --kv-memory";
  }
  const Key key{number, out_number, matrix.inner, matrix.outer, matrix.transposed};
  Plan* const plan = planFor(key);
  if (!plan->refusal.empty()) return plan->refusal;
  for (int64_t first = 0; first < rows;) {
    const int64_t count = std::min(rows - first, plan->most_rows);
    if (!plan->makeSides(key, count)) return "cuBLASLt finds no room for a layout";
    const auto& [in_side, out_side] = plan->sides.at(count);
    const float one = 1, zero = 0;
    const auto* from = static_cast<const uint8_t*>(in) +
                       static_cast<size_t>(first * matrix.inner) * sizeOf(number);
    auto* to =
        static_cast<uint8_t*>(out) + static_cast<size_t>(first * matrix.outer) * sizeOf(out_number);
    const cublasStatus_t status =
        cublasLtMatmul(handle_, plan->product.get(), &one, matrix.data, plan->matrix.get(), from,
                       in_side.get(), &zero, to, out_side.get(), to, out_side.get(),
                       &plan->algorithm, workspace_, kWorkspaceBytes, stream);
    if (status != CUBLAS_STATUS_SUCCESS) {
      return std::string("cuBLASLt: ") + cublasLtGetStatusString(status);
    }
    first += count;
  }
  return {};
}

}  // namespace allot
