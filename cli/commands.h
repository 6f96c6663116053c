#pragma once
// The commands of `allot`, one function a group: each adds its commands to the command line and,
// when one of them is chosen, sets what main() is to do. One thread.
#include <CLI/CLI.hpp>
#include <functional>

#include "cli/run_access.h"
#include "core/result.h"

namespace allot {

// What main() does and exits with.
using Action = std::function<int()>;

void addRunCommands(CLI::App* app, Action* action);      // run, fork, keys, methods, tasks, metrics
void addShowCommands(CLI::App* app, Action* action);     // status, top
void addControlCommands(CLI::App* app, Action* action);  // pause, resume, stop, extend, set
void addArchiveCommands(CLI::App* app, Action* action);  // verify, export, import, acl
void addBenchCommands(CLI::App* app, Action* action);    // bench
void addCalibrateCommands(CLI::App* app, Action* action);  // calibrate
void addHistoryCommands(CLI::App* app, Action* action);    // serve
void addPaperCommands(CLI::App* app, Action* action);      // papers
void addCardCommand(CLI::App* app, Action* action);        // card
void addCrdCommand(CLI::App* app, Action* action);         // crd
void addRenderCommand(CLI::App* app, Action* action);      // render

// 0, or the error's code, with its sentence on stderr.
int exitCodeOf(const Status& done);

// --redis, --context, --namespace, --run, --experiment, --redis-server; and DIR, if `with_folder`.
void addRunChoice(CLI::App* command, RunChoice* choice, bool with_folder = true);

}  // namespace allot
