#include "python/operators/tensors.h"

#include <ATen/core/ivalue.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace allot::bindings {
namespace {

using kernels::Element;

enum Part { kKeys, kValues, kCodes, kScales, kMeanKeys, kBounds, kValueSums, kParts };

// Returns Python's name of the type, without "torch.".
std::string wordFor(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kByte:
      return "uint8";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    default:
      return c10::toString(type);
  }
}

template <typename Sizes>
std::string wordsFor(const Sizes& sizes) {
  std::string text = "[";
  for (const int64_t size : sizes) {
    if (text.size() > 1) text += ", ";
    text += size < 0 ? "any" : std::to_string(size);
  }
  return text + "]";
}

void expectPlace(const at::Tensor& tensor, const char* name, at::Device device) {
  if (!tensor.defined()) refuse(std::string(name) + " is missing");
  if (tensor.device() != device) {
    refuse(std::string(name) + " is on " + tensor.device().str() + ", but the cache is on " +
           device.str());
  }
}

// Returns a tensor's data. Refuses an address that is no multiple of an element's size, which
// memory of another library may have. Functions for GPUs check larger multiples themselves.
void* beginOf(const at::Tensor& tensor, const char* name) {
  void* const data = tensor.data_ptr();
  const auto size = static_cast<uintptr_t>(tensor.element_size());
  if (reinterpret_cast<uintptr_t>(data) % size != 0) {
    refuse(std::string("the data of ") + name +
           " begin at an address that is no multiple of an element's " + std::to_string(size) +
           " bytes: pass a copy");
  }
  return data;
}

void expectShape(const at::Tensor& tensor, const char* name, std::initializer_list<int64_t> sizes) {
  const auto has = tensor.sizes();
  const auto fits = [](int64_t wanted, int64_t size) { return wanted < 0 || wanted == size; };
  if (!std::equal(sizes.begin(), sizes.end(), has.begin(), has.end(), fits)) {
    refuse(std::string(name) + " has the sizes " + wordsFor(has) + ", but " + wordsFor(sizes) +
           " are wanted");
  }
  if (!tensor.is_contiguous()) {
    refuse(std::string(name) + " is not contiguous: pass " + name + ".contiguous()");
  }
}

Element elementOf(const at::Tensor& keys) {
  switch (keys.scalar_type()) {
    case at::kFloat:
      return Element::kFloat32;
    case at::kBFloat16:
      return Element::kBFloat16;
    case at::kHalf:
      return Element::kFloat16;
    default:
      refuse("the cache's keys are " + wordFor(keys.scalar_type()) +
             ", but a cache is float32, bfloat16 or float16");
  }
}

}  // namespace

void refuse(const std::string& sentence) { TORCH_CHECK_VALUE(false, "allot: ", sentence); }

int asInt(int64_t value, const char* name) {
  if (value < 0 || value > std::numeric_limits<int>::max()) {
    refuse(std::string(name) + " = " + std::to_string(value) + " is not from 0 to 2147483647");
  }
  return static_cast<int>(value);
}

void* dataOf(const at::Tensor& tensor, const char* name, at::ScalarType type, at::Device device,
             std::initializer_list<int64_t> sizes) {
  expectPlace(tensor, name, device);
  if (tensor.scalar_type() != type) {
    refuse(std::string(name) + " is " + wordFor(tensor.scalar_type()) + ", but " + wordFor(type) +
           " is wanted");
  }
  expectShape(tensor, name, sizes);
  return beginOf(tensor, name);
}

const uint32_t* wordsOf(const at::Tensor& tensor, const char* name, at::Device device,
                        std::initializer_list<int64_t> sizes) {
  expectPlace(tensor, name, device);
  if (!at::isIntegralType(tensor.scalar_type(), false) || tensor.element_size() != 4) {
    refuse(std::string(name) + " is " + wordFor(tensor.scalar_type()) +
           ", but int32 is wanted, whose bits are taken as unsigned");
  }
  expectShape(tensor, name, sizes);
  return static_cast<const uint32_t*>(beginOf(tensor, name));
}

void expectHeads(int64_t heads, int kv_heads) {
  if (heads > 0 && heads % kv_heads == 0) return;
  refuse("heads = " + std::to_string(heads) + " is no multiple of the cache's " +
         std::to_string(kv_heads) + " KV heads");
}

void expectWholeTiles(int64_t page_size) {
  if (page_size % kernels::kTileKeys == 0) return;
  refuse("page_size = " + std::to_string(page_size) +
         " is no multiple of 16, which shadows and bounds of keys want");
}

std::pair<kernels::PagedKv, at::Device> cacheOf(at::TensorList cache) {
  if (cache.size() != kParts || !cache[kKeys].defined()) {
    refuse("a cache is the list of " + std::to_string(kParts) +
           " tensors that allot::make_cache gives, not of " + std::to_string(cache.size()));
  }
  const at::Tensor& keys = cache[kKeys];
  const at::Device device = keys.device();
  kernels::PagedKv kv;
  kv.element = elementOf(keys);
  expectShape(keys, "the cache's keys", {-1, -1, -1, -1});
  const int64_t pages = keys.size(0), heads = keys.size(1), slots = keys.size(2),
                width = keys.size(3);
  kv.pages = asInt(pages, "pages of the cache");
  kv.kv_heads = asInt(heads, "kv_heads of the cache");
  kv.page_size = asInt(slots, "page_size of the cache");
  kv.head_dim = asInt(width, "head_dim of the cache");
  if (heads == 0 || slots == 0 || width == 0 || width % 16 != 0 || width > 1024) {
    refuse("the cache's keys have the sizes " + wordsFor(keys.sizes()) +
           ", but [pages, kv_heads, page_size, head_dim] are wanted with a head_dim that is a "
           "multiple of 16 up to 1024");
  }
  kv.keys = beginOf(keys, "the cache's keys");
  kv.values = dataOf(cache[kValues], "the cache's values", keys.scalar_type(), device,
                     {pages, heads, slots, width});
  const auto has = [&](Part part) { return cache[part].defined() && cache[part].numel() > 0; };
  if (has(kCodes) || has(kBounds)) expectWholeTiles(slots);
  if (has(kCodes)) {
    kernels::KeyShadow& shadow = kv.shadows[0];
    shadow.codes = dataAs<uint8_t>(cache[kCodes], "the cache's codes", at::kByte, device,
                                   {pages, heads, slots / kernels::kTileKeys, -1});
    const int64_t bits = cache[kCodes].size(3) / (2 * width);
    if (cache[kCodes].size(3) != 2 * width * bits || (bits != 3 && bits != 4 && bits != 8)) {
      refuse("the cache's codes have the sizes " + wordsFor(cache[kCodes].sizes()) +
             ", whose last is that of no shadow in 3, 4 or 8 bits");
    }
    shadow.bits = static_cast<int>(bits);
    shadow.scales = dataAs<float>(cache[kScales], "the cache's scales", at::kFloat, device,
                                  {pages, heads, slots});
    kv.mean_keys = dataAs<float>(cache[kMeanKeys], "the cache's mean_keys", at::kFloat, device,
                                 {pages, heads, width});
  }
  if (has(kBounds)) {
    kv.bounds = dataOf(cache[kBounds], "the cache's bounds", keys.scalar_type(), device,
                       {pages, heads, slots / kernels::kTileKeys, 2, width});
  }
  if (has(kValueSums)) {
    kv.value_sums = dataAs<double>(cache[kValueSums], "the cache's value_sums", at::kDouble, device,
                                   {pages, heads, 2, width});
  }
  return {kv, device};
}

kernels::cuda::Stream currentStream(at::Device device) {
#ifdef ALLOT_BINDINGS_CUDA
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  return static_cast<kernels::cuda::Stream>(stream.native_handle());
#else
  static_cast<void>(device);
  return nullptr;
#endif
}

}  // namespace allot::bindings
