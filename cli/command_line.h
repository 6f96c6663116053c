#pragma once
// How `allot`'s command line looks to a person: help with groups and exit codes, mistakes in one
// sentence, completion of shells, and the document of all commands. Everything is made of CLI11's
// tree of commands. One thread.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "core/result.h"

namespace allot {

// To be called before commands are added: they take it over.
void setUpHelp(CLI::App* app);

// `allot run`, `allot show question`
std::string commandName(const CLI::App* command);

// What to exit with after a parse that threw: prints help that was asked for to stdout, or one
// sentence on what is wrong to stderr, for exit code 64.
int explainParseError(const CLI::App& app, const CLI::ParseError& error);

// The command of these words, as {"show", "question"}. kUsage: "no command 'statsu' (did you mean
// status?)".
Result<const CLI::App*> findCommand(const CLI::App& app, const std::vector<std::string>& words);

// Its --help.
std::string helpText(const CLI::App* command);

// docs/reference/commands.md holds this between its marks.
std::string commandsMarkdown(const CLI::App& app);

// A script for bash, zsh or fish.
std::string completionScript(const CLI::App& app, const std::string& shell);

}  // namespace allot
