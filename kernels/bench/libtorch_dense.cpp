#include "kernels/bench/libtorch_dense.h"

// IValue first: clang sees it used incomplete otherwise.
#include <ATen/core/ivalue.h>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <torch/version.h>

#include <cmath>

#include "kernels/bench/rotating_cache.h"

// OpenBLAS has threads of its own, which LibTorch does not set. Absent with another BLAS.
extern "C" __attribute__((weak)) void openblas_set_num_threads(int threads);

namespace allot::bench {

namespace {

// All are [heads, queries or keys, head dimension]. LibTorch 2 made the function public.
at::Tensor attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values) {
#if TORCH_VERSION_MAJOR >= 2
  return at::scaled_dot_product_attention(queries, keys, values);
#else
  return std::get<0>(at::_scaled_dot_product_attention(queries, keys, values));
#endif
}

}  // namespace

struct LibTorchDense::Impl {
  struct Layer {
    at::Tensor keys, values;  // [KV heads, n, head dimension]
    at::Tensor transposed;    // [KV heads, head dimension, n]
  };
  std::vector<Memory> memory;
  std::vector<Layer> layers;
  at::ScalarType type = at::kFloat;
  size_t turn = 0;

  at::Tensor allocate(at::IntArrayRef shape) {
    const size_t count = static_cast<size_t>(c10::multiply_integers(shape));
    memory.emplace_back(count * at::elementSize(type));
    return at::from_blob(memory.back().data(), shape, at::TensorOptions().dtype(type));
  }
};

LibTorchDense::LibTorchDense(int n, bool bfloat16, int layers) : impl_(std::make_unique<Impl>()) {
  impl_->type = bfloat16 ? at::kBFloat16 : at::kFloat;
  const c10::InferenceMode guard;
  const at::Tensor numbers = at::empty({kKvHeads, n, kHeadDim});
  for (int layer = 0; layer < layers; ++layer) {
    Impl::Layer made{impl_->allocate({kKvHeads, n, kHeadDim}),
                     impl_->allocate({kKvHeads, n, kHeadDim}),
                     impl_->allocate({kKvHeads, kHeadDim, n})};
    fillNormal(numbers.data_ptr<float>(), static_cast<size_t>(numbers.numel()), 2 * layer);
    made.keys.copy_(numbers);
    made.transposed.copy_(numbers.transpose(1, 2));
    fillNormal(numbers.data_ptr<float>(), static_cast<size_t>(numbers.numel()), 2 * layer + 1);
    made.values.copy_(numbers);
    impl_->layers.push_back(made);
  }
}

LibTorchDense::~LibTorchDense() = default;

void LibTorchDense::setThreads(int threads) {
  at::set_num_threads(threads);
  if (openblas_set_num_threads) openblas_set_num_threads(threads);
}

const std::vector<std::string>& LibTorchDense::ways() {
  static const std::vector<std::string> names = {"sdpa, heads repeated", "sdpa, heads grouped",
                                                 "matmul, keys transposed", "mm a KV head"};
  return names;
}

float LibTorchDense::step(size_t way, const float* queries) {
  const c10::InferenceMode guard;
  const Impl::Layer& layer = impl_->layers[impl_->turn++ % impl_->layers.size()];
  constexpr int kGroup = kHeads / kKvHeads;
  const float scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
  const at::Tensor query =
      at::from_blob(const_cast<float*>(queries), {kKvHeads, kGroup, kHeadDim}, at::kFloat)
          .to(impl_->type);
  at::Tensor out;
  switch (way) {
    case 0: {
      const auto repeated = [&](const at::Tensor& x) {
        return x.unsqueeze(1)
            .expand({kKvHeads, kGroup, x.size(1), kHeadDim})
            .reshape({kHeads, x.size(1), kHeadDim});
      };
      out = attention(query.view({kHeads, 1, kHeadDim}), repeated(layer.keys),
                      repeated(layer.values));
      break;
    }
    case 1:
      // The heads of a group as if they were consecutive queries: each key is read once.
      out = attention(query, layer.keys, layer.values);
      break;
    case 2:
      out = at::bmm(at::bmm(query * scale, layer.transposed).softmax(-1), layer.values);
      break;
    default: {
      std::vector<at::Tensor> parts;
      for (int h = 0; h < kKvHeads; ++h) {
        const at::Tensor scores = at::mm(query[h] * scale, layer.keys[h].t());
        parts.push_back(at::mm(scores.softmax(-1), layer.values[h]));
      }
      out = at::stack(parts);
    }
  }
  return out.reshape({-1})[0].item<float>();
}

std::string LibTorchDense::version() {
  return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR);
}

}  // namespace allot::bench
