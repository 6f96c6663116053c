#pragma once
// The commands of `allot`, one function a group: each adds its commands to the command line and,
// when one of them is chosen, sets what main() is to do. One thread.
#include <CLI/CLI.hpp>
#include <functional>

#include "cli/output.h"
#include "cli/run_access.h"
#include "core/result.h"

namespace allot {

// What main() does and exits with.
using Action = std::function<int()>;

// The groups of `allot help`. A command without one of them is in none of its lists.
constexpr char kRunGroup[] = "Run";
constexpr char kWatchGroup[] = "Watch";
constexpr char kSteerGroup[] = "Steer";
constexpr char kKeepGroup[] = "Keep";
constexpr char kLookUpGroup[] = "Look up";
constexpr char kHiddenGroup[] = "";  // other names of commands, for who is used to them

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

// 0, or the error's code, with its sentence on stderr.
int exitCodeOf(const Status& done);

// --redis, --context, --namespace, --run, --experiment, --redis-server; and DIR, if `with_folder`.
void addRunChoice(CLI::App* command, RunChoice* choice, bool with_folder = true);

// -o json|yaml|table, and --json, which is the first of them; with `markdown` that as well.
void addOutput(CLI::App* command, OutputFormat* format, bool markdown = false);

}  // namespace allot
