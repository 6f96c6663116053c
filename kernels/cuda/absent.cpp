// What cuda_decode.h is in a build without nvcc or with a LibTorch for CPUs: it says so.
#include "allot/kernels/cuda_decode.h"

namespace allot::kernels::cuda {
namespace {

const char* const kAbsent =
    "this build has no CUDA kernels: build it where there are nvcc and a LibTorch with CUDA "
    "(preset cuda)";

}  // namespace

struct Workspace::Impl {};

Workspace::Workspace() = default;
Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;
std::optional<std::string> Workspace::plan(const MethodOptions&, const PagedKv&,
                                           const StepBounds&) {
  return kAbsent;
}
size_t Workspace::bytes() const { return 0; }
std::optional<std::string> Workspace::failure(Stream) { return kAbsent; }
DrawList Workspace::draws() const { return {}; }

std::optional<std::string> unavailable() { return kAbsent; }
std::optional<std::string> unsupported(const MethodOptions&) { return kAbsent; }
std::optional<std::string> decodeAttention(const MethodOptions&, const PagedKv&,
                                           const DecodeInputs&, Workspace*, const DecodeOutputs&,
                                           Stream) {
  return kAbsent;
}
std::optional<std::string> appendKv(const PagedKv&, const AppendInputs&, Workspace*, Stream) {
  return kAbsent;
}
std::optional<std::string> copyPage(const PagedKv&, int64_t, int64_t, Stream) { return kAbsent; }

}  // namespace allot::kernels::cuda
