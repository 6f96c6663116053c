#include "model/cuda_products.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

namespace allot {
namespace {

// Enough for the parts of a split product of kMostRows rows, 8 parts and 4096 outputs.
constexpr size_t kWorkspaceBytes = size_t{64} << 20;
// Of one call; more are several, by the same algorithm.
constexpr int64_t kMostRows = 512;
// Of the library's choices for a number of rows, those that are tried, and how often each is timed.
constexpr int kMostChoices = 8;
constexpr int kTimedRuns = 5;
// Another algorithm is taken for at least so much less time.
constexpr float kWorthwhile = 0.97f;

cudaDataType typeOf(cuda_ops::Number number) {
  return number == cuda_ops::Number::kFloat32 ? CUDA_R_32F : CUDA_R_16BF;
}

size_t sizeOf(cuda_ops::Number number) { return number == cuda_ops::Number::kFloat32 ? 4 : 2; }

// What a call of the library is made with.
struct Call {
  cublasLtHandle_t handle;
  const void* matrix;
  void* out;
  void* workspace;
  cudaStream_t stream;
};

// An object of a library, destroyed with it.
template <typename T, auto Destroy>
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
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;

// Device memory, or null where there is none.
class Scratch {
 public:
  explicit Scratch(size_t bytes) {
    if (cudaMalloc(&data_, bytes) == cudaSuccess) return;
    cudaGetLastError();  // forgets it
    data_ = nullptr;
  }
  ~Scratch() { cudaFree(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

bool isCaptured(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess) {
    return status != cudaStreamCaptureStatusNone;
  }
  cudaGetLastError();  // forgets it
  return true;
}

// Numbers of several magnitudes, whose sums round.
std::vector<uint8_t> randomNumbers(cuda_ops::Number number, int64_t count) {
  const size_t size = sizeOf(number);
  std::vector<uint8_t> bytes(static_cast<size_t>(count) * size);
  uint32_t state = 1;
  for (size_t i = 0; i < bytes.size(); i += size) {
    state = state * 1664525u + 1013904223u;
    // A sign, an exponent of 2^-7 to 1 and a fraction; bfloat16 is the upper half of it.
    const uint32_t bits = (state & 0x807fffffu) | (120 + (state >> 28 & 7)) << 23;
    std::memcpy(bytes.data() + i, reinterpret_cast<const uint8_t*>(&bits) + 4 - size, size);
  }
  return bytes;
}

// The kernel of `one` with its inner dimension split as `other` has it.
cublasLtMatmulAlgo_t splitAs(cublasLtMatmulAlgo_t one, const cublasLtMatmulAlgo_t& other) {
  for (const auto attribute :
       {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME}) {
    uint32_t value = 0;
    size_t written = 0;
    if (cublasLtMatmulAlgoConfigGetAttribute(&other, attribute, &value, sizeof value, &written) ==
        CUBLAS_STATUS_SUCCESS) {
      cublasLtMatmulAlgoConfigSetAttribute(&one, attribute, &value, sizeof value);
    }
  }
  return one;
}

}  // namespace

// The library's matrices lie by columns: out, of shape [outer, rows] there, is the matrix times in.
struct CudaProducts::Plan {
  struct Rows {
    Layout in, out;
    cublasLtMatmulAlgo_t algorithm{};
    bool tried = false;  // what is fastest for so many
  };

  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> product;
  Layout matrix;
  Preference preference;
  std::map<int64_t, Rows> rows;
  cublasLtMatmulAlgo_t algorithm{};  // which settles the bits
  int64_t most_rows = 0;             // of one call
  std::string refusal;

  // Null: there is no room.
  Rows* rowsOf(const Key& key, int64_t count) {
    const auto& [number, out_number, inner, outer, transposed] = key;
    if (const auto found = rows.find(count); found != rows.end()) return &found->second;
    Rows& made = rows[count];
    made.algorithm = algorithm;
    if (cublasLtMatrixLayoutCreate(made.in.put(), typeOf(number), static_cast<uint64_t>(inner),
                                   static_cast<uint64_t>(count), inner) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatrixLayoutCreate(made.out.put(), typeOf(out_number), static_cast<uint64_t>(outer),
                                   static_cast<uint64_t>(count), outer) == CUBLAS_STATUS_SUCCESS) {
      return &made;
    }
    rows.erase(count);
    return nullptr;
  }

  // What the library would take, best first.
  std::vector<cublasLtMatmulAlgo_t> choices(cublasLtHandle_t handle, const Rows& of, int most) {
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
    int count = 0;
    cublasLtMatmulAlgoGetHeuristic(handle, product.get(), matrix.get(), of.in.get(), of.out.get(),
                                   of.out.get(), preference.get(), most, found.data(), &count);
    std::vector<cublasLtMatmulAlgo_t> made;
    for (int i = 0; i < count; ++i) made.push_back(found[static_cast<size_t>(i)].algo);
    return made;
  }

  bool takes(cublasLtHandle_t handle, const Rows& of, const cublasLtMatmulAlgo_t& one) {
    cublasLtMatmulHeuristicResult_t checked{};
    return cublasLtMatmulAlgoCheck(handle, product.get(), matrix.get(), of.in.get(), of.out.get(),
                                   of.out.get(), &one, &checked) == CUBLAS_STATUS_SUCCESS &&
           checked.workspaceSize <= kWorkspaceBytes;
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
        cublasLtMatmulPreferenceCreate(preference.put()) ||
        cublasLtMatmulPreferenceSetAttribute(preference.get(),
                                             CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kWorkspaceBytes, sizeof kWorkspaceBytes)) {
      return false;
    }
    Rows* const tile = rowsOf(key, kRowTile);
    if (!tile) return false;
    const auto chosen = choices(handle, *tile, 1);
    if (chosen.empty()) return false;
    algorithm = tile->algorithm = chosen.front();
    // As many rows at once as the workspace has room for.
    for (most_rows = kMostRows; most_rows > kRowTile; most_rows /= 2) {
      const Rows* const wide = rowsOf(key, most_rows);
      if (!wide) return false;
      if (takes(handle, *wide, algorithm)) break;
    }
    return true;
  }

  // Finds the fastest algorithm of `count` rows that gives the same bits as the one for kRowTile.
  // Waits, and writes anything to out; leaves everything as it was where there is no memory.
  void tryOthers(const Call& call, const Key& key, int64_t count, Rows* of) {
    const auto& [number, out_number, inner, outer, transposed] = key;
    const Scratch in(static_cast<size_t>(count * inner) * sizeOf(number));
    const Scratch other(static_cast<size_t>(count * outer) * sizeOf(out_number));
    const Scratch differ(sizeof(uint32_t));
    Event begin, end;
    if (!in.get() || !other.get() || !differ.get() || cudaEventCreate(begin.put()) ||
        cudaEventCreate(end.put())) {
      return;
    }
    const auto numbers = randomNumbers(number, count * inner);
    cudaMemcpyAsync(in.get(), numbers.data(), numbers.size(), cudaMemcpyHostToDevice, call.stream);
    const auto run = [&](const cublasLtMatmulAlgo_t& one, void* out) {
      return multiply(call, one, *of, in.get(), out) == CUBLAS_STATUS_SUCCESS;
    };
    const auto timeOf = [&](const cublasLtMatmulAlgo_t& one) {
      float ms = std::numeric_limits<float>::infinity();
      cudaEventRecord(begin.get(), call.stream);
      for (int i = 0; i < kTimedRuns; ++i) run(one, other.get());
      cudaEventRecord(end.get(), call.stream);
      if (cudaEventSynchronize(end.get()) == cudaSuccess) {
        cudaEventElapsedTime(&ms, begin.get(), end.get());
      }
      return ms;
    };
    const auto sameBits = [&](const cublasLtMatmulAlgo_t& one) {
      uint32_t count_different = 1;
      if (!run(one, other.get())) return false;
      cudaMemsetAsync(differ.get(), 0, sizeof(uint32_t), call.stream);
      cuda_ops::countDifferent(out_number, call.out, other.get(), count * outer,
                               static_cast<uint32_t*>(differ.get()), call.stream);
      cudaMemcpyAsync(&count_different, differ.get(), sizeof count_different,
                      cudaMemcpyDeviceToHost, call.stream);
      return cudaStreamSynchronize(call.stream) == cudaSuccess && count_different == 0;
    };
    if (!run(algorithm, call.out) || !run(algorithm, other.get())) return;
    float best = timeOf(algorithm);
    for (const cublasLtMatmulAlgo_t& choice : choices(call.handle, *of, kMostChoices)) {
      for (const cublasLtMatmulAlgo_t& one : {choice, splitAs(choice, algorithm)}) {
        if (!takes(call.handle, *of, one) || !sameBits(one)) continue;
        if (const float ms = timeOf(one); ms < kWorthwhile * best) {
          best = ms;
          of->algorithm = one;
        }
        break;
      }
    }
  }

  cublasStatus_t multiply(const Call& call, const cublasLtMatmulAlgo_t& one, const Rows& of,
                          const void* in, void* out) {
    const float alpha = 1, beta = 0;
    return cublasLtMatmul(call.handle, product.get(), &alpha, call.matrix, matrix.get(), in,
                          of.in.get(), &beta, out, of.out.get(), out, of.out.get(), &one,
                          call.workspace, kWorkspaceBytes, call.stream);
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
    Plan::Rows* const of = plan->rowsOf(key, count);
    if (!of) return "cuBLASLt finds no room for a layout";
    const auto* from = static_cast<const uint8_t*>(in) +
                       static_cast<size_t>(first * matrix.inner) * sizeOf(number);
    auto* to =
        static_cast<uint8_t*>(out) + static_cast<size_t>(first * matrix.outer) * sizeOf(out_number);
    const Call call{handle_, matrix.data, to, workspace_, stream};
    if (count > kRowTile && !of->tried && !isCaptured(stream)) {
      of->tried = true;
      plan->tryOthers(call, key, count, of);
    }
    const cublasStatus_t status = plan->multiply(call, of->algorithm, *of, from, to);
    if (status != CUBLAS_STATUS_SUCCESS) {
      return std::string("cuBLASLt: ") + cublasLtGetStatusString(status);
    }
    first += count;
  }
  return {};
}

}  // namespace allot
