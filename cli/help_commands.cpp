// allot help, completion.
#include <cstdio>
#include <memory>

#include "cli/command_line.h"
#include "cli/commands.h"

namespace allot {
namespace {

struct HelpOptions {
  std::vector<std::string> words;
  std::string output = "text";
  std::string shell;
};

Status help(const CLI::App& app, const HelpOptions& options) {
  if (options.output == "markdown") {
    std::printf("%s", commandsMarkdown(app).c_str());
    return {};
  }
  ALLOT_ASSIGN(const CLI::App* command, findCommand(app, options.words));
  std::printf("%s", helpText(command).c_str());
  return {};
}

}  // namespace

void addHelpCommands(CLI::App* app, Action* action) {
  auto options = std::make_shared<HelpOptions>();
  auto* command = app->add_subcommand("help", "What a command does, with examples");
  command->group(kLookUpGroup);
  command->add_option("COMMAND", options->words, "One of them [a list of all]");
  command->add_option("-o,--output", options->output, "text, or markdown of all commands [text]")
      ->check(CLI::IsMember({"text", "markdown"}));
  command->footer("Examples:\n  allot help\n  allot help show question");
  command->callback([=] { *action = [=] { return exitCodeOf(help(*app, *options)); }; });

  auto* completion =
      app->add_subcommand("completion", "A script with which a shell completes allot");
  completion->group(kLookUpGroup);
  completion->add_option("SHELL", options->shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer(
      "Examples:\n"
      "  source <(allot completion bash)                                   # in ~/.bashrc\n"
      "  source <(allot completion zsh)                                    # in ~/.zshrc\n"
      "  allot completion fish > ~/.config/fish/completions/allot.fish");
  completion->callback([=] {
    *action = [=] {
      std::printf("%s", completionScript(*app, options->shell).c_str());
      return 0;
    };
  });
}

}  // namespace allot
