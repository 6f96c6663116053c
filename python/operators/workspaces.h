#pragma once
// Workspaces: the scratch memory of kernels/, which operators name by a number. A number passes
// through torch.compile, torch.export and CUDA graphs as a constant; a C++ object does not. Numbers
// are never used twice.
//
// A forked process has the numbers of its parent, but none of the parent's threads. A CPU workspace
// is made anew there when its number is first used.
//
// Any thread. A caller holds `mutex` while it uses a workspace.
#include <memory>
#include <mutex>
#include <string>

#include "allot/kernels/cuda_decode.h"
#include "allot/kernels/cuda_prefill.h"
#include "allot/kernels/decode.h"
#include "allot/kernels/method.h"
#include "allot/kernels/prefill.h"
#include "python/operators/tensors.h"

namespace allot::bindings {

struct Workspace {
  // Starts `count` - 1 threads for decode, and as many for prefill. Refuses if they do not start.
  Workspace(at::Device on, int count);

  // Makes room on the CPU for rows of at most max_length keys. Refuses if there is no memory.
  void planDecode(int max_length, int group, int head_dim);

  const at::Device device;
  const int threads;
  const int process;  // the id of the process that started the threads
  std::mutex mutex;
  // On the CPU.
  kernels::DecodeWorkspace decode;
  kernels::PrefillWorkspace prefill;
  // On a GPU.
  kernels::cuda::Workspace cuda_decode;
  kernels::cuda::PrefillWorkspace cuda_prefill;
};

// Return the workspace of a number. Refuse a number without one, or with one on another device.
std::shared_ptr<Workspace> workspaceOf(int64_t number, at::Device device);
std::shared_ptr<Workspace> workspaceOf(int64_t number);

// Makes a workspace and returns its number. Refuses threads outside of 1 .. 1024, a GPU that is not
// usable or has no index, and other devices. A GPU's workspace has one thread.
int64_t makeWorkspace(at::Device device, int64_t threads);
// Forgets a number; a number without a workspace is ignored. Calls in progress keep the workspace.
void freeWorkspace(int64_t number);

// Returns the method of a text; refuses others than the phase's. Parses a text once a thread.
const kernels::MethodOptions& methodOf(const std::string& text, kernels::Phase phase);

}  // namespace allot::bindings
