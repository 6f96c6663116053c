#include "core/files/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "core/digest.h"
#include "core/spec/kv_profile.h"
#include "core/spec/prefill_profile.h"

namespace allot {
namespace {

constexpr size_t kBlock = 64 * 1024;
// Random digits of a temporary name, which make it unique.
constexpr size_t kDigits = 16;
// A temporary file without a write for this time was left by a writer that was killed.
constexpr time_t kAbandonedSeconds = 3600;

std::string reason(int error) { return std::error_code(error, std::generic_category()).message(); }

tl::unexpected<Error> cannotWrite(const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return fail(ErrorCode::kIo, "cannot write " + path + ": " + reason(error) + ": " +
                                  (full ? "make room there, or name another folder"
                                        : "check that its folder can be written"));
}

tl::unexpected<Error> cannotRead(const std::string& path, int error) {
  return badInput(path + ": cannot be read: " + reason(error));
}

// Returns 0 or errno.
int writeAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

// --- names of a WholeFile's temporaries: .NAME.DIGITS, beside NAME ---

std::string folderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string temporaryPrefix(const std::string& path) {
  const size_t slash = path.rfind('/');
  return "." + path.substr(slash == std::string::npos ? 0 : slash + 1) + ".";
}

// Removes abandoned temporary files of `path`. Ignores errors: a temporary file harms nobody.
void removeAbandoned(const std::string& path) {
  const std::string folder = folderOf(path), prefix = temporaryPrefix(path);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  if (entries == nullptr) return;
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (name.size() != prefix.size() + kDigits || !name.starts_with(prefix) ||
        name.substr(prefix.size()).find_first_not_of("0123456789abcdef") != std::string::npos) {
      continue;
    }
    struct stat status {};
    if (::fstatat(dirfd(entries.get()), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(status.st_mode) && status.st_mtime < std::time(nullptr) - kAbandonedSeconds) {
      ::unlinkat(dirfd(entries.get()), entry->d_name, 0);
    }
  }
}

Result<FileHandle> openForReading(const std::string& path) {
  FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.isOpen()) return cannotRead(path, errno);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return cannotRead(path, errno);
  if (!S_ISREG(status.st_mode)) return badInput(path + ": is no regular file");
  return file;
}

}  // namespace

Result<std::string> findNamedPath(const std::string& key, const std::string& path,
                                  const std::string& experiment_file) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (path.empty() || fs::exists(path, ignored)) return path;
  if (fs::path(path).is_relative() && !experiment_file.empty()) {
    fs::path folder = fs::absolute(experiment_file, ignored).parent_path();
    for (; !folder.empty(); folder = folder.parent_path()) {
      if (fs::exists(folder / path, ignored)) return (folder / path).string();
      if (folder == folder.root_path()) break;
    }
  }
  return badInput(key + ": there is no " + path +
                  ": name a file or folder, absolute or relative to where you are or to a folder "
                  "above the experiment file");
}

namespace {

// Replaces the name of a file of this kind by what textOf() makes of the file's text.
template <typename TextOf>
Status embed(std::string* named, const ProfileKind& kind, const std::string& experiment_file,
             const TextOf& textOf) {
  if (named->empty() || isProfileText(*named)) return {};
  ALLOT_ASSIGN(const std::string path, findNamedPath(kind.key, *named, experiment_file));
  const auto text = readWholeFile(path, kMostProfileBytes);
  if (!text) return badInput(std::string(kind.key) + ": " + text.error().message);
  ALLOT_ASSIGN(*named, textOf(*text, path));
  return {};
}

}  // namespace

Status embedProfiles(v1::Experiment* experiment, const std::string& experiment_file) {
  v1::Spec& spec = *experiment->mutable_spec();
  ALLOT_TRY(embed(spec.mutable_attention()->mutable_prefill_profile(), kSaleProfile,
                  experiment_file,
                  [](const std::string& text, const std::string& path) -> Result<std::string> {
                    ALLOT_ASSIGN(const PrefillProfile profile, parseProfile(text, path));
                    return profileText(profile);
                  }));
  return embed(spec.mutable_model()->mutable_kv_profile(), kKvProfile, experiment_file,
               [](const std::string& text, const std::string& path) -> Result<std::string> {
                 ALLOT_ASSIGN(const KvProfile profile, parseKvProfile(text, path));
                 return kvProfileText(profile);
               });
}

Result<std::string> randomHex(size_t bytes) {
  std::string random(bytes, '\0');
  if (getrandom(random.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    return fail(ErrorCode::kInternal, "the system gives no random numbers: try again");
  }
  return hexDigits(random);
}

FileHandle::FileHandle(FileHandle&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FileHandle::~FileHandle() { close(); }

int FileHandle::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  return descriptor < 0 || ::close(descriptor) == 0 ? 0 : errno;
}

Result<WholeFile> WholeFile::create(const std::string& path, mode_t mode) {
  WholeFile file;
  file.path_ = path;
  removeAbandoned(path);
  ALLOT_ASSIGN(const std::string digits, randomHex(kDigits / 2));
  const std::string temporary = folderOf(path) + "/" + temporaryPrefix(path) + digits;
  file.file_ = FileHandle(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file.file_.isOpen()) return cannotWrite(path, errno);
  file.temporary_ = temporary;
  return file;
}

WholeFile::~WholeFile() {
  if (file_.isOpen()) ::unlink(temporary_.c_str());
}

Status WholeFile::write(std::string_view text) {
  buffer_ += text;
  return buffer_.size() < kBlock ? Status() : flush();
}

Status WholeFile::flush() {
  const int error = writeAll(file_.get(), buffer_);
  buffer_.clear();
  return error == 0 ? Status() : cannotWrite(path_, error);
}

Status WholeFile::commit() {
  ALLOT_TRY(flush());
  int error = ::fsync(file_.get()) == 0 ? 0 : errno;
  if (const int closed = file_.close(); error == 0) error = closed;
  if (error == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) error = errno;
  if (error == 0) return syncFolderOf(path_);
  ::unlink(temporary_.c_str());
  return cannotWrite(path_, error);
}

Status writeWholeFile(const std::string& path, std::string_view text, mode_t mode) {
  ALLOT_ASSIGN(WholeFile file, WholeFile::create(path, mode));
  ALLOT_TRY(file.write(text));
  return file.commit();
}

Status syncFolderOf(const std::string& path) {
  const FileHandle folder(::open(folderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A folder that cannot be read cannot be synced.
  if (!folder.isOpen() && errno == EACCES) return {};
  if (!folder.isOpen()) return cannotWrite(path, errno);
  // File systems that cannot sync folders return one of these.
  if (::fsync(folder.get()) != 0 && errno != EINVAL && errno != ENOTSUP && errno != ENOSYS)
    return cannotWrite(path, errno);
  return {};
}

Result<std::string> readBeginning(const std::string& path, uint64_t most) {
  ALLOT_ASSIGN(const FileHandle file, openForReading(path));
  std::string text;
  while (text.size() < most) {
    const size_t had = text.size(), block = std::min<uint64_t>(kBlock, most - had);
    text.resize(had + block);
    const ssize_t got = ::read(file.get(), text.data() + had, block);
    if (got < 0 && errno != EINTR) return cannotRead(path, errno);
    text.resize(had + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) break;
  }
  return text;
}

Result<std::string> readWholeFile(const std::string& path, uint64_t most) {
  ALLOT_ASSIGN(std::string text, readBeginning(path, most + 1));
  if (text.size() > most) {
    return badInput(path + ": has more than " + std::to_string(most) + " bytes");
  }
  return text;
}

Result<LineFile> LineFile::open(const std::string& path) {
  LineFile lines;
  lines.path_ = path;
  lines.file_ = FileHandle(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!lines.file_.isOpen()) return cannotWrite(path, errno);
  if (flock(lines.file_.get(), LOCK_EX | LOCK_NB) != 0) {
    return badInput(path + ": another process is writing it; wait for that or stop it");
  }
  struct stat status {};
  if (fstat(lines.file_.get(), &status) != 0) return cannotWrite(path, errno);
  const auto size = static_cast<uint64_t>(status.st_size);
  ALLOT_ASSIGN(lines.size_, lines.lineStart(size + 1));
  if (lines.size_ < size && ftruncate(lines.file_.get(), static_cast<off_t>(lines.size_)) != 0) {
    return cannotWrite(path, errno);
  }
  return lines;
}

Result<std::string> LineFile::readAt(uint64_t from, size_t size) const {
  std::string text(size, '\0');
  for (size_t have = 0; have < size;) {
    const ssize_t got =
        ::pread(file_.get(), text.data() + have, size - have, static_cast<off_t>(from + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannotRead(path_, errno);
    if (got == 0) return fail(ErrorCode::kIo, path_ + ": another process has cut it short");
    have += static_cast<size_t>(got);
  }
  return text;
}

Result<uint64_t> LineFile::lineStart(uint64_t end) const {
  for (uint64_t at = end == 0 ? 0 : end - 1; at > 0;) {
    const uint64_t from = at - std::min<uint64_t>(at, kBlock);
    ALLOT_ASSIGN(const std::string block, readAt(from, at - from));
    const size_t newline = block.rfind('\n');
    if (newline != std::string::npos) return from + newline + 1;
    at = from;
  }
  return 0;
}

Status LineFile::append(std::string_view lines) {
  const int error = writeAll(file_.get(), lines);
  if (error == 0) {
    size_ += lines.size();
    return {};
  }
  if (ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) {
    return cannotWrite(path_, errno);  // the next open() drops an unfinished line
  }
  return cannotWrite(path_, error);
}

Status LineFile::sync() { return ::fsync(file_.get()) == 0 ? Status() : cannotWrite(path_, errno); }

Result<std::optional<std::string>> LineFile::lastLine() const {
  if (size_ == 0) return std::nullopt;
  ALLOT_ASSIGN(const uint64_t start, lineStart(size_));
  return readAt(start, size_ - 1 - start);
}

Result<LineReader> LineReader::open(const std::string& path, uint64_t longest_line) {
  LineReader reader;
  reader.path_ = path;
  reader.longest_ = longest_line;
  ALLOT_ASSIGN(reader.file_, openForReading(path));
  return reader;
}

Result<std::optional<std::string>> LineReader::next() {
  size_t searched = at_;
  while (true) {
    const size_t newline = buffer_.find('\n', searched);
    if (newline != std::string::npos) {
      std::string line = buffer_.substr(at_, newline - at_);
      at_ = newline + 1;
      ++number_;
      return line;
    }
    buffer_.erase(0, at_);
    at_ = 0;
    searched = buffer_.size();
    if (searched > longest_) {
      return fail(ErrorCode::kData, path_ + ": line " + std::to_string(number_ + 1) +
                                        ": has more than " + std::to_string(longest_) + " bytes");
    }
    buffer_.resize(searched + kBlock);
    const ssize_t got = ::read(file_.get(), buffer_.data() + searched, kBlock);
    if (got < 0 && errno != EINTR) return cannotRead(path_, errno);
    buffer_.resize(searched + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return std::nullopt;
  }
}

Result<bool> LineReader::endsHere() {
  ALLOT_ASSIGN(const auto line, next());
  return !line && at_ == buffer_.size();
}

}  // namespace allot
