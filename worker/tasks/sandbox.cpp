#include "worker/tasks/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

namespace allot {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kNobody = "65534";
constexpr const char* kPrlimit = "/usr/bin/prlimit";  // in the sandbox

// Descriptors of bubblewrap; the command has only 0, 1 and 2, and of a pair its two pipes.
constexpr int kFilterFd = 3;
constexpr int kInfoFd = 4;
constexpr int kFirstFreeFd = kPeerOutFd + 1;

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { close(); }
  int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

tl::unexpected<Error> refused(const std::string& what) {
  return fail(ErrorCode::kIo, "the sandbox: " + what + ": " + std::strerror(errno));
}

struct Pipe {
  Fd read, write;
};
Result<Pipe> makePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return refused("cannot make a pipe");
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

// Returns a file in memory with `bytes`, to read from.
Result<Fd> fileOf(const void* bytes, size_t size) {
  Fd file(memfd_create("allot-sandbox", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) return refused("cannot make a file in memory");
  const char* from = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = write(file.get(), from, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return refused("cannot fill a file in memory");
    from += written;
    size -= static_cast<size_t>(written);
  }
  lseek(file.get(), 0, SEEK_SET);
  fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
  return file;
}

// ---- the filter of system calls ----

#if defined(__x86_64__)
constexpr uint32_t kMachine = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kMachine = AUDIT_ARCH_AARCH64;
#else
#error "the sandbox's filter of system calls is written for x86-64 and aarch64"
#endif

constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr uint32_t errorOf(uint32_t number) { return SECCOMP_RET_ERRNO | number; }

using Filter = std::vector<sock_filter>;

void load(Filter* filter, size_t offset) {
  filter->push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)));
}
void give(Filter* filter, uint32_t verdict) {
  filter->push_back(BPF_STMT(BPF_RET | BPF_K, verdict));
}
// If the loaded value is `value`, continues with the next `count` instructions, else behind them.
void ifEqual(Filter* filter, uint32_t value, uint8_t count) {
  filter->push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count));
}

// Returns the offset of the low half of a call's argument (both machines store it first).
constexpr size_t argument(size_t index) {
  return offsetof(seccomp_data, args) + index * sizeof(uint64_t);
}

Filter makeFilter() {
  Filter filter;
  // Calls by another architecture's numbers (32 bits) would be other calls.
  load(&filter, offsetof(seccomp_data, arch));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMachine, 1, 0));
  give(&filter, SECCOMP_RET_KILL_PROCESS);
  load(&filter, offsetof(seccomp_data, nr));
  // x32's numbers, on x86-64.
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000U, 0, 1));
  give(&filter, errorOf(ENOSYS));
  const uint32_t denied[] = {
      // Memory that no limit of address space counts.
      __NR_shmget, __NR_msgget, __NR_semget, __NR_memfd_create, __NR_memfd_secret,
      // Signals: the published evaluation of HumanEval removes them, too.
      __NR_kill, __NR_tkill, __NR_tgkill, __NR_rt_sigqueueinfo, __NR_rt_tgsigqueueinfo,
      __NR_pidfd_send_signal,
      // Larger buffers of sockets, which are the kernel's memory.
      __NR_setsockopt,
      // New namespaces and mounts: a tmpfs has no limit.
      __NR_unshare, __NR_setns, __NR_mount, __NR_fsopen, __NR_pivot_root, __NR_chroot,
      // Resources shared with the machine, and known ways out of sandboxes.
      __NR_add_key, __NR_request_key, __NR_keyctl, __NR_bpf, __NR_perf_event_open, __NR_userfaultfd,
      __NR_ptrace, __NR_io_uring_setup, __NR_io_uring_enter, __NR_io_uring_register};
  for (const uint32_t call : denied) {
    ifEqual(&filter, call, 1);
    give(&filter, errorOf(EPERM));
  }
  // The flags of clone3 are in memory, which a filter cannot read; the C library falls back to
  // clone.
  ifEqual(&filter, __NR_clone3, 1);
  give(&filter, errorOf(ENOSYS));
  ifEqual(&filter, __NR_clone, 4);
  load(&filter, argument(0));
  constexpr uint32_t kNew = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
                            CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kNew, 0, 1));
  give(&filter, errorOf(EPERM));
  give(&filter, kAllow);
  // Of TCP's memory one program could take all that the machine allows itself. Other families have
  // no namespace, that of a virtual machine's host among them.
  for (const uint32_t call : {__NR_socket, __NR_socketpair}) {
    ifEqual(&filter, call, 4);
    load(&filter, argument(0));
    ifEqual(&filter, AF_UNIX, 1);
    give(&filter, kAllow);
    give(&filter, errorOf(EAFNOSUPPORT));
  }
  give(&filter, kAllow);
  return filter;
}

// ---- the command line ----

std::vector<std::string> wrapped(const std::vector<std::string>& command,
                                 const SandboxLimits& limits) {
  const auto number = [](uint64_t value) { return std::to_string(value); };
  // When memory is short, the kernel ends the sandbox and not the worker.
  std::vector<std::string> line = {"choom", "-n", "1000", "--"};
  const auto add = [&](const std::vector<std::string>& more) {
    line.insert(line.end(), more.begin(), more.end());
  };
  if (geteuid() == 0) {
    add({"setpriv", "--reuid", kNobody, "--regid", kNobody, "--clear-groups", "--"});
  }
  // As process 1 of its namespace the command cannot be outlived by what it starts. In a session of
  // its own it has no terminal, and no process outside is of its group.
  add({"bwrap", "--unshare-user", "--unshare-all", "--as-pid-1", "--die-with-parent",
       "--new-session", "--cap-drop", "ALL", "--uid", kNobody, "--gid", kNobody, "--hostname",
       "sandbox", "--seccomp", number(kFilterFd), "--info-fd", number(kInfoFd), "--clearenv"});
  for (const auto& [name, value] :
       {std::pair{"PATH", "/usr/bin"}, std::pair{"HOME", "/tmp"}, std::pair{"LANG", "C.UTF-8"},
        std::pair{"PYTHONHASHSEED", "0"}}) {
    add({"--setenv", name, value});
  }
  add({"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
       "--symlink", "usr/lib64", "/lib64"});
  for (const char* device : {"/dev/null", "/dev/zero", "/dev/urandom"}) {
    add({"--dev-bind", device, device});
  }
  // The root is a tmpfs made by bubblewrap. It has no limit, so that no process may write there.
  add({"--size", number(limits.tmp_bytes), "--perms", "0700", "--tmpfs", "/tmp", "--chdir", "/tmp",
       "--remount-ro", "/", "--"});
  // Inside, where only processes of the sandbox are counted (Linux 5.14).
  add({kPrlimit, "--cpu=" + number(limits.cpu_seconds), "--as=" + number(limits.address_bytes),
       "--nproc=" + number(limits.processes), "--nofile=" + number(limits.open_files),
       "--fsize=" + number(limits.file_bytes), "--core=0", "--"});
  add(command);
  return line;
}

// ---- the process ----

struct Ends {
  Fd input, output, filter, info;  // the sandbox's
  Fd peer_in, peer_out;            // of a pair
};

Result<pid_t> spawn(std::vector<std::string> line, Ends ends) {
  // Moves all descriptors away from the numbers that they get in the sandbox.
  const bool paired = ends.peer_in.get() >= 0;
  for (Fd* fd :
       {&ends.input, &ends.output, &ends.filter, &ends.info, &ends.peer_in, &ends.peer_out}) {
    if (fd->get() < 0) continue;
    *fd = Fd(fcntl(fd->get(), F_DUPFD_CLOEXEC, kFirstFreeFd));
    if (fd->get() < 0) return refused("cannot copy a file descriptor");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const auto& [fd, place] :
       {std::pair{&ends.input, STDIN_FILENO}, std::pair{&ends.output, STDOUT_FILENO},
        std::pair{&ends.output, STDERR_FILENO}, std::pair{&ends.filter, kFilterFd},
        std::pair{&ends.info, kInfoFd}, std::pair{&ends.peer_in, kPeerInFd},
        std::pair{&ends.peer_out, kPeerOutFd}}) {
    if (fd->get() >= 0) posix_spawn_file_actions_adddup2(&actions, fd->get(), place);
  }
  posix_spawn_file_actions_addclosefrom_np(&actions, paired ? kFirstFreeFd : kPeerInFd);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> argv;
  for (std::string& word : line) argv.push_back(word.data());
  argv.push_back(nullptr);
  const char* folders = std::getenv("PATH");
  std::string path = std::string("PATH=") + (folders != nullptr ? folders : "/usr/bin:/bin");
  char* environment[] = {path.data(), nullptr};
  pid_t pid = -1;
  const int failed = posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environment);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  errno = failed;
  if (failed != 0) return refused("cannot start " + line[0]);
  return pid;
}

// Appends what is there to read, until the text has `most` + 1 bytes. Returns false at the end of
// the file.
bool drain(int fd, size_t most, std::string* text) {
  char buffer[16384];
  while (text->size() <= most) {
    const ssize_t got = read(fd, buffer, std::min(sizeof buffer, most + 1 - text->size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return true;  // nothing for now
    if (got == 0) return false;
    text->append(buffer, static_cast<size_t>(got));
  }
  return true;
}

// Returns the outer pid of process 1 of the sandbox; 0 if bubblewrap has not made it. Waits while
// bubblewrap starts: without its child it could be ended, and the child be left.
pid_t firstProcess(int info) {
  constexpr int kStart = 5000;  // ms
  constexpr size_t kMost = 4096;
  std::string text;
  pollfd ready{info, POLLIN, 0};
  while (text.size() <= kMost && poll(&ready, 1, kStart) > 0 && drain(info, kMost, &text)) {
  }
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto found = json.is_object() ? json.find("child-pid") : json.end();
  return found != json.end() && found->is_number_integer() ? found->get<pid_t>() : 0;
}

class Running {
 public:
  Running(pid_t pid, Fd output, Fd info)
      : pid_(pid), output_(std::move(output)), info_(std::move(info)) {
    for (const Fd* end : {&output_, &info_}) fcntl(end->get(), F_SETFL, O_NONBLOCK);
    ended_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  }
  ~Running() { end(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // Becomes readable when bubblewrap has ended, which happens after the whole sandbox.
  int endedFd() const { return ended_.get(); }
  int outputFd() const { return output_.get(); }  // -1 after its end
  const std::string& output() const { return text_; }

  // Reads the output as far as it is there. Returns false once it is longer than `most`.
  bool readOutput(size_t most) {
    if (output_.get() >= 0 && !drain(output_.get(), most, &text_)) output_.close();
    if (text_.size() <= most) return true;
    text_.resize(most);
    return false;
  }

  // When process 1 ends, the kernel ends all others and waits for them; bubblewrap ends after that.
  // Process 1 stays a zombie until bubblewrap has reaped it: its number is not reused.
  void end() {
    if (status_ || reap(WNOHANG)) return;
    const pid_t first = firstProcess(info_.get());
    if (first <= 1 || kill(first, SIGKILL) != 0) kill(-pid_, SIGKILL);
    reap(0);
  }

  int wait() {
    if (!status_) reap(0);
    return *status_;
  }

 private:
  bool reap(int flags) {
    int status = 0;
    pid_t got = 0;
    while ((got = waitpid(pid_, &status, flags)) < 0 && errno == EINTR) {
    }
    if (got == 0) return false;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
  }

  pid_t pid_;
  Fd output_, info_, ended_;
  std::string text_;
  std::optional<int> status_;
};

Result<std::unique_ptr<Running>> start(const SandboxJob& job, const SandboxLimits& limits,
                                       Fd peer_in, Fd peer_out) {
  static const Filter filter = makeFilter();
  Ends ends;
  ALLOT_ASSIGN(ends.input, fileOf(job.input.data(), job.input.size()));
  ALLOT_ASSIGN(ends.filter, fileOf(filter.data(), filter.size() * sizeof(sock_filter)));
  ALLOT_ASSIGN(Pipe output, makePipe());
  ALLOT_ASSIGN(Pipe info, makePipe());
  ends.output = std::move(output.write);
  ends.info = std::move(info.write);
  ends.peer_in = std::move(peer_in);
  ends.peer_out = std::move(peer_out);
  ALLOT_ASSIGN(const pid_t pid, spawn(wrapped(job.command, limits), std::move(ends)));
  auto running = std::make_unique<Running>(pid, std::move(output.read), std::move(info.read));
  if (running->endedFd() < 0) return refused("cannot watch a process");
  return running;
}

// How often the caller's stop is checked.
constexpr std::chrono::milliseconds kLook{50};

// Waits for the end of `running`, and reads the output of `peer` meanwhile, if there is one.
SandboxEnd watch(Running* running, Running* peer, const SandboxLimits& limits,
                 const std::atomic<bool>& stop) {
  using Why = SandboxEnd::Why;
  const auto deadline = Clock::now() + limits.wall;
  SandboxEnd end;
  while (true) {
    pollfd ends[3] = {{running->endedFd(), POLLIN, 0},
                      {running->outputFd(), POLLIN, 0},
                      {peer != nullptr ? peer->outputFd() : -1, POLLIN, 0}};
    poll(ends, 3, static_cast<int>(kLook.count()));
    const bool fits = running->readOutput(limits.output_bytes) &&
                      (peer == nullptr || peer->readOutput(limits.output_bytes));
    if (!fits) {
      end.why = Why::kWroteTooMuch;
    } else if (ends[0].revents != 0) {
      end.status = running->wait();
    } else if (stop) {
      end.why = Why::kStopped;
    } else if (Clock::now() >= deadline) {
      end.why = Why::kTimedOut;
    } else {
      continue;
    }
    running->end();
    running->readOutput(limits.output_bytes);
    end.output = running->output();
    if (peer == nullptr) return end;
    peer->end();
    peer->readOutput(limits.output_bytes);
    end.peer_output = peer->output();
    return end;
  }
}

bool inPath(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::stringstream folders(path != nullptr ? path : "/usr/bin:/bin");
  std::string folder;
  while (std::getline(folders, folder, ':')) {
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

}  // namespace

Result<SandboxEnd> runInSandbox(const SandboxJob& job, const SandboxLimits& limits,
                                const std::atomic<bool>& stop) {
  ALLOT_ASSIGN(const auto running, start(job, limits, {}, {}));
  return watch(running.get(), nullptr, limits, stop);
}

Result<SandboxEnd> runPair(const SandboxJob& job, const SandboxJob& peer,
                           const SandboxLimits& limits, const std::atomic<bool>& stop) {
  ALLOT_ASSIGN(Pipe to_peer, makePipe());
  ALLOT_ASSIGN(Pipe from_peer, makePipe());
  ALLOT_ASSIGN(const auto second,
               start(peer, limits, std::move(to_peer.read), std::move(from_peer.write)));
  ALLOT_ASSIGN(const auto first,
               start(job, limits, std::move(from_peer.read), std::move(to_peer.write)));
  return watch(first.get(), second.get(), limits, stop);
}

std::string missingForSandbox(const std::vector<std::pair<std::string, std::string>>& others) {
  std::vector<std::pair<std::string, std::string>> needed = {{"bwrap", "bubblewrap"},
                                                             {"choom", "util-linux"},
                                                             {"setpriv", "util-linux"},
                                                             {kPrlimit, "util-linux"}};
  needed.insert(needed.end(), others.begin(), others.end());
  for (const auto& [program, package] : needed) {
    const bool placed = program.starts_with("/");
    if (placed ? access(program.c_str(), X_OK) == 0 : inPath(program)) continue;
    return "there is no " + program + (placed ? "" : " in PATH") + " (Debian package " + package +
           ")";
  }
  return "";
}

}  // namespace allot
