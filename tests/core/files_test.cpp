// Files that are whole or not there, whoever is killed meanwhile and however full the disk is.
#include "core/files/files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <vector>

#include "tests/results.h"
#include "tests/store/full_disk.h"
#include "tests/temp_folder.h"

namespace allot::test {
namespace {

// Asked instead of the system while it is set: what fsync of this path gives, 0 or errno.
std::function<int(const std::string& path)> sync_instead;

}  // namespace
}  // namespace allot::test

// This program's own, which the library calls.
extern "C" int fsync(int descriptor) {
  if (!allot::test::sync_instead) return static_cast<int>(syscall(SYS_fsync, descriptor));
  errno = allot::test::sync_instead(
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor)));
  return errno == 0 ? 0 : -1;
}

namespace allot::test {
namespace {

namespace fs = std::filesystem;

void writeText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

class Folder : public testing::Test {
 protected:
  ~Folder() override { sync_instead = nullptr; }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  // The only name beside `name`.
  std::string other(const std::string& name) const {
    auto all = names();
    std::erase(all, name);
    return all.size() == 1 ? all[0] : "";
  }
  void setAge(const std::string& name, time_t seconds) const {
    const timespec then{std::time(nullptr) - seconds, 0};
    const timespec times[] = {then, then};
    ASSERT_EQ(utimensat(AT_FDCWD, (folder_ + "/" + name).c_str(), times, 0), 0);
  }

  TempFolder temp_;
  const std::string folder_ = temp_.path();
};

TEST_F(Folder, AWholeFileIsThereWholeOrNotAtAll) {
  const std::string path = folder_ + "/a";
  writeText(path, "old");
  {
    auto file = valueOf(WholeFile::create(path));
    ASSERT_TRUE(file.write(std::string(200'000, 'x')));
    EXPECT_EQ(readFile(path), "old");
  }
  EXPECT_EQ(readFile(path), "old");
  {
    const FullDisk full(100'000);
    EXPECT_THAT(writeWholeFile(path, std::string(200'000, 'x')),
                isError(ErrorCode::kIo, HasSubstr("cannot write " + path)));
  }
  EXPECT_EQ(readFile(path), "old");
  ASSERT_TRUE(writeWholeFile(path, "new"));
  EXPECT_EQ(readFile(path), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
  EXPECT_EQ(writeWholeFile(folder_ + "/none/a", "x").error().code, ErrorCode::kIo);
  EXPECT_EQ(readWholeFile(folder_ + "/none", 10).error().code, ErrorCode::kUsage);
  EXPECT_EQ(readWholeFile(folder_, 10).error().code, ErrorCode::kUsage);
  EXPECT_EQ(readWholeFile(path, 2).error().code, ErrorCode::kUsage);
  EXPECT_EQ(readWholeFile(path, 3).value(), "new");
  ASSERT_EQ(mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(readWholeFile(folder_ + "/pipe", 10).error().code, ErrorCode::kUsage);  // no waiting
}

TEST_F(Folder, AKilledWriterLeavesTheOldFileAndALaterOneCleansUp) {
  const std::string path = folder_ + "/a";
  writeText(path, "old");
  const pid_t child = fork();
  if (child == 0) {
    auto file = WholeFile::create(path);
    if (file) (void)file->write(std::string(200'000, 'x'));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(readFile(path), "old");
  const std::string left = other("a");
  ASSERT_THAT(left, StartsWith(".a."));

  // It could be of somebody who writes just now.
  ASSERT_TRUE(writeWholeFile(path, "new"));
  EXPECT_EQ(other("a"), left);
  setAge(left, 7200);
  // Nothing but what is named as such a file is.
  for (const char* name : {".a.b", ".a.0123456789abcdeX", ".a.0123456789abcdef0", ".b."}) {
    writeText(folder_ + "/" + name, "mine");
    setAge(name, 7200);
  }
  ASSERT_TRUE(writeWholeFile(path, "newer"));
  EXPECT_EQ(readFile(path), "newer");
  EXPECT_FALSE(fs::exists(folder_ + "/" + left));
  EXPECT_THAT(names(), SizeIs(5));
}

// Two pods on one volume, where every process has the same number.
TEST_F(Folder, TwoWritersOfOneFileDoNotMix) {
  const std::string path = folder_ + "/a";
  auto first = WholeFile::create(path);
  auto second = WholeFile::create(path);
  ASSERT_TRUE(first && second);
  const std::string one(200'000, '1'), two(300'000, '2');
  ASSERT_TRUE(second->write(two.substr(0, 150'000)));
  ASSERT_TRUE(first->write(one));
  ASSERT_TRUE(first->commit());
  EXPECT_EQ(readFile(path), one);
  ASSERT_TRUE(second->write(two.substr(150'000)));
  ASSERT_TRUE(second->commit());
  EXPECT_EQ(readFile(path), two);
  EXPECT_THAT(names(), SizeIs(1));
}

TEST_F(Folder, AWholeFileIsOnDiskBeforeItIsThereAndItsNameAfter) {
  const std::string path = folder_ + "/a";
  writeText(path, "old");
  std::vector<std::string> seen;
  sync_instead = [&](const std::string& synced) {
    seen.push_back((synced == folder_ ? "folder"
                    : synced == path  ? "file"
                                      : "temporary") +
                   (" of " + readFile(synced)) + ", then a is " + readFile(path));
    return 0;
  };
  ASSERT_TRUE(writeWholeFile(path, "new"));
  EXPECT_THAT(seen, ElementsAre("temporary of new, then a is old", "folder of , then a is new"));
}

// Some file systems say only now that there is no room.
TEST_F(Folder, WhatCannotBeSyncedIsNotThere) {
  const std::string path = folder_ + "/a";
  writeText(path, "old");
  sync_instead = [](const std::string&) { return ENOSPC; };
  EXPECT_THAT(writeWholeFile(path, "new"),
              isError(ErrorCode::kIo,
                      AllOf(HasSubstr("cannot write " + path), HasSubstr("No space left"))));
  EXPECT_EQ(readFile(path), "old");
  EXPECT_THAT(names(), SizeIs(1));
  auto lines = LineFile::open(folder_ + "/lines");
  ASSERT_TRUE(lines && lines->append("one\n"));
  EXPECT_EQ(lines->sync().error().code, ErrorCode::kIo);
  sync_instead = nullptr;
  EXPECT_TRUE(lines->sync());
}

TEST_F(Folder, TheModeIsWhatWasAskedFor) {
  const mode_t before = umask(022);
  ASSERT_TRUE(writeWholeFile(folder_ + "/all", "x", 0666));
  ASSERT_TRUE(writeWholeFile(folder_ + "/ours", "x", 0600));
  umask(before);
  EXPECT_EQ(fs::status(folder_ + "/all").permissions(), fs::perms(0644));
  EXPECT_EQ(fs::status(folder_ + "/ours").permissions(), fs::perms(0600));
}

TEST_F(Folder, ALineFileDropsAnUnfinishedLine) {
  const std::string path = folder_ + "/lines";
  const std::string longer(200'000, 'y');  // more than one block
  for (const std::string& whole : {std::string(), std::string("one\n"), "one\n" + longer + "\n",
                                   longer + "\n", std::string("\n")}) {
    for (const std::string& torn : {std::string(), std::string("t"), longer}) {
      writeText(path, whole + torn);
      auto file = valueOf(LineFile::open(path));
      EXPECT_EQ(readFile(path), whole);
      const auto last = valueOf(file.lastLine());
      if (whole.empty()) {
        EXPECT_FALSE(last);
      } else {
        const size_t start = whole.rfind('\n', whole.size() - 2);
        const size_t from = whole.size() < 2 || start == std::string::npos ? 0 : start + 1;
        EXPECT_EQ(*last, whole.substr(from, whole.size() - 1 - from));
      }
      ASSERT_TRUE(file.append("end\n"));
      EXPECT_EQ(readFile(path), whole + "end\n");
    }
  }
}

TEST_F(Folder, AFullDiskLeavesWholeLines) {
  const std::string path = folder_ + "/lines";
  auto file = valueOf(LineFile::open(path));
  ASSERT_TRUE(file.append("first\n"));
  {
    const FullDisk full(1000);
    EXPECT_THAT(file.append(std::string(2000, 'x') + "\n"),
                isError(ErrorCode::kIo, HasSubstr("cannot write " + path)));
    EXPECT_EQ(readFile(path), "first\n");
    ASSERT_TRUE(file.append("short\n"));
  }
  ASSERT_TRUE(file.append(std::string(2000, 'x') + "\n"));
  EXPECT_EQ(readFile(path), "first\nshort\n" + std::string(2000, 'x') + "\n");
}

TEST_F(Folder, ALineReaderGivesWholeLinesOnly) {
  const std::string path = folder_ + "/lines";
  const std::string longer(150'000, 'y');
  writeText(path, "one\n\n" + longer + "\ntorn");
  auto reader = valueOf(LineReader::open(path, 200'000));
  EXPECT_EQ(reader.next()->value(), "one");
  EXPECT_EQ(reader.next()->value(), "");
  EXPECT_EQ(reader.next()->value(), longer);
  EXPECT_EQ(reader.number(), 3u);
  EXPECT_FALSE(*reader.next());
  EXPECT_FALSE(*reader.next());
  auto bounded = valueOf(LineReader::open(path, 70'000));
  ASSERT_TRUE(bounded.next() && bounded.next());
  EXPECT_THAT(bounded.next(),
              isError(ErrorCode::kData, HasSubstr("line 3: has more than 70000 bytes")));
}

}  // namespace
}  // namespace allot::test
