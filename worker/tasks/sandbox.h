#pragma once
// Sandbox: runs untrusted commands, isolated from this machine's files, network and processes, and
// within limits. Several threads may each run one at the same time.
//
// bubblewrap gives a command separate namespaces (user, processes, network, mounts, System V IPC,
// host name). The command sees /usr, read-only, an empty /tmp in memory, and three devices; no
// other file and no /proc. A seccomp filter refuses calls that namespaces and limits do not cover:
// memory outside of the address space, signals, sockets outside the unix and internet families, new
// namespaces, and kernel interfaces that no program of a task needs. If the caller is root, the
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

struct SandboxEnd {
  enum class Why { kEnded, kTimedOut, kWroteTooMuch, kStopped };
  Why why = Why::kEnded;
  int status = 0;      // of kEnded: its exit code, or 128 + signal
  std::string output;  // stdout and stderr, at most output_bytes
};

// Runs `command` (a path in /usr and its arguments) with `input` on standard input. Returns once
// none of its processes is left. `stop` may become true at any time and then ends the command. kIo
// if the system refuses a process or a pipe. If the sandbox itself does not start, that looks like
// a command that ended: let the command write something first.
Result<SandboxEnd> runInSandbox(const std::vector<std::string>& command, const std::string& input,
                                const SandboxLimits& limits, const std::atomic<bool>& stop);

// Returns the first missing program of those that the sandbox needs and of `others` (program,
// Debian package), as in "there is no bwrap in PATH (Debian package bubblewrap)"; "" if none is
// missing.
std::string missingForSandbox(const std::vector<std::pair<std::string, std::string>>& others);

}  // namespace allot
