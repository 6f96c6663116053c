#pragma once
// Sandbox: runs a command that nobody has read, apart from this machine's files, network and
// processes, and within limits.
//
// bubblewrap gives it namespaces of its own (user, processes, network, mounts, System V IPC, host
// name): it sees /usr, read-only, an empty /tmp in memory, and three devices; no other file and no
// /proc. A seccomp filter refuses what the namespaces and limits do not reach: memory outside of
// the address space, signals, sockets but those of the unix and internet families, namespaces of
// its own, kernel interfaces that no program of a task needs. Where the caller is root, the command
// runs as nobody: the kernel's limit of processes does not bind root.
// Whatever ends the command ends all that it started, and so does the end of the caller's process.
//
// Several threads may each run one at the same time. The caller's other file descriptors and its
// environment are not handed on.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"

namespace allot {

struct SandboxLimits {
  std::chrono::milliseconds wall{12'000};
  uint32_t cpu_seconds = 3;                      // of each process
  uint64_t address_bytes = uint64_t{512} << 20;  // of each process
  uint32_t processes = 6;                        // at a time, threads included
  uint32_t open_files = 64;                      // of each process
  uint64_t file_bytes = uint64_t{8} << 20;       // of each file
  uint64_t tmp_bytes = uint64_t{16} << 20;       // of /tmp
  size_t output_bytes = size_t{1} << 20;         // of both outputs together
};

struct SandboxEnd {
  enum class Why { kEnded, kTimedOut, kWroteTooMuch, kStopped };
  Why why = Why::kEnded;
  int status = 0;      // where it ended by itself: its exit code, or 128 + signal
  std::string output;  // both, at most output_bytes
};

// Runs `command` (a path in /usr and its arguments) with `input` to read, and comes back once none
// of its processes is left; `stop` may become true at any time and ends it. Errors: kIo,
// where the system refuses a process or a pipe. That the sandbox itself did not come up shows as a
// command that ended: let it write something first.
Result<SandboxEnd> runInSandbox(const std::vector<std::string>& command, const std::string& input,
                                const SandboxLimits& limits, const std::atomic<bool>& stop);

// What of the programs that this needs, or of `others` with the packages that have them, is not on
// this machine, as a sentence's part: "there is no bwrap in PATH (Debian package bubblewrap)"; ""
// if all are there.
std::string missingForSandbox(const std::vector<std::pair<std::string, std::string>>& others);

}  // namespace allot
