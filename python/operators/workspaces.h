#pragma once
// Workspaces: the scratch memory of kernels/, which operators name by a number.
//
// A process that was forked has the numbers of its parent, but no thread of it: there a number's
// workspace is made anew when it is first used.
//
// A number passes through torch.compile, torch.export and CUDA graphs as a constant, which an
// object of C++ does not. Numbers are never used twice. Any thread; a workspace is used by one call
// at a time, others wait.
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
  Workspace(at::Device on, int count);

  // Room on the CPU for rows of at most max_length keys; refused where there is no memory for it.
  void planDecode(int max_length, int group, int head_dim);

  const at::Device device;
  const int threads;
  const int process;  // that has the threads
  std::mutex mutex;
  // On the CPU.
  kernels::DecodeWorkspace decode;
  kernels::PrefillWorkspace prefill;
  // On a GPU.
  kernels::cuda::Workspace cuda_decode;
  kernels::cuda::PrefillWorkspace cuda_prefill;
};

// Refused: a number that names none, or one of another device.
std::shared_ptr<Workspace> workspaceOf(int64_t number, at::Device device);
std::shared_ptr<Workspace> workspaceOf(int64_t number);

int64_t makeWorkspace(at::Device device, int64_t threads);
void freeWorkspace(int64_t number);

// The method of a text, refused where it is none of the phase. Texts are parsed once a thread.
const kernels::MethodOptions& methodOf(const std::string& text, kernels::Phase phase);

}  // namespace allot::bindings
