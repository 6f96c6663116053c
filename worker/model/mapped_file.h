#pragma once
// MappedFile: a read-only memory-mapped file. The mapping lives as long as the object, and keeps
// its address if the object is moved. Immutable; any thread. Private to worker/model/.
// Requires: the file is not truncated while it is mapped (the system ends the process with SIGBUS).
#include <cstddef>
#include <string>

#include "core/result.h"

namespace allot {

class MappedFile {
 public:
  // Maps a file. kUsage if it is missing, no plain file or a Git LFS pointer, kIo for other errors
  // of the system.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::byte* data() const { return data_; }  // null if the file is empty
  size_t size() const { return size_; }

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}

  const std::byte* data_;
  size_t size_;
};

}  // namespace allot
