#pragma once
// Sandbox: runs untrusted commands, isolated from this machine's files, network and processes, and
// within limits. Several threads may each run one at the same time.
//
// bubblewrap gives a command separate namespaces (user, processes, network, mounts, System V IPC,
// host name). It sees /usr, read-only, an empty /tmp in memory, and three devices; no other file
// and no /proc. A seccomp filter refuses calls that namespaces and limits do not cover: memory
// outside of the address space, signals, sockets except those of the unix family, new namespaces,
// and kernel interfaces that no program of a task needs. If the caller is root, the
// command runs as nobody, because the kernel's limit of processes does not bind root. When the
// command ends, all its processes are ended. They also end with the caller's process. The command
// does not inherit the caller's other file descriptors or environment.
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
  size_t output_bytes = size_t{1} << 20;         // of stdout and stderr together
};

struct SandboxJob {
  std::vector<std::string> command;  // a path in /usr and its arguments
  std::string input;                 // on standard input
};

struct SandboxEnd {
  enum class Why { kEnded, kTimedOut, kWroteTooMuch, kStopped };
  Why why = Why::kEnded;
  int status = 0;           // of kEnded: its exit code, or 128 + signal
  std::string output;       // both, at most output_bytes
  std::string peer_output;  // the same of runPair()'s peer
};

// Runs a command. Returns once none of its processes is left. `stop` may become true at any time
// and ends it. kIo if the system refuses a process or a pipe. If the sandbox itself does not start,
// that looks like a command that ended: let the command write something first.
Result<SandboxEnd> runInSandbox(const SandboxJob& job, const SandboxLimits& limits,
                                const std::atomic<bool>& stop);

// Descriptors of both commands of a pair: of the pipe from the other one, and of that to it.
inline constexpr int kPeerInFd = 5;
inline constexpr int kPeerOutFd = 6;

// As runInSandbox(), and runs `peer` meanwhile in a second sandbox with the same limits. The two
// pipes are all that the sandboxes have in common. The end of `job` ends `peer`. How and when
// `peer` ends is not reported, except that more than output_bytes of it end both.
Result<SandboxEnd> runPair(const SandboxJob& job, const SandboxJob& peer,
                           const SandboxLimits& limits, const std::atomic<bool>& stop);

// Returns the first missing program of those that the sandbox needs and of `others` (program,
// Debian package), as in "there is no bwrap in PATH (Debian package bubblewrap)"; "" if none is
// missing.
std::string missingForSandbox(const std::vector<std::pair<std::string, std::string>>& others);

}  // namespace allot
