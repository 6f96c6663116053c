#pragma once
// The presentation of `allot`'s command line: help with groups and exit codes, errors in one
// sentence, shell completion, and the document of all commands. One thread.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "core/result.h"

namespace allot {

// Sets up help for all commands.
// Requires: called before commands are added, which inherit the help.
void setUpHelp(CLI::App* app);

// Returns a name like `allot run` or `allot show question`.
std::string commandName(const CLI::App* command);

// Returns the exit code after a parse that threw. If help or version was asked for, prints that to
// stdout and returns 0. Else prints one sentence on the error to stderr and returns 64.
int explainParseError(const CLI::App& app, const CLI::ParseError& error);

// Returns the command that these words name, like {"show", "question"}. kUsage: "no command
// 'statsu' (did you mean status?)". Without words returns `app`.
Result<const CLI::App*> findCommand(const CLI::App& app, const std::vector<std::string>& words);

std::string helpText(const CLI::App* command);

// Returns the text that docs/reference/commands.md has between its marks.
std::string commandsMarkdown(const CLI::App& app);

// Returns a completion script for `shell`: zsh, fish, else bash.
std::string completionScript(const CLI::App& app, const std::string& shell);

}  // namespace allot
