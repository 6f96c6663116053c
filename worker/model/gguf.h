#pragma once
// Gguf: a memory-mapped model in llama.cpp's format (GGUF 2 and 3), with metadata and tensors. Some
// tensors are in blocks of few bits. A model may be split into several files, NAME-00001-of-00003
// and so on, of which the first has the metadata.
//
// The file is hostile until checked: counts, lengths and types are verified before anything is
// returned, and the offsets and overlaps of tensors of supported types. Immutable after open; any
// thread. Private to worker/model/.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/result.h"
#include "worker/model/mapped_file.h"

namespace allot {

// Values follow ggml's numbering.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30
};

struct GgufTensor {
  GgmlType type = GgmlType::kF32;
  std::vector<int64_t> shape;  // row-major: the last one is contiguous
  const std::byte* data = nullptr;

  int64_t elements() const;
};

class Gguf {
 public:
  // Integers, and booleans of an array, are int64_t (a larger uint64 is refused), floats double.
  using Value = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>,
                             std::vector<double>, std::vector<std::string>>;

  using Metadata = std::map<std::string, Value, std::less<>>;

  // Opens and checks a file, and those beside it if it is the first of a split model. kUsage names
  // the file and a wrong key or tensor; kIo: it cannot be read.
  static Result<Gguf> open(const std::string& path);

  // Returns null if there is no such key, or its value has another type.
  template <typename T>
  const T* find(std::string_view key) const {
    const auto found = metadata_.find(key);
    return found == metadata_.end() ? nullptr : std::get_if<T>(&found->second);
  }
  // Returns a tensor. kUsage: missing, another shape, or an unsupported type, which is named.
  Result<GgufTensor> tensor(const std::string& name, const std::vector<int64_t>& shape) const;
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  std::vector<std::string> names() const;  // of the tensors, sorted
  const Metadata& metadata() const { return metadata_; }
  const std::string& path() const { return files_.front().path; }
  // Returns the SHA-256 of the file, in hex; of a split model that of its files' digests.
  std::string digest() const;

 private:
  struct Entry {
    uint32_t type = 0;
    std::vector<int64_t> shape;
    uint64_t offset = 0;
    size_t file = 0;
  };
  struct File {
    std::string path;
    MappedFile content;
    size_t data_begin = 0;
  };
  class Reader;

  Gguf() = default;
  Status read(const std::string& path, Metadata* metadata);
  Status readOthers();
  Status readTensor(Reader& reader);
  Status checkTensors(size_t file, uint64_t alignment) const;

  std::vector<File> files_;
  Metadata metadata_;  // of the first file
  std::map<std::string, Entry> tensors_;
};

// Decodes a tensor to float32. A large tensor is shared by up to 8 threads.
// Requires: out has room for tensor.elements() floats.
void toFloat(const GgufTensor& tensor, float* out);

}  // namespace allot
