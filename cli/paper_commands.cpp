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
  OutputFormat format = OutputFormat::kTable;
};

void print(OutputFormat format, const char* kind, nlohmann::json fields,
           const std::string& markdown, const std::string& text) {
  if (format == OutputFormat::kMarkdown || format == OutputFormat::kTable) {
    std::printf("%s", (format == OutputFormat::kTable ? text : markdown).c_str());
  } else {
    printDocument(document(kind, std::move(fields)), format);
  }
}

Status showPapers(const PaperOptions& options) {
  std::string folder = options.folder;
  if (folder.empty()) {
    ALLOT_ASSIGN(folder, findPapersFolder());
  }
  ALLOT_ASSIGN(const Papers papers, readPapers(folder));
  if (options.name.empty()) {
    print(options.format, "Papers", {{"papers", papersJson(papers)}}, papersMarkdown(papers),
          papersText(papers, usesColour()));
    return {};
  }
  ALLOT_ASSIGN(const PaperExperiment paper, findPaperExperiment(papers, options.name));
  print(options.format, "Paper", paperJson(paper), paperMarkdown(paper),
        paperText(paper, folder, usesColour()));
  return {};
}

}  // namespace

void addPaperCommands(CLI::App* app, Action* action) {
  auto options = std::make_shared<PaperOptions>();
  auto* papers = app->add_subcommand(
      "papers", "The experiments that repeat papers' tables: what each needs, what of it is exact");
  papers->group(kLookUpGroup);
  papers->add_option("NAME", options->name,
                     "One of them, by its folder or any table that it serves [all]");
  papers->add_option("--dir", options->folder,
                     "The folder with them [experiments/papers, here or above]");
  addOutput(papers, &options->format, true);
  papers->footer(
      "Examples:\n"
      "  allot papers\n"
      "  allot papers santa-table-14\n"
      "  allot papers santa-table-14 -o json");
  papers->callback([=] { *action = [options] { return exitCodeOf(showPapers(*options)); }; });
}

}  // namespace allot
