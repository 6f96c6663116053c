// page_sample: serves sample runs for looking at the page and for its test.
//
//   page_sample [--port N] [--report DIR] [-- COMMAND...]
//
// serves a run at /, one that is starting at /empty/, a sweep at /sweep/, one of many methods at
// /methods/, one whose prompts are read in several ways at /prefills/, one whose store is away at
// /away/ and one that is finished when it is first asked for and then goes on at /extended/, and
// writes the run's report into DIR and that of the many methods into DIR/methods. With a COMMAND it
// runs this with the page's address as the last argument and leaves with its exit code; without, it
// serves until standard input ends.
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "aggregator/page/page.h"
#include "aggregator/report/report.h"
#include "tests/e2e/sample_view.h"

namespace allot {
namespace {

// As the aggregator serves it once it has not heard of the store for 25 s.
std::string awayView() {
  const nlohmann::json view = viewJson(sampleView());
  return servedView(view.dump(), view["now_unix_ms"].get<uint64_t>() + 25'000,
                    "Redis at unix:/x does not answer");
}

HttpReply serveSample(std::string path, const std::string& report) {
  if (isReportPath(path)) return serveReport(path, report);
  const auto under = [&](const std::string& folder) {
    if (path.rfind(folder + "/", 0) != 0) return false;
    path.erase(0, folder.size());
    return true;
  };
  if (under("/away")) return servePage(path, awayView());
  if (under("/extended")) {
    static int asked = 0;
    if (path == "/") asked = 0;
    return servePage(path, viewJson(extendedView(path == "/api/run" && asked++ > 0)).dump());
  }
  if (under("/empty")) return servePage(path, viewJson(emptyView()).dump());
  if (under("/methods")) return servePage(path, viewJson(methodsView()).dump());
  if (under("/prefills")) return servePage(path, viewJson(prefillsView()).dump());
  if (under("/sweep")) return servePage(path, viewJson(sweepView()).dump());
  return servePage(path, viewJson(sampleView()).dump());
}

int runCommand(std::vector<std::string> command) {
  std::vector<char*> arguments;
  for (auto& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execvp(arguments[0], arguments.data());
    std::perror(arguments[0]);
    ::_exit(127);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char** argv) {
  CLI::App app("Serves sample runs for the page's test.");
  uint16_t port = 0;
  std::string report;
  std::vector<std::string> command;
  app.add_option("--port", port, "Port on 127.0.0.1 [any]");
  app.add_option("--report", report, "Write the sample's report into this folder");
  app.add_option("command", command, "Run this with the address, after --");
  CLI11_PARSE(app, argc, argv);

  if (!report.empty()) {
    Status written = writeReport(report, sampleView());
    if (written) written = writeReport(report + "/methods", methodsView());
    if (!written) return std::fprintf(stderr, "%s\n", written.error().message.c_str()), 1;
  }
  const auto server = HttpServer::start(
      "127.0.0.1", port, [&](const HttpRequest& asked) { return serveSample(asked.path, report); });
  if (!server) return std::fprintf(stderr, "%s\n", server.error().message.c_str()), 1;
  const std::string address = "http://127.0.0.1:" + std::to_string((*server)->port());
  if (!command.empty()) {
    command.push_back(address);
    return runCommand(command);
  }
  std::printf("%s/\n", address.c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}

}  // namespace
}  // namespace allot

int main(int argc, char** argv) { return allot::main(argc, argv); }
