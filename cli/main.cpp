// allot: the command of people. See cli/commands.h.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "core/build.h"
#include "core/result.h"

namespace allot {

int exitCodeOf(const Status& done) {
  if (done) return 0;
  // Names in it may come from anywhere.
  std::fprintf(stderr, "allot: %s\n", printable(done.error().message, kLongestMessage).c_str());
  return done.error().exitCode();
}

void addRunChoice(CLI::App* command, RunChoice* choice, bool with_folder) {
  if (with_folder) {
    command->add_option("DIR", choice->folder, "Folder of the run [runs/latest]")->option_text(" ");
  }
  command->add_option("--redis", choice->redis,
                      "Instead of a folder: unix:/path/redis.sock or redis://host:port");
  command->add_option(
      "--context", choice->context,
      "Instead of a folder: this context of kubectl (current: the one it is set to)");
  command->add_option("--namespace", choice->name_space,
                      "With --context: the experiment's namespace [named as the experiment]");
  command->add_option("--run", choice->run,
                      "With --redis or --context: run id [the newest run, if there is one "
                      "experiment]");
  command->add_option("--experiment", choice->experiment,
                      "With --redis or --context: the newest run of this experiment");
  command->add_option("--redis-server", choice->redis_server,
                      "redis-server to read an ended run's folder with [from PATH]");
}

void addSettings(CLI::App* command, std::vector<std::string>* set) {
  command->add_option("--set", *set, "spec.key=value, replaces a value of the file; repeatable")
      ->allow_extra_args(false);
}

void addWorkers(CLI::App* command, unsigned* workers) {
  command->add_option("--workers", *workers, "Worker processes [one a core, or on each GPU]")
      ->check(CLI::Range(1, 512));
}

void addOutput(CLI::App* command, OutputFormat* format, bool markdown) {
  std::map<std::string, OutputFormat> formats = {{"json", OutputFormat::kJson},
                                                 {"yaml", OutputFormat::kYaml},
                                                 {"table", OutputFormat::kTable}};
  std::vector<std::string> words = {"json", "yaml", "table"};
  if (markdown) {
    formats["markdown"] = OutputFormat::kMarkdown;
    words.emplace_back("markdown");
  }
  command
      ->add_option_function<std::string>(
          "-o,--output", [=](const std::string& word) { *format = formats.at(word); },
          std::string("table for people; json and yaml for programs") +
              (markdown ? "; markdown for documents" : ""))
      ->check(CLI::IsMember(words));
  command->add_flag_callback(
      "--json", [=] { *format = OutputFormat::kJson; }, "The same as -o json");
}

void addMargin(CLI::App* command, std::optional<double>* margin, const std::string& reference) {
  command
      ->add_option("--margin", *margin,
                   "Say what is as good as " + reference +
                       " to within this share of the questions: 0.02 is 2 points")
      ->check([](const std::string& text) -> std::string {
        double share = 0;
        const bool ok = CLI::detail::lexical_cast(text, share) && share > 0 && share < 1;
        return ok ? "" : "write a share between 0 and 1, as 0.02 for 2 points";
      });
}

}  // namespace allot

namespace {

int runMain(int argc, char** argv) {
  CLI::App app("allot: learns where a language model's decode attention should spend its reads.",
               "allot");
  allot::setUpHelp(&app);
  app.footer(
      "Most commands take a run: its folder (runs/latest, unless one is named), a store with "
      "--redis, or a cluster with --context and --experiment. Results go to stdout, talk to "
      "stderr; -o json and -o yaml are for programs.\n\n"
      "Examples:\n"
      "  allot run experiments/recall-layer-budget/experiment.yaml\n"
      "  allot run my.yaml --workers 4 --set spec.policy.totalBudget=16\n"
      "  allot status\n"
      "  allot stop && allot run --resume\n"
      "  allot verify runs/latest");
  app.require_subcommand(1);
  app.set_version_flag("--version", allot::buildText());
  allot::Action action;
  allot::addRunCommands(&app, &action);
  allot::addCheckCommands(&app, &action);
  allot::addListCommands(&app, &action);
  allot::addShowCommands(&app, &action);
  allot::addControlCommands(&app, &action);
  allot::addArchiveCommands(&app, &action);
  allot::addBenchCommands(&app, &action);
  allot::addCalibrateCommands(&app, &action);
  allot::addHistoryCommands(&app, &action);
  allot::addPlotCommand(&app, &action);
  allot::addExplainCommands(&app, &action);
  allot::addCompareCommand(&app, &action);
  allot::addCrdCommand(&app, &action);
  allot::addRenderCommand(&app, &action);
  allot::addHelpCommands(&app, &action);
  if (argc == 1) {
    std::printf("%s", allot::helpText(&app).c_str());
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return allot::explainParseError(app, error);
  }
  return action();
}

// Returns `code`, or kIo if it is 0 and stdout could not be written. A reader that closed its pipe
// is no error.
int afterOutput(int code) {
  errno = 0;
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!lost || errno == EPIPE) return code;
  std::fprintf(stderr, "allot: the output could not be written whole: is the disk full?\n");
  return code == 0 ? static_cast<int>(allot::ErrorCode::kIo) : code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return afterOutput(runMain(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "allot: %s\n", error.what());
    return 70;
  }
}
