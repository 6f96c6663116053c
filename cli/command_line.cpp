#include "cli/command_line.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "cli/terminal.h"
#include "core/spec/spec_rules.h"

namespace allot {
namespace {

constexpr char kExitCodes[] =
    "Exit codes: 0 done, 64 a mistake that you can mend, 65 data that is not what it should be, 69 "
    "no answer from the store or the cluster, 70 a fault of allot or of the machine, 74 the disk.";
constexpr size_t kTextWidth = 80;
constexpr size_t kMarkdownWidth = 160;

std::vector<std::string> linesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Wraps paragraphs. Indented lines, which are examples, stay as they are.
std::string laidOut(const std::string& text) {
  std::string out;
  for (const std::string& line : linesOf(text)) {
    const bool as_is = line.empty() || line.front() == ' ';
    out += as_is ? line + "\n" : wrapped(line, kTextWidth);
  }
  return out;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_footer(const CLI::App* app) const override {
    std::string footer = app->get_footer();
    if (!footer.empty()) footer += "\n\n";
    return laidOut(footer + kExitCodes);
  }

  // Returns "json|yaml|table" instead of TEXT:{json,yaml,table}, and UINT without its range.
  std::string make_option_opts(const CLI::Option* option) const override {
    if (!option->get_option_text().empty() || option->get_items_expected_max() == 0) {
      return CLI::Formatter::make_option_opts(option);
    }
    const std::string type = option->get_type_name();
    const size_t from = type.find('{'), to = type.find('}');
    std::string shown = type.substr(0, type.find(':'));
    if (from < to && to != std::string::npos) shown = type.substr(from + 1, to - from - 1);
    std::replace(shown.begin(), shown.end(), ',', '|');
    const bool many = option->get_expected_max() >= CLI::detail::expected_max_vector_size;
    return " " + shown + (many ? " ..." : "") + (option->get_required() ? " REQUIRED" : "");
  }
};

bool isShown(const CLI::App* command) {
  return !command->get_name().empty() && !command->get_group().empty();
}

std::vector<const CLI::App*> shownCommands(const CLI::App* app) {
  std::vector<const CLI::App*> shown;
  for (const CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    if (isShown(command)) shown.push_back(command);
  }
  return shown;
}

// Includes hidden commands: `allot metods` means one of them.
std::vector<std::string> namesOf(const CLI::App* app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> optionNames(const CLI::App* command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::string didYouMean(const std::string& meant) {
  return meant.empty() ? "" : " (did you mean " + meant + "?)";
}

// Returns the command whose arguments were read last.
const CLI::App* deepest(const CLI::App* app) {
  while (true) {
    const auto chosen = app->get_subcommands();
    if (chosen.empty()) return app;
    app = chosen.back();
  }
}

std::string listedBy(const CLI::App* command) {
  const bool top = command->get_parent() == nullptr;
  return ": `" + (top ? std::string("allot help") : commandName(command) + " --help") +
         "` lists them";
}

std::string noCommand(const CLI::App* parent, const std::string& word) {
  const std::string meant = nearest(word, namesOf(parent));
  return "no command '" + printable(word, 60) + "'" +
         (meant.empty() ? listedBy(parent) : didYouMean(meant));
}

// Returns the error for `word`, the first argument that `command` did not take.
std::string tooMuch(const CLI::App* command, const std::string& word) {
  if (word.starts_with("-") && word.size() > 1) {
    const std::string name = word.substr(0, word.find('='));
    if (name == "--context" || name == "--redis") {
      const bool runs = command->get_name() == "run";
      return "it takes no " + name + ": " +
             (runs ? "it works on this machine; in a cluster `kubectl apply` starts an experiment"
                   : "it is not about a run in a store or a cluster");
    }
    if (name == "--mlflow" && command->get_name() == "export") {
      return "the Python package writes MLflow: `python3 -m allot.mlflow_export RUN`, for the "
             "folder of a run or of an export";
    }
    // Any two options of one letter are near.
    const std::string meant = name.size() > 2 ? nearest(name, optionNames(command)) : "";
    return "no option '" + printable(name, 60) + "'" +
           (meant.empty() ? listedBy(command) : didYouMean(meant));
  }
  if (!namesOf(command).empty()) return noCommand(command, word);
  return "'" + printable(word, 60) + "' is an argument too many";
}

// "allot run: no option '--worker' (did you mean --workers?)"
std::string sentenceOf(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = deepest(&app);
  const bool missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (missing || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    for (const CLI::App* at = command; at != nullptr; at = at->get_parent()) {
      const auto rest = at->remaining();
      if (!rest.empty()) return commandName(at) + ": " + tooMuch(at, rest.front());
    }
  }
  const std::string of = commandName(command) + ": ";
  if (missing && !namesOf(command).empty()) return of + "say what: " + joined(namesOf(command));
  std::string what = error.what();
  what = what.substr(0, what.find('\n'));
  return of + printable(what, kLongestMessage) + ": `" + commandName(command) +
         " --help` has examples";
}

// ---- Markdown ----

// Puts each sentence on a line of its own, and wraps it.
std::string sentences(const std::string& text, size_t indent = 0) {
  std::string out;
  size_t from = 0;
  while (from < text.size()) {
    size_t end = text.find(". ", from);
    end = end == std::string::npos ? text.size() : end + 1;
    out += wrapped(text.substr(from, end - from), kMarkdownWidth, indent);
    from = end;
  }
  return out;
}

// Puts examples into blocks of code, where Markdown does not interpret `<` and `*`.
std::string footerMarkdown(const std::string& footer) {
  std::string out;
  std::string code;
  const auto flush = [&] {
    if (!code.empty()) out += "\n```sh\n" + code + "```\n";
    code.clear();
  };
  for (const std::string& line : linesOf(footer)) {
    if (line.starts_with("  ")) {
      code += line.substr(2) + "\n";
      continue;
    }
    flush();
    if (line.empty() || line == "Examples:" || line == "Example:") continue;
    out += "\n" + sentences(line);
  }
  flush();
  return out;
}

std::string commandMarkdown(const CLI::App* command, const std::string& level) {
  std::string text =
      level + " " + commandName(command) + "\n\n" + sentences(command->get_description() + ".");
  const auto options = command->get_options([](const CLI::Option* option) {
    return !option->get_group().empty() && option->get_lnames() != std::vector<std::string>{"help"};
  });
  std::string list;
  for (const CLI::Option* option : options) {
    const std::string name = option->get_name(option->get_positional(), !option->get_positional());
    const bool valued = !option->get_positional() && option->get_items_expected_max() > 0;
    const std::string lines =
        sentences("`" + name + (valued ? " VALUE" : "") + "`: " + option->get_description() +
                      (option->get_required() ? " (required)" : ""),
                  2);
    list += "- " + lines.substr(2);
  }
  if (!list.empty()) text += "\n" + list;
  text += footerMarkdown(command->get_footer());
  for (const CLI::App* part : shownCommands(command)) {
    text += "\n" + commandMarkdown(part, level + "#");
  }
  return text;
}

}  // namespace

void setUpHelp(CLI::App* app) {
  app->formatter(std::make_shared<HelpFormatter>());
  app->get_formatter()->label("SUBCOMMAND", "COMMAND");
}

std::string commandName(const CLI::App* command) {
  if (command->get_parent() == nullptr) return "allot";
  return commandName(command->get_parent()) + " " + command->get_name();
}

std::string helpText(const CLI::App* command) {
  const auto formatter = command->get_formatter();
  return formatter->make_help(command, commandName(command), CLI::AppFormatMode::Normal);
}

int explainParseError(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  std::fprintf(stderr, "%s\n", sentenceOf(app, error).c_str());
  return static_cast<int>(ErrorCode::kUsage);
}

Result<const CLI::App*> findCommand(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    const CLI::App* next = nullptr;
    for (const CLI::App* one : command->get_subcommands([](const CLI::App*) { return true; })) {
      if (one->get_name() == word) next = one;
    }
    if (next == nullptr) return badInput(noCommand(command, word));
    command = next;
  }
  return command;
}

std::string commandsMarkdown(const CLI::App& app) {
  std::vector<std::string> groups;
  for (const CLI::App* command : shownCommands(&app)) {
    if (std::find(groups.begin(), groups.end(), command->get_group()) == groups.end()) {
      groups.push_back(command->get_group());
    }
  }
  std::string text;
  for (const std::string& group : groups) {
    text += (text.empty() ? "## " : "\n## ") + group + "\n";
    for (const CLI::App* command : shownCommands(&app)) {
      if (command->get_group() == group) text += "\n" + commandMarkdown(command, "###");
    }
  }
  return text;
}

}  // namespace allot
