// allot papers.
#include <cstdio>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/papers.h"
#include "cli/papers_text.h"
#include "cli/terminal.h"

namespace allot {
namespace {

struct PaperOptions {
  std::string name, folder;
  std::string output = "text";
};

Status showPapers(const PaperOptions& options) {
  std::string folder = options.folder;
  if (folder.empty()) {
    ALLOT_ASSIGN(folder, findPapersFolder());
  }
  ALLOT_ASSIGN(const Papers papers, readPapers(folder));
  // Every character beyond ASCII escaped: a folder may be anybody's.
  const auto print = [](const nlohmann::json& document) {
    std::printf("%s\n",
                document.dump(2, ' ', true, nlohmann::json::error_handler_t::replace).c_str());
  };
  if (options.name.empty()) {
    if (options.output == "json") {
      print(papersJson(papers));
    } else {
      std::printf("%s", (options.output == "markdown" ? papersMarkdown(papers)
                                                      : papersText(papers, usesColour()))
                            .c_str());
    }
    return {};
  }
  ALLOT_ASSIGN(const PaperExperiment paper, findPaperExperiment(papers, options.name));
  if (options.output == "json") {
    print(paperJson(paper));
  } else {
    std::printf("%s", (options.output == "markdown" ? paperMarkdown(paper)
                                                    : paperText(paper, folder, usesColour()))
                          .c_str());
  }
  return {};
}

}  // namespace

void addPaperCommands(CLI::App* app, Action* action) {
  auto options = std::make_shared<PaperOptions>();
  auto* papers = app->add_subcommand(
      "papers", "The experiments that repeat papers' tables: what each needs, what of it is exact");
  papers->add_option("NAME", options->name,
                     "One of them, by its folder or any table that it serves [all]");
  papers->add_option("--dir", options->folder,
                     "The folder with them [experiments/papers, here or above]");
  papers
      ->add_option("-o,--output", options->output,
                   "text, json for programs, markdown for the READMEs there [text]")
      ->check(CLI::IsMember({"text", "json", "markdown"}));
  papers->footer(
      "Examples:\n"
      "  allot papers\n"
      "  allot papers santa-table-14\n"
      "  allot papers santa-table-14 -o json");
  papers->callback([=] { *action = [options] { return exitCodeOf(showPapers(*options)); }; });
}

}  // namespace allot
