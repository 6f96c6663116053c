#pragma once
// Safetensors: a model's memory-mapped weights, in one file or in several with an index.
//
// The header is hostile until checked: sizes, offsets, overlaps and dtypes are verified before any
// tensor is returned. Views point into the mapping and live as long as the object. Immutable after
// open; any thread.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"

namespace allot {

enum class TensorType { kF32, kF16, kBF16 };

struct TensorView {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;  // row-major; its size follows from shape and type
  size_t bytes = 0;

  int64_t elements() const;
};

class Safetensors {
 public:
  // Opens `folder`/model.safetensors, or the shards that `folder`/model.safetensors.index.json
  // names. kUsage: a malformed file or tensor, which is named; kIo: a file cannot be read.
  static Result<Safetensors> open(const std::string& folder);

  Safetensors(Safetensors&&) noexcept;
  Safetensors& operator=(Safetensors&&) noexcept;
  ~Safetensors();

  // Returns a tensor. kUsage: missing, of another shape (both are named), or of no TensorType.
  Result<TensorView> tensor(const std::string& name, const std::vector<int64_t>& shape) const;
  // Returns a tensor of any shape. kUsage: missing, or of no TensorType.
  Result<TensorView> tensor(const std::string& name) const;
  bool contains(const std::string& name) const;
  std::vector<std::string> names() const;  // sorted
  // Returns the SHA-256 of the files' bytes in name order, in hex; empty if OpenSSL fails.
  std::string digest() const;

 private:
  struct Impl;
  explicit Safetensors(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Copies a view to float32.
// Requires: out has room for view.elements() floats.
void toFloat(const TensorView& view, float* out);

}  // namespace allot
