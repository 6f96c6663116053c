#pragma once
// MappedFile: a file's bytes, memory-mapped read-only. The mapping lives as long as the object, and
// stays where it is when the object is moved. Immutable; any thread. The file must not be cut short
// while it is mapped (the operating system then ends the process with SIGBUS). Private to
// worker/model/.
#include <cstddef>
#include <string>

#include "core/result.h"

namespace allot {

class MappedFile {
 public:
  // Errors: kUsage when it is not there or no plain file, kIo when the system refuses.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::byte* data() const { return data_; }  // null when the file is empty
  size_t size() const { return size_; }

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}

  const std::byte* data_;
  size_t size_;
};

}  // namespace allot
