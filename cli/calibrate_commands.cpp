// allot calibrate.
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/process.h"

namespace allot {

void addCalibrateCommands(CLI::App* app, Action* action) {
  auto* calibrate =
      app->add_subcommand("calibrate", "What a prefill method's parameters should be for a model");
  calibrate->require_subcommand(1);
  calibrate->footer(
      "Examples:\n"
      "  allot calibrate sale experiments/recall-prefill/experiment.yaml --theta 0.4\n"
      "  allot calibrate sale --help                               what it finds, and how\n"
      "  allot calibrate sample-attention experiments/recall-prefill/experiment.yaml");
  auto* sale = calibrate->add_subcommand(
      "sale", "SALE's threshold of each head: a profile for sale tau=profile");
  sale->set_help_flag();
  sale->prefix_command();
  sale->callback([=] {
    // It needs the model, which this program does not know.
    *action = [arguments = sale->remaining()]() mutable {
      arguments.insert(arguments.begin(), "sale");
      return exitCodeOf(tl::unexpected(become({siblingProgram("allot-calibrate"), arguments, {}})));
    };
  });
}

}  // namespace allot
