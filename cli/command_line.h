#pragma once
// The presentation of `allot`'s command line: help with groups and exit codes, errors in one
// sentence, shell completion, and the document of all commands. One thread.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "core/result.h"

namespace allot {

// Sets up help for all commands.
// Requires: it is called before commands are added, which inherit it.
void setUpHelp(CLI::App* app);

// Returns a name like `allot run` or `allot show question`.
std::string commandName(const CLI::App* command);

// Returns the exit code after a parse that threw. Prints help or version to stdout if it was asked
// for, else one sentence on the error to stderr, with exit code 64.
int explainParseError(const CLI::App& app, const CLI::ParseError& error);

// Returns the command of these words, like {"show", "question"}. kUsage: "no command 'statsu' (did
// you mean status?)". No words: `app`.
Result<const CLI::App*> findCommand(const CLI::App& app, const std::vector<std::string>& words);

// Returns the command's --help.
std::string helpText(const CLI::App* command);

// Returns the text that docs/reference/commands.md has between its marks.
std::string commandsMarkdown(const CLI::App& app);

// Returns a completion script for `shell`: zsh, fish, else bash.
std::string completionScript(const CLI::App& app, const std::string& shell);

}  // namespace allot
