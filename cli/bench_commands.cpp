// allot bench.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/child_process.h"
#include "cli/commands.h"

namespace allot {
namespace {

// Becomes the benchmark of the GPU, or of the CPU where none can be used.
Status benchKernels(const std::vector<std::string>& arguments) {
  const std::string gpu = siblingProgram("allot-cuda-bench");
  const std::string cpu = siblingProgram("allot-kernel-bench");
  std::string reason = "there is no " + gpu;
  if (findProgram(gpu)) {
    ALLOT_ASSIGN(const Output probe, capture({gpu, {"--probe"}, {}}));
    if (probe.status == 0) return tl::unexpected(become({gpu, arguments, {}}));
    reason = lastLine(probe.err);
    if (reason.empty()) reason = gpu + " ends with " + std::to_string(probe.status);
  }
  if (!findProgram(cpu)) {
    return badInput("no benchmark to run: " + reason + ", and no " + cpu +
                    "; `./run build release` makes both");
  }
  std::fprintf(stderr, "allot: on the CPU: %s\n", reason.c_str());
  return tl::unexpected(become({cpu, arguments, {}}));
}

}  // namespace

void addBenchCommands(CLI::App* app, Action* action) {
  auto* bench = app->add_subcommand("bench", "Measure this machine");
  bench->group(kRunGroup);
  bench->require_subcommand(1);
  bench->footer(
      "Examples:\n"
      "  allot bench kernels\n"
      "  allot bench kernels --help                        # what it measures, and how\n"
      "  allot bench kernels --rows 16 --keys 32768 --json h200.json   # on a GPU\n"
      "  allot bench kernels --keys 32768 --methods dense s2anta-q4");
  auto* kernels = bench->add_subcommand(
      "kernels",
      "Decode attention by method beside PyTorch's: allot-cuda-bench where a GPU can be used, else "
      "allot-kernel-bench; options go to it, --help too");
  kernels->set_help_flag();
  kernels->prefix_command();
  kernels->callback([=] {
    *action = [arguments = kernels->remaining()] { return exitCodeOf(benchKernels(arguments)); };
  });
}

}  // namespace allot
