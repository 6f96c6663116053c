#pragma once
// Files that are whole or absent, files of lines, and those that an experiment names. An object is
// for one thread; the functions, for any.
//
// WholeFile and LineFile stay readable when a process is killed or the disk is full. A WholeFile
// appears under its name once it is complete and on disk. An unfinished last line of a LineFile is
// dropped when the file is opened again; a power cut may lose the lines after the last sync().
// Errors are kIo for writing and kUsage for reading, unless a comment says otherwise.
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"

namespace allot {

// Returns `bytes` random bytes of the system as hexadecimal digits. kInternal if the system gives
// none.
// Requires: bytes <= 256.
Result<std::string> randomHex(size_t bytes);

// Owns an open file descriptor.
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

// A file that is written under a temporary name beside its path. commit() syncs the file, renames
// it and syncs the folder. A reader sees the old text or the new one, even after a power cut. Of
// several writers the last to commit wins. create() removes temporary files of the same path that
// nobody has written to for an hour.
class WholeFile {
 public:
  // mode: permissions of the new file, less the umask. kInternal without random numbers.
  static Result<WholeFile> create(const std::string& path, mode_t mode = 0644);
  WholeFile(WholeFile&&) noexcept = default;
  WholeFile& operator=(WholeFile&&) = delete;
  ~WholeFile();  // without commit(): removes the temporary file

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

// Syncs the folder that holds `path`, after files were made in it or moved into it. Does nothing if
// this process may not read the folder, or its file system cannot sync folders.
Status syncFolderOf(const std::string& path);

// Returns the file's text; kUsage if it cannot be read or has more than `most` bytes.
Result<std::string> readWholeFile(const std::string& path, uint64_t most);

// Returns the file's first bytes, at most `most`; kUsage if it cannot be read.
Result<std::string> readBeginning(const std::string& path, uint64_t most);

// A growing file of lines. While it is open (flock), another open() returns kUsage.
class LineFile {
 public:
  // Opens or creates the file, and drops an unfinished last line.
  static Result<LineFile> open(const std::string& path);

  // Appends whole lines, each with its newline. After an error the file is truncated to its former
  // size, as far as possible.
  Status append(std::string_view lines);
  // Syncs appended lines to disk.
  Status sync();
  // Returns the last line, without its newline; nothing if there is none. kIo if another process
  // has cut the file.
  Result<std::optional<std::string>> lastLine() const;

  const std::string& path() const { return path_; }

 private:
  LineFile() = default;
  // Returns `size` bytes from offset `from` on. kIo if the file has fewer.
  Result<std::string> readAt(uint64_t from, size_t size) const;
  // Returns the offset after the last newline in the first `end` - 1 bytes; 0 if there is none.
  Result<uint64_t> lineStart(uint64_t end) const;

  std::string path_;
  FileHandle file_;
  uint64_t size_ = 0;  // of all whole lines
};

// Reads the lines of a file with arbitrary content.
class LineReader {
 public:
  static Result<LineReader> open(const std::string& path, uint64_t longest_line);

  // Returns the next line without its newline; nothing at the end. A last line without newline is
  // left out. kData for a line over `longest_line` bytes, although one of up to 64 KiB more may
  // pass.
  Result<std::optional<std::string>> next();
  // Returns true if no byte follows the line that next() returned last, not even an unfinished
  // line. next() must not be called any more.
  Result<bool> endsHere();
  // Returns the number of the line that next() returned last; the first is 1.
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

// ---- The files that an experiment names.

// Returns `path` if it exists or is empty. Else, if `path` is relative, looks for it in the folder
// of `experiment_file` and in the folders above that one, and returns the first that exists.
// kUsage, which names `key`, if none exists.
Result<std::string> findNamedPath(const std::string& key, const std::string& path,
                                  const std::string& experiment_file);

// Replaces files' names in spec.attention.prefillProfile and spec.model.kvProfile by the profiles,
// so that the stored experiment needs no file. Leaves a key that is empty or holds a profile.
// kUsage if a file is missing or no profile.
Status embedProfiles(v1::Experiment* experiment, const std::string& experiment_file);

}  // namespace allot
