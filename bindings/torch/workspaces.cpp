#include "bindings/torch/workspaces.h"

#include <unordered_map>

namespace allot::bindings {
namespace {

constexpr int64_t kMostThreads = 1024;

struct Registry {
  std::mutex mutex;
  std::unordered_map<int64_t, std::shared_ptr<Workspace>> all;
  int64_t next = 1;
};

// Never destroyed: at the process's end the GPU's driver may be gone before it.
Registry& registry() {
  static Registry* const one = new Registry;
  return *one;
}

}  // namespace

std::shared_ptr<Workspace> workspaceOf(int64_t number) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto found = r.all.find(number);
  if (found == r.all.end()) {
    refuse("there is no workspace " + std::to_string(number) +
           ": allot::make_workspace makes one and gives its number");
  }
  return found->second;
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
}

const kernels::MethodOptions& methodOf(const std::string& text, kernels::Phase phase) {
  thread_local std::unordered_map<std::string, kernels::MethodOptions> known[2];
  auto& here = known[phase == kernels::Phase::kPrefill ? 0 : 1];
  const auto found = here.find(text);
  if (found != here.end()) return found->second;
  kernels::MethodOptions options;
  if (const auto why =
          kernels::parseMethod(text, &options, kernels::MethodDefaults::kSecond, phase)) {
    refuse("method \"" + text + "\": " + *why);
  }
  return here.emplace(text, options).first->second;
}

}  // namespace allot::bindings
