#pragma once
// Files that are whole or not there, and files of lines that only grow.
//
// What a process leaves when it is killed, or when the disk is full, is still readable: a WholeFile
// appears under its name once it is complete and on disk; a LineFile ends with a whole line, and an
// unfinished one is dropped when it is opened again. A power cut may cost the newest lines, those
// after the last sync(). Errors are kIo with the path and the reason. One thread.
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace allot {

// So many bytes, at most 256, of the system's randomness, as twice as many digits.
Result<std::string> randomHex(size_t bytes);

// An open file descriptor.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int descriptor) : descriptor_(descriptor) {}
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();

  int get() const { return descriptor_; }
  bool isOpen() const { return descriptor_ >= 0; }
  int close();  // 0 or errno

 private:
  int descriptor_ = -1;
};

// Written beside its place, under a name of its own; commit() syncs it, moves it there and syncs
// the folder. So a reader sees the old text or the new one, after a power cut too, and of several
// writers the last one to commit is read. What a killed writer left is removed by a later one.
class WholeFile {
 public:
  // mode: of the new file, less the umask.
  static Result<WholeFile> create(const std::string& path, mode_t mode = 0644);
  WholeFile(WholeFile&&) noexcept = default;
  WholeFile& operator=(WholeFile&&) = delete;
  ~WholeFile();  // without commit(): leaves no trace

  Status write(std::string_view text);
  Status commit();

 private:
  WholeFile() = default;
  Status flush();

  std::string path_;
  std::string temporary_;
  std::string buffer_;
  FileHandle file_;
};

Status writeWholeFile(const std::string& path, std::string_view text, mode_t mode = 0644);

// Has on disk what was made in or moved into the folder that holds `path`.
Status syncFolderOf(const std::string& path);

// The file's text; kUsage if it cannot be read or has more than `most` bytes.
Result<std::string> readWholeFile(const std::string& path, uint64_t most);

// The file's first bytes, at most `most`; kUsage if it cannot be read.
Result<std::string> readBeginning(const std::string& path, uint64_t most);

// Opened by one process at a time (flock): a second one gets kUsage.
class LineFile {
 public:
  // Opens or creates it, and drops an unfinished last line.
  static Result<LineFile> open(const std::string& path);

  // Appends whole lines, each with its newline, or (after an error) nothing.
  Status append(std::string_view lines);
  // Has on disk what was appended.
  Status sync();
  // The last line, without its newline; nothing if there is none.
  Result<std::optional<std::string>> lastLine() const;

  const std::string& path() const { return path_; }

 private:
  LineFile() = default;
  // Where the line that ends before `end` begins, `end` being behind a newline or at 0.
  Result<uint64_t> lineStart(uint64_t end) const;

  std::string path_;
  FileHandle file_;
  uint64_t size_ = 0;  // of all whole lines
};

// Lines of a file that may hold anything.
class LineReader {
 public:
  static Result<LineReader> open(const std::string& path, uint64_t longest_line);

  // The next line without its newline; nothing at the end. A last line without newline is
  // unfinished and left out. kData if a line is too long.
  Result<std::optional<std::string>> next();
  // Of the line that next() gave last; the first is 1.
  uint64_t number() const { return number_; }
  const std::string& path() const { return path_; }

 private:
  LineReader() = default;

  std::string path_;
  FileHandle file_;
  std::string buffer_;
  size_t at_ = 0;
  uint64_t longest_ = 0;
  uint64_t number_ = 0;
};

}  // namespace allot
