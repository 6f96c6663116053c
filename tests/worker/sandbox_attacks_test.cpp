// Programs that are up to no good: each is graded 0, in time, and leaves nothing behind.
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>

#include "tests/results.h"
#include "tests/temp_folder.h"
#include "tests/worker/sandbox_fixture.h"

namespace allot {
namespace {

constexpr double kLongest = 40;  // s: the limit of 12, on a machine with much to do

struct Attack {
  const char* name;
  std::string body;  // of a function that returns 42 only where it should not
};

void PrintTo(const Attack& attack, std::ostream* out) { *out << attack.name; }

class Attacks : public Sandbox, public testing::WithParamInterface<Attack> {};

TEST_P(Attacks, AreGradedZeroWithinTheLimits) {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(gradeOf(GetParam().body), 0);
  EXPECT_LT(secondsSince(start), kLongest);
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 << 10) << "KiB of this process";
}

const Attack kAttacks[] = {
    {"ForkBomb", R"(
    import os
    while True:
        try:
            os.fork()
        except OSError:
            pass
)"},
    {"ForkBombOfAShell", R"(
    import subprocess
    subprocess.run(["/bin/sh", "-c", "b() { b | b & }; while :; do b; done"], check=True)
    return 42
)"},
    {"ThreadsWithoutEnd", R"(
    import threading, time
    while True:
        threading.Thread(target=time.sleep, args=(1000,)).start()
)"},
    {"TenGigabytesOfOutput", R"(
    import sys
    for i in range(10 << 10):
        sys.stdout.write("x" * (1 << 20))
    return 42
)"},
    {"OutputOfBothKinds", R"(
    import os
    for i in range(10 << 10):
        os.write(1 + i % 2, b"x" * (1 << 20))
    return 42
)"},
    {"EndlessLoop", "    while True: pass"},
    {"EndlessSleep", R"(
    import os, time
    os.close(1)
    os.close(2)
    time.sleep(1000)
    return 42
)"},
    {"EndlessLoopThatIgnoresSignals", R"(
    import signal
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    while True: pass
)"},
    {"EtcIsRead", R"(
    import os
    for name in ("passwd", "shadow", "hostname", "hosts", "resolv.conf", "ssl"):
        if os.path.lexists("/etc/" + name):
            return 42
    return open("/etc/passwd") and 42
)"},
    {"NamesOfTheMachine", R"(
    import os, socket
    return 42 if socket.gethostname() != "sandbox" or os.getuid() != 65534 else 0
)"},
    {"OtherFolders", R"(
    import os
    return 42 if set(os.listdir("/")) - {"usr", "bin", "lib", "lib64", "dev", "tmp"} else 0
)"},
    {"OtherDevices", R"(
    import os
    return 42 if set(os.listdir("/dev")) - {"null", "zero", "urandom"} else 0
)"},
    {"Connects", R"(
    import socket
    socket.create_connection(("192.0.2.1", 80), 2)
    return 42
)"},
    {"SendsWithoutAConnection", R"(
    import socket
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53))
    return 42
)"},
    {"LooksUpAName", R"(
    import socket
    return 42 if socket.getaddrinfo("example.com", 80) else 0
)"},
    {"SpeaksToTheVirtualMachinesHost", R"(
    import socket
    socket.socket(40, socket.SOCK_STREAM)
    return 42
)"},
    {"SocketsThatAreNotOfTheUnixFamily", R"(
    import socket
    for family in range(50):
        for make in (socket.socket, socket.socketpair):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
                try:
                    make(family, kind)
                    if family != socket.AF_UNIX:
                        return 42
                except OSError as error:
                    if family != socket.AF_UNIX and error.errno != 97:
                        return 42
    return 0
)"},
    {"LargerBuffersOfSockets", R"(
    import socket
    ends = socket.socketpair()
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF, 32, 33):
        try:
            ends[0].setsockopt(socket.SOL_SOCKET, option, 1 << 24)
            return 42
        except PermissionError:
            pass
    return 0
)"},
    {"HugeFile", R"(
    with open("/tmp/x", "wb", 0) as file:
        for i in range(1 << 14):
            file.write(b"x" * (1 << 20))
    return 42
)"},
    {"HugeFileOfHoles", R"(
    with open("/tmp/x", "wb") as file:
        file.truncate(1 << 40)
    return 42
)"},
    {"ManyLargeFiles", R"(
    for i in range(1 << 10):
        with open("/tmp/x%d" % i, "wb", 0) as file:
            for j in range(4):
                file.write(b"x" * (1 << 20))
    return 42
)"},
    {"FilesElsewhere", R"(
    import os
    for folder in ("/", "/dev", "/dev/shm", "/usr", "/usr/local", "/var/tmp", "/run", "/bin"):
        try:
            open(folder + "/allot", "w")
            return 42
        except OSError:
            pass
    return 0
)"},
    {"MemoryWithoutEnd", R"(
    kept = []
    while True:
        kept.append(bytearray(1 << 24))
)"},
    {"MemoryOfMappings", R"(
    import mmap
    kept = []
    for i in range(1 << 10):
        kept.append(mmap.mmap(-1, 1 << 24))
        kept[-1].write(b"x" * (1 << 24))
    return 42
)"},
    {"MemoryOfFiles", R"(
    import os
    os.memfd_create("x")
    return 42
)"},
    {"MemoryOfSystemV", R"(
    import ctypes
    return 42 if ctypes.CDLL(None).shmget(0, 1 << 24, 0o1600) >= 0 else 0
)"},
    {"HigherLimits", R"(
    import resource
    for what in (resource.RLIMIT_NPROC, resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):
        try:
            resource.setrlimit(what, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            return 42
        except (ValueError, OSError):
            pass
    return 0
)"},
    {"NamespacesOfItsOwn", R"(
    import ctypes
    return 42 if ctypes.CDLL(None).unshare(0x10000000) == 0 else 0
)"},
    {"NamespacesByClone", R"(
    import ctypes, os
    libc = ctypes.CDLL(None)
    clone = 220 if os.uname().machine == "aarch64" else 56
    child = libc.syscall(clone, 0x10000000 | 17, 0, 0, 0, 0)
    if child == 0:
        libc._exit(0)
    os.waitpid(child, 0)
    return 42
)"},
    {"Daemon", R"(
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 64)
            time.sleep(1000)
        os._exit(0)
    os.wait()
    return 42
)"},
    {"DaemonThatStaysWhenAllElseEnds", R"(
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 64)
            time.sleep(1000)
    os._exit(0)
)"},
    {"KillsItsParent", R"(
    import os
    os.kill(os.getppid(), 9)
    return 42
)"},
    {"KillsAllThatItCan", R"(
    import os
    for pid in (0, -1, 1, os.getppid(), os.getpid()):
        for number in (9, 15, 19):
            try:
                os.kill(pid, number)
            except OSError:
                pass
    os._exit(0)
)"},
    {"KillsByAProgram", R"(
    import subprocess
    subprocess.run(["/bin/sh", "-c", "kill -9 -1 && kill -9 1"], check=True)
    return 42
)"},
    {"LinksToOtherFiles", R"(
    import os
    for target in ("/etc/passwd", "/proc/self/environ", "/proc/1/root/etc/passwd", "../../etc/shadow"):
        if os.path.lexists("/tmp/link"):
            os.unlink("/tmp/link")
        os.symlink(target, "/tmp/link")
        try:
            open("/tmp/link")
            return 42
        except OSError:
            pass
    return 0
)"},
    {"LinksInPlaceOfItsFolder", R"(
    import os
    try:
        os.rename("/tmp", "/old")
        return 42
    except OSError:
        pass
    try:
        os.link("/usr/bin/env", "/tmp/env")
        return 42
    except OSError:
        pass
    os.symlink("/usr", "/tmp/usr")
    open("/tmp/usr/allot", "w")
    return 42
)"},
    {"PythonThatCrashes", R"(
    import ctypes
    ctypes.string_at(0)
    return 42
)"},
};

// An answer's code does not run before its judge does. Delays the judge's sandbox by 1 s, during
// which these answers would end their own, or be ended.
TEST_F(Sandbox, AnswersWaitForTheirJudge) {
  const TempFolder folder;
  const std::string program = folder.path() + "/bwrap";
  std::ofstream(program) << "#!/bin/sh\ncase \"$*\" in *'def own_part'*) sleep 1;; esac\nPATH='"
                         << std::getenv("PATH") << "' exec bwrap \"$@\"\n";
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  std::filesystem::permissions(program, std::filesystem::perms::all);
  const Path path(folder.path() + ":" + std::getenv("PATH"));
  const std::string answers[] = {
      "    return 42\n",
      "    return 42\nwhile True: print('a' * 100000)\n",
      "    return 42\nfor i in range(10 ** 7):\n    print('the answer is', f())\n",
      "    return 42\nimport os\nos.write(2, b'a' * (1 << 21))\n",
      "    return 42\nimport os\nos.closerange(0, 64)\nos._exit(0)\n",
      "    return 42\nimport os\nos.write(6, b'x')\nos._exit(3)\n",
      "    return 42\n1 / 0\n"};
  std::vector<TestProgram> programs;
  for (const std::string& answer : answers) programs.push_back(testProgram(answer42(), answer));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(valueOf(runPrograms(programs, goOn)), ElementsAre(1, 0, 0, 0, 0, 0, 0));
  EXPECT_GT(secondsSince(start), 1) << "no judge was delayed";
}

TEST_F(Sandbox, AnswersThatPrintWithoutEndAreGradedZero) {
  const std::string flood = "    return 42\nwhile True: print('a' * 100000)\n";
  const std::string loop =
      "    return 42\nfor i in range(10 ** 7):\n    print('the answer is', f())\n";
  std::vector<TestProgram> programs;
  for (int i = 0; i < 20; ++i) {
    programs.push_back(testProgram(answer42(), i % 4 == 0 ? loop : flood));
  }
  EXPECT_THAT(valueOf(runPrograms(programs, goOn)), Each(0));
}

INSTANTIATE_TEST_SUITE_P(Sandbox, Attacks, testing::ValuesIn(kAttacks),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace allot
