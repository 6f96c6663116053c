// allot serve.
#include <signal.h>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/history.h"
#include "cli/run_folder.h"
#include "core/spec/spec_yaml.h"
#include "core/telemetry/http_server.h"

namespace allot {
namespace {

constexpr uint16_t kUsualPort = 9480;

struct ServeOptions {
  std::string folder = "runs";
  std::optional<uint16_t> port;
};

Status serve(const ServeOptions& options) {
  ALLOT_ASSIGN(const std::string folder, existingFolder(options.folder));
  // Before the server's thread is there, which would take them else.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  RunHistory history(folder);
  const size_t runs = history.find().size();
  const auto answer = [&](const HttpRequest& request) { return history.answer(request); };
  auto server = HttpServer::start("127.0.0.1", options.port.value_or(kUsualPort), answer);
  if (!server && !options.port) server = HttpServer::start("127.0.0.1", 0, answer);
  if (!server) return tl::unexpected(server.error());
  std::printf("http://127.0.0.1:%u/ shows %s in %s (Ctrl-C ends it)\n", (*server)->port(),
              counted(runs, "run").c_str(), folder.c_str());
  std::fflush(stdout);
  int ended = 0;
  sigwait(&ends, &ended);
  return {};
}

}  // namespace

void addHistoryCommands(CLI::App* app, Action* action) {
  auto options = std::make_shared<ServeOptions>();
  auto* command =
      app->add_subcommand("serve", "Show all runs of a folder in a browser, from their files");
  command->group(kWatchGroup);
  command->add_option("FOLDER", options->folder, "Folder of run folders and exports [runs]")
      ->option_text(" ");
  command->add_option("--port", options->port,
                      "Port on 127.0.0.1; 0: any free one [9480, or any free one]");
  command->footer(
      "Neither Redis nor a cluster is needed: it reads what runs and `allot export` have "
      "written.\n\n"
      "Examples:\n"
      "  allot serve\n"
      "  allot serve backup --port 8000");
  command->callback([=] { *action = [options] { return exitCodeOf(serve(*options)); }; });
}

}  // namespace allot
