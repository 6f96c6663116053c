// allot bench.
#include <string>
#include <vector>

#include "cli/child_process.h"
#include "cli/commands.h"

namespace allot {
namespace {

// Becomes allot-bench, which measures on the GPU, or on the CPU where none can be used.
Status benchKernels(std::vector<std::string> arguments) {
  const std::string program = siblingProgram("allot-bench");
  if (!findProgram(program)) {
    return badInput("there is no " + program + "; `./run build release allot-bench` makes it");
  }
  arguments.insert(arguments.begin(), "decode");
  return tl::unexpected(become({program, arguments, {}}));
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
      "Decode attention by method beside PyTorch's, as `allot-bench decode`: on the GPU where one "
      "can be used, else on the CPU; options go to it, --help too");
  kernels->set_help_flag();
  kernels->prefix_command();
  kernels->callback([=] {
    *action = [arguments = kernels->remaining()] { return exitCodeOf(benchKernels(arguments)); };
  });
}

}  // namespace allot
