#pragma once
// The commands of `allot`. Each add...Command(s) adds its commands to `app`. Parsing a command line
// with one of them sets *action. One thread.
#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "cli/run_access.h"
#include "cli/terminal.h"
#include "core/result.h"

namespace allot {

// The work of main(), which returns the exit code.
using Action = std::function<int()>;

// The groups of `allot help`. A command without a group is not listed.
constexpr char kRunGroup[] = "Run";
constexpr char kWatchGroup[] = "Watch";
constexpr char kSteerGroup[] = "Steer";
constexpr char kKeepGroup[] = "Keep";
constexpr char kLookUpGroup[] = "Look up";
constexpr char kHiddenGroup[] = "";  // former names of commands

void addRunCommands(CLI::App* app, Action* action);        // run, fork
void addCheckCommands(CLI::App* app, Action* action);      // new, check
void addListCommands(CLI::App* app, Action* action);       // list, wait
void addShowCommands(CLI::App* app, Action* action);       // status, top, show
void addControlCommands(CLI::App* app, Action* action);    // pause, resume, stop, extend, set
void addArchiveCommands(CLI::App* app, Action* action);    // verify, export, import, acl
void addBenchCommands(CLI::App* app, Action* action);      // bench
void addCalibrateCommands(CLI::App* app, Action* action);  // calibrate
void addHistoryCommands(CLI::App* app, Action* action);    // serve
void addPlotCommand(CLI::App* app, Action* action);        // plot
void addExplainCommands(CLI::App* app, Action* action);    // explain; keys, methods, ... as before
void addCompareCommand(CLI::App* app, Action* action);     // compare
void addCrdCommand(CLI::App* app, Action* action);         // crd
void addRenderCommand(CLI::App* app, Action* action);      // render
void addHelpCommands(CLI::App* app, Action* action);       // help, completion

// Prints the error's sentence to stderr. Returns the error's code; 0 if there is no error.
int exitCodeOf(const Status& done);

// Adds --redis, --context, --namespace, --run, --experiment, --redis-server, and DIR if
// `with_folder`.
void addRunChoice(CLI::App* command, RunChoice* choice, bool with_folder = true);

// Add --set and --workers.
void addSettings(CLI::App* command, std::vector<std::string>* set);
void addWorkers(CLI::App* command, unsigned* workers);

// Adds -o json|yaml|table, and --json for -o json; if `markdown` is true, also -o markdown.
void addOutput(CLI::App* command, OutputFormat* format, bool markdown = false);

// Adds --margin, a share between 0 and 1. reference: what a difference is taken to, as "dense".
void addMargin(CLI::App* command, std::optional<double>* margin, const std::string& reference);

}  // namespace allot
