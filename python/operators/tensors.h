#pragma once
// Checks tensors for dtype, device, sizes, strides and alignment, and returns them as the pointers
// that kernels/ takes. A refusal throws a Python ValueError of one sentence. Stateless, any thread.

// Included first: List.h, which the others include, needs the whole IValue.
#include <ATen/core/ivalue.h>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "allot/kernels/cuda_decode.h"
#include "allot/kernels/paged_kv.h"

namespace allot::bindings {

// std::optional in newer versions of PyTorch, c10::optional in older ones.
using OptionalTensor = decltype(std::declval<const c10::IValue&>().toOptional<at::Tensor>());
using OptionalDouble = decltype(std::declval<const c10::IValue&>().toOptional<double>());

// Throws a ValueError: "allot: " and the sentence.
[[noreturn]] void refuse(const std::string& sentence);
// Calls refuse() if there is a sentence.
inline void refuseIf(const std::optional<std::string>& sentence) {
  if (sentence) refuse(*sentence);
}

// Returns a size or argument as an int. Refuses numbers below 0 or beyond 2^31 - 1.
int asInt(int64_t value, const char* name);

// Returns the data of a contiguous tensor. Refuses another type, device or size (-1: any size), and
// data at an address that is no multiple of an element's size.
void* dataOf(const at::Tensor& tensor, const char* name, at::ScalarType type, at::Device device,
             std::initializer_list<int64_t> sizes);
template <typename T>
T* dataAs(const at::Tensor& tensor, const char* name, at::ScalarType type, at::Device device,
          std::initializer_list<int64_t> sizes) {
  return static_cast<T*>(dataOf(tensor, name, type, device, sizes));
}
// Returns 32-bit words, with the checks of dataOf(): int32, whose bits are taken as unsigned, or
// uint32.
const uint32_t* wordsOf(const at::Tensor& tensor, const char* name, at::Device device,
                        std::initializer_list<int64_t> sizes);

// Returns the cache of make_cache()'s list, and its device: keys, values, codes, scales, mean_keys,
// bounds, value_sums. Parts that the cache does not hold are empty. There is at most one shadow;
// its bits follow from the sizes of `codes`. Refuses other types, devices and sizes.
std::pair<kernels::PagedKv, at::Device> cacheOf(at::TensorList cache);

// Refuse heads that are 0 or no multiple of the KV heads, and pages of partial tiles of 16 keys.
void expectHeads(int64_t heads, int kv_heads);
void expectWholeTiles(int64_t page_size);

// Returns PyTorch's current stream of this thread on a GPU; null in a build without CUDA.
kernels::cuda::Stream currentStream(at::Device device);

}  // namespace allot::bindings
