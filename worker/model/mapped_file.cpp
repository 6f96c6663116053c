#include "worker/model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "worker/model/json_file.h"

namespace allot {
namespace {

tl::unexpected<Error> systemError(const std::string& path, int number) {
  const std::string reason = std::generic_category().message(number);
  return fail(number == ENOENT ? ErrorCode::kUsage : ErrorCode::kIo,
              "cannot open " + path + ": " + reason);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  // Non-blocking, so that a FIFO at this path cannot block.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return systemError(path, errno);
  struct stat status {};
  if (::fstat(file, &status) != 0) {
    const int number = errno;
    ::close(file);
    return systemError(path, number);
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(file);
    return badInput(path + " is not a plain file");
  }
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) {  // cannot be mapped
    ::close(file);
    return MappedFile(nullptr, 0);
  }
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  const int number = errno;
  ::close(file);
  if (data == MAP_FAILED) return systemError(path, number);
  MappedFile mapped(static_cast<const std::byte*>(data), size);
  ALLOT_TRY(checkNoLfsPointer({static_cast<const char*>(data), size}, path));
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace allot
