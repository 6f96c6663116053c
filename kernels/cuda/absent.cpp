// The functions of cuda_decode.h, cuda_prefill.h and cuda_tile_sums.h in a build without CUDA.
// Those that can refuse do. Counts are 0, and the list of draws is empty.
#include "allot/kernels/cuda_decode.h"
#include "allot/kernels/cuda_prefill.h"
#include "allot/kernels/cuda_tile_sums.h"

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
uint64_t Workspace::moves() const { return 0; }
std::optional<std::string> Workspace::failure(Stream) { return kAbsent; }
DrawList Workspace::draws() const { return {}; }

std::optional<std::string> unavailable() { return kAbsent; }
std::optional<std::string> unsupported(const MethodOptions&) { return kAbsent; }
std::optional<std::string> decodeAttention(const MethodOptions&, const PagedKv&,
                                           const DecodeInputs&, Workspace*, const DecodeOutputs&,
                                           Stream) {
  return kAbsent;
}
std::optional<std::string> tileSums(const PagedKv&, const DecodeInputs&, int, int, TileSum*,
                                    Stream) {
  return kAbsent;
}
std::optional<std::string> appendKv(const PagedKv&, const AppendInputs&, Workspace*, Stream) {
  return kAbsent;
}
std::optional<std::string> meanValues(const PagedKv&, const MeanInputs&, float*, Stream) {
  return kAbsent;
}
std::optional<std::string> copyPage(const PagedKv&, int64_t, int64_t, Stream) { return kAbsent; }

struct PrefillWorkspace::Impl {};

PrefillWorkspace::PrefillWorkspace() = default;
PrefillWorkspace::~PrefillWorkspace() = default;
PrefillWorkspace::PrefillWorkspace(PrefillWorkspace&&) noexcept = default;
PrefillWorkspace& PrefillWorkspace::operator=(PrefillWorkspace&&) noexcept = default;
std::optional<std::string> PrefillWorkspace::plan(const MethodOptions&, const PagedKv&,
                                                  const PrefillBounds&) {
  return kAbsent;
}
size_t PrefillWorkspace::bytes() const { return 0; }
bool PrefillWorkspace::takesRounded() const { return false; }
bool isHopper() { return false; }
int PrefillWorkspace::densePositions(int, int most) const { return most; }
std::optional<std::string> PrefillWorkspace::failure(Stream) { return kAbsent; }

std::optional<std::string> prefillUnsupported(const MethodOptions&) { return kAbsent; }
std::optional<std::string> prefillUnsupported(const MethodOptions&, const PagedKv&, int) {
  return kAbsent;
}
std::optional<std::string> attendBlocks(const PagedKv&, const PrefillInputs&, const KeyBits&,
                                        PrefillWorkspace*, const PrefillOutputs&, Stream) {
  return kAbsent;
}
std::optional<std::string> selectBlocks(const MethodOptions&, const PagedKv&, const PrefillInputs&,
                                        const float*, PrefillWorkspace*, KeyBits*, Stream) {
  return kAbsent;
}
std::optional<std::string> attendSampledBlocks(const PagedKv&, const PrefillInputs&,
                                               const QueryDraws&, PrefillWorkspace*,
                                               const PrefillOutputs&, Stream) {
  return kAbsent;
}

}  // namespace allot::kernels::cuda
