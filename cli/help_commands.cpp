// allot help, completion, explain; keys, methods, models, tasks, metrics: tables of explain by the
// names that they had.
#include <cstdio>
#include <memory>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/explain.h"
#include "cli/terminal.h"

namespace allot {
namespace {

struct ExplainOptions {
  std::string subject;
  OutputFormat format = OutputFormat::kTable;
};

Status show(const ExplainOptions& options) {
  const size_t width = terminalWidth();
  ALLOT_ASSIGN(const Explanation told, explain(options.subject, width, usesColour()));
  if (options.format == OutputFormat::kMarkdown) {
    std::printf("%s", told.markdown.c_str());
  } else {
    printAs(options.format, told.kind, told.fields, told.text);
  }
  return {};
}

// Returns what the former command prints without -o; "": what explain() returns.
std::string asBefore(const std::string& name) {
  if (name == "methods") return methodsText();
  if (name == "tasks") return tasksText();
  return "";
}

void addFormerName(CLI::App* app, Action* action, const std::string& name, const char* what) {
  auto options = std::make_shared<ExplainOptions>();
  options->subject = name;
  const bool markdown = asBefore(name).empty();
  if (markdown) options->format = OutputFormat::kMarkdown;
  auto* command = app->add_subcommand(name, what);
  command->group(kHiddenGroup);
  addOutput(command, &options->format, true);
  command->footer("Example:\n  allot " + name + (markdown ? " | less" : ""));
  command->callback([=] {
    *action = [=] {
      const std::string text = asBefore(name);
      if (options->format != OutputFormat::kTable || text.empty()) {
        return exitCodeOf(show(*options));
      }
      std::printf("%s", text.c_str());
      return 0;
    };
  });
}

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

void addExplainCommands(CLI::App* app, Action* action) {
  auto options = std::make_shared<ExplainOptions>();
  auto* command =
      app->add_subcommand("explain", "What can stand in an experiment file, and what is measured");
  command->group(kLookUpGroup);
  std::string topics;
  for (const Topic& topic : explainTopics()) topics += (topics.empty() ? "" : ", ") + topic.name;
  command->add_option("TOPIC", options->subject,
                      topics + "; a key or section of the file; a method [the list of topics]");
  addOutput(command, &options->format, true);
  command->footer(
      "Examples:\n"
      "  allot explain\n"
      "  allot explain spec.policy\n"
      "  allot explain spec.policy.totalBudget\n"
      "  allot explain s2anta-sys\n"
      "  allot explain methods -o json");
  command->callback([=] { *action = [options] { return exitCodeOf(show(*options)); }; });
  addFormerName(app, action, "keys", "Every key of the experiment file (Markdown)");
  addFormerName(app, action, "methods", "Every attention method, what it does, its parameters");
  addFormerName(app, action, "models",
                "What models can be of, and what they can be asked in (Markdown)");
  addFormerName(app, action, "tasks", "Every suite with its tasks, and every grader");
  addFormerName(app, action, "metrics", "Every metric that the processes export (Markdown)");
}

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
