// allot-bench: what allot costs on this machine. Prints figures; gates nothing.
#include <cstring>
#include <string>
#include <vector>

#include "core/build.h"
#include "kernels/bench/benches.h"
#include "tests/bench/benches.h"

namespace allot {
namespace {

using bench::kUnavailable;
using bench::refuse;

constexpr char kHelp[] =
    "allot-bench: what allot costs on this machine\n"
    "Usage: allot-bench PART [OPTIONS]\n\n"
    "Parts:\n"
    "  decode       one decode step of one attention layer, by method: on the GPU if there is "
    "one,\n"
    "               else on the CPU\n"
    "  decode gpu   the same on a GPU, beside PyTorch, FlashInfer or kernels of yours\n"
    "  decode cpu   the same on the CPU, beside LibTorch\n"
    "  decode model whole decode steps of a model on a GPU: time per output token\n"
    "  prefill      a prompt in one attention layer on a GPU, by method, beside the same peers\n"
    "  store        what Redis and the aggregator sustain, without a model\n"
    "  worker       episodes a second, and where the time goes\n\n"
    "Examples:\n"
    "  allot-bench decode --keys 32768 --methods dense s2anta-q4 --json decode.json\n"
    "  allot-bench decode gpu --rows 16 --keys 32768 --budgets 128 --peers torch,flashinfer\n"
    "  allot-bench decode model --shapes 1x131072 --methods dense \"s2anta-q4 @256\"\n"
    "  allot-bench prefill --keys 131072 --density 0.1\n"
    "  allot-bench store --updates 10000\n"
    "  allot-bench worker --workers 2 --seconds 20\n\n"
    "`allot-bench PART --help` has a part's options, and how it measures.\n"
    "Exit codes: 0 done, 64 a mistake that you can mend, 69 no such GPU or library here, 70 a "
    "fault,\n"
    "74 a file cannot be written.\n";

using Part = int (*)(int argc, char** argv);

// Calls a part with a name for its --help.
int call(Part part, const std::string& name, char** first, char** last) {
  std::string whole = "allot-bench " + name;
  std::vector<char*> arguments = {whole.data()};
  arguments.insert(arguments.end(), first, last);
  arguments.push_back(nullptr);
  return part(static_cast<int>(arguments.size()) - 1, arguments.data());
}

// What a build leaves out says so.
int decodeOnCpu([[maybe_unused]] int argc, [[maybe_unused]] char** argv) {
#ifdef ALLOT_BENCH_TORCH
  return bench::decodeOnCpu(argc, argv);
#else
  return refuse("decode cpu: this build is without LibTorch", kUnavailable);
#endif
}
int decodeOnGpu([[maybe_unused]] int argc, [[maybe_unused]] char** argv) {
#ifdef ALLOT_BENCH_CUDA
  return bench::decodeOnGpu(argc, argv);
#else
  return refuse("decode gpu: this build is without CUDA", kUnavailable);
#endif
}
int prefill([[maybe_unused]] int argc, [[maybe_unused]] char** argv) {
#ifdef ALLOT_BENCH_CUDA
  return bench::prefillOnGpu(argc, argv);
#else
  return refuse("prefill: this build is without CUDA", kUnavailable);
#endif
}
int decodeModel([[maybe_unused]] int argc, [[maybe_unused]] char** argv) {
#ifdef ALLOT_BENCH_MODEL
  return benchModelSteps(argc, argv);
#else
  return refuse("decode model: this build is without a LibTorch with CUDA", kUnavailable);
#endif
}
int store([[maybe_unused]] int argc, [[maybe_unused]] char** argv) {
#ifdef ALLOT_BENCH_TORCH
  return benchStore(argc, argv);
#else
  return refuse("store: this build has the kernels' parts alone", kUnavailable);
#endif
}
int worker([[maybe_unused]] int argc, [[maybe_unused]] char** argv) {
#ifdef ALLOT_BENCH_TORCH
  return benchWorker(argc, argv);
#else
  return refuse("worker: this build has the kernels' parts alone", kUnavailable);
#endif
}

int decode(int argc, char** argv) {
#ifdef ALLOT_BENCH_CUDA
  const auto reason = bench::whyNoGpu();
#else
  const std::optional<std::string> reason = "this build is without CUDA";
#endif
  if (!reason) return call(decodeOnGpu, "decode gpu", argv + 1, argv + argc);
  std::fprintf(stderr, "allot-bench: on the CPU: %s\n", reason->c_str());
  return call(decodeOnCpu, "decode cpu", argv + 1, argv + argc);
}

// The longer name first.
constexpr struct {
  const char *name, *kind;
  Part part;
} kParts[] = {{"decode", "gpu", decodeOnGpu},   {"decode", "cpu", decodeOnCpu},
              {"decode", "model", decodeModel}, {"decode", nullptr, decode},
              {"prefill", nullptr, prefill},    {"store", nullptr, store},
              {"worker", nullptr, worker}};

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "--help";
  if (first == "--help" || first == "-h" || first == "help") {
    std::printf("%s", kHelp);
    return 0;
  }
  if (first == "--version") {
    std::printf("%s\n", buildText().c_str());
    return 0;
  }
  for (const auto& [name, kind, part] : kParts) {
    if (first != name) continue;
    if (kind == nullptr) return call(part, name, argv + 2, argv + argc);
    if (argc < 3 || std::strcmp(argv[2], kind) != 0) continue;
    return call(part, first + " " + kind, argv + 3, argv + argc);
  }
  return refuse("no part '" + first + "'; there are decode, prefill, store and worker");
}

}  // namespace
}  // namespace allot

int main(int argc, char** argv) { return allot::main(argc, argv); }
