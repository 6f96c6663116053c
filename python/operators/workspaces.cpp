#include "python/operators/workspaces.h"

#include <unistd.h>

#include <limits>
#include <new>
#include <stdexcept>
#include <system_error>
#include <unordered_map>
#include <utility>

namespace allot::bindings {
namespace {

constexpr int64_t kMostThreads = 1024;

struct Registry {
  std::mutex mutex;
  std::unordered_map<int64_t, std::shared_ptr<Workspace>> all;
  int64_t next = 1;
};

// Leaks a workspace: threads of another process can be neither woken nor joined.
void leave(std::shared_ptr<Workspace> workspace) {
  static_cast<void>(new std::shared_ptr<Workspace>(std::move(workspace)));
}

// Returns a method's text as an error quotes it: 100 bytes at most, without control characters.
std::string quoted(const std::string& text) {
  constexpr size_t kMost = 100;
  std::string words = text.substr(0, kMost);
  for (char& c : words) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
  }
  return '"' + words + (text.size() > kMost ? "...\"" : "\"");
}

// Returns the registry. It is never destroyed: the GPU's driver may be gone at the process's end.
Registry& registry() {
  static Registry* const one = new Registry;
  return *one;
}

}  // namespace

Workspace::Workspace(at::Device on, int count) try
    : device(on), threads(count), process(getpid()), decode(count), prefill(count) {
} catch (const std::system_error&) {
  refuse("this process may not have " + std::to_string(count) + " threads: pass fewer");
}

void Workspace::planDecode(int max_length, int group, int head_dim) {
  // plan() rounds lengths up; they must stay in the range of int.
  constexpr int kMostKeys = std::numeric_limits<int>::max() - 4096;
  try {
    if (max_length <= kMostKeys) return decode.plan(max_length, group, head_dim);
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  refuse("there is no memory for rows of " + std::to_string(max_length) + " keys under " +
         std::to_string(group) + " heads a KV head");
}

std::shared_ptr<Workspace> workspaceOf(int64_t number) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto found = r.all.find(number);
  if (found == r.all.end()) {
    refuse("there is no workspace " + std::to_string(number) +
           ": allot::make_workspace makes one and gives its number");
  }
  std::shared_ptr<Workspace>& here = found->second;
  if (here->process != getpid() && here->device.is_cpu()) {
    auto anew = std::make_shared<Workspace>(here->device, here->threads);
    leave(std::exchange(here, std::move(anew)));
  }
  return here;
}

std::shared_ptr<Workspace> workspaceOf(int64_t number, at::Device device) {
  std::shared_ptr<Workspace> workspace = workspaceOf(number);
  if (workspace->device != device) {
    refuse("workspace " + std::to_string(number) + " is on " + workspace->device.str() +
           ", but the cache is on " + device.str());
  }
  return workspace;
}

int64_t makeWorkspace(at::Device device, int64_t threads) {
  if (threads < 1 || threads > kMostThreads) {
    refuse("threads = " + std::to_string(threads) + " is not from 1 to " +
           std::to_string(kMostThreads));
  }
  if (device.is_cuda()) {
    refuseIf(kernels::cuda::unavailable());
    if (!device.has_index()) refuse("a workspace on a GPU needs its index: cuda:0");
    threads = 1;
  } else if (!device.is_cpu()) {
    refuse("there are kernels for cpu and cuda, not for " + device.str());
  }
  auto workspace = std::make_shared<Workspace>(device, static_cast<int>(threads));
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  r.all[r.next] = std::move(workspace);
  return r.next++;
}

void freeWorkspace(int64_t number) {
  std::shared_ptr<Workspace> last;  // destroyed outside of the lock
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto found = r.all.find(number);
  if (found == r.all.end()) return;
  last = std::move(found->second);
  r.all.erase(found);
  if (last->process != getpid()) leave(std::move(last));
}

const kernels::MethodOptions& methodOf(const std::string& text, kernels::Phase phase) {
  thread_local std::unordered_map<std::string, kernels::MethodOptions> known[2];
  auto& here = known[phase == kernels::Phase::kPrefill ? 0 : 1];
  const auto found = here.find(text);
  if (found != here.end()) return found->second;
  kernels::MethodOptions options;
  if (const auto why = kernels::parseMethod(text, &options, phase)) {
    refuse("method " + quoted(text) + ": " + *why);
  }
  return here.emplace(text, options).first->second;
}

}  // namespace allot::bindings
