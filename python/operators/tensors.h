#pragma once
// Tensors as what kernels/ takes: each is checked for dtype, device, sizes, strides and where it
// begins. What is refused is thrown as a Python ValueError of one sentence. Stateless, any thread.

// First: List.h, which the others include, needs it whole.
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

// Of whatever PyTorch: std's in newer ones, c10's in older ones.
using OptionalTensor = decltype(std::declval<const c10::IValue&>().toOptional<at::Tensor>());
using OptionalDouble = decltype(std::declval<const c10::IValue&>().toOptional<double>());

// Ends the call with "allot: " and this sentence.
[[noreturn]] void refuse(const std::string& sentence);
// Where there is one.
inline void refuseIf(const std::optional<std::string>& sentence) {
  if (sentence) refuse(*sentence);
}

// A size or argument as an int: refused below 0 or beyond 2^31 - 1.
int asInt(int64_t value, const char* name);

// Data of a contiguous tensor of this type, device and these sizes, of which -1 is any.
void* dataOf(const at::Tensor& tensor, const char* name, at::ScalarType type, at::Device device,
             std::initializer_list<int64_t> sizes);
template <typename T>
T* dataAs(const at::Tensor& tensor, const char* name, at::ScalarType type, at::Device device,
          std::initializer_list<int64_t> sizes) {
  return static_cast<T*>(dataOf(tensor, name, type, device, sizes));
}
// Words of 32 bits: int32 whose bits are taken as unsigned, or uint32 where PyTorch has it.
const uint32_t* wordsOf(const at::Tensor& tensor, const char* name, at::Device device,
                        std::initializer_list<int64_t> sizes);

// A cache as make_cache() gives it: keys, values, codes, scales, mean_keys, bounds, value_sums;
// those that it does not hold are empty. At most one shadow of keys, whose bits the sizes of
// `codes` say.
kernels::PagedKv cacheOf(at::TensorList cache);
at::Device deviceOf(at::TensorList cache);

// The stream that PyTorch launches on, of the thread and device.
kernels::cuda::Stream currentStream(at::Device device);

}  // namespace allot::bindings
