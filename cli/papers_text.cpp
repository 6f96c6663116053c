#include "cli/papers_text.h"

#include "cli/terminal.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr char kFolder[] = "experiments/papers";
constexpr size_t kLongestText = 1000;
constexpr size_t kPaperColumns = 100;

std::string commaSeparated(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

// "as the paper says, 3 chosen", "2 differ, 3 chosen"
std::string settingsOf(const PaperExperiment& paper) {
  std::string text =
      paper.isExact() ? "as the paper says" : std::to_string(paper.differs.size()) + " differ";
  if (!paper.chosen.empty()) text += ", " + std::to_string(paper.chosen.size()) + " chosen";
  return text;
}

std::string commandOf(const PaperRun& run, const std::string& folder) {
  std::string command = "allot run " + shellWord(folder + "/" + run.folder + "/experiment.yaml");
  for (const std::string& option : run.options) command += " " + shellWord(option);
  for (const std::string& set : run.set) command += " --set " + shellWord(set);
  return command;
}

const std::vector<std::string> kHeader = {"folder", "tables and figures", "model",
                                          "data",   "settings",           "figures of ours"};

std::vector<std::string> rowOf(const PaperExperiment& paper) {
  return {paper.name, commaSeparated(paper.items), paper.model,
          paper.data, settingsOf(paper),           paper.ours.empty() ? "none" : paper.ours};
}

// A title and its points, each broken into lines.
void addPoints(const std::string& title, const std::vector<std::string>& points, bool colour,
               std::string* text) {
  if (points.empty()) return;
  *text += "\n" + toned(title, Tone::kBold, colour) + "\n";
  for (const std::string& point : points) {
    const char* lead = "  - ";
    for (const std::string& line : legibleLines(printable(point, kLongestText), kPaperColumns)) {
      *text += lead + line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
      lead = "    ";
    }
  }
}

void addPoints(const std::string& title, const std::vector<std::string>& points,
               std::string* markdown) {
  if (points.empty()) return;
  *markdown += "\n**" + title + "**\n";
  for (const std::string& point : points) *markdown += "- " + point + "\n";
}

constexpr char kExactTable[] = "As the paper has it";
constexpr char kChosen[] = "Chosen, since the paper leaves it open";
constexpr char kDiffers[] = "Not as the paper has it";

}  // namespace

std::string papersText(const Papers& papers, bool colour) {
  std::string text;
  for (const PaperSource& source : papers.sources) {
    text += (text.empty() ? "" : "\n") + toned(printable(source.title), Tone::kBold, colour) +
            " (" + printable(source.source) + ")\n";
    TextTable table(kHeader);
    for (const PaperExperiment& paper : papers.experiments) {
      if (paper.paper != source.key) continue;
      std::vector<std::string> row = rowOf(paper);
      for (std::string& cell : row) cell = printable(cell);
      table.add(std::move(row));
    }
    if (!table.empty()) text += table.text(colour);
    std::vector<std::string> points;
    for (const WithoutExperiment& one : source.without) {
      points.push_back(commaSeparated(one.items) + ": " + one.why);
    }
    addPoints("without an experiment", points, colour, &text);
  }
  return text;
}

json papersJson(const Papers& papers) {
  json all = json::array();
  for (const PaperSource& source : papers.sources) {
    json experiments = json::array(), without = json::array();
    for (const PaperExperiment& paper : papers.experiments) {
      if (paper.paper == source.key) experiments.push_back(paperJson(paper));
    }
    for (const WithoutExperiment& one : source.without) {
      without.push_back({{"items", one.items}, {"why", one.why}});
    }
    all.push_back({{"key", source.key},
                   {"title", source.title},
                   {"source", source.source},
                   {"experiments", std::move(experiments)},
                   {"without", std::move(without)}});
  }
  return all;
}

std::string papersMarkdown(const Papers& papers) {
  std::string text;
  for (const PaperSource& source : papers.sources) {
    text += (text.empty() ? "" : "\n") + ("## " + source.title) + "\n\n" + source.source + ".\n\n";
    std::string rows;
    for (const PaperExperiment& paper : papers.experiments) {
      if (paper.paper != source.key) continue;
      std::vector<std::string> row = rowOf(paper);
      row[0] = "[" + row[0] + "](" + row[0] + ")";
      if (!paper.ours.empty()) row[5] = "[" + paper.ours + "](../../" + paper.ours + ")";
      rows += "|";
      for (const std::string& cell : row) rows += " " + cell + " |";
      rows += "\n";
    }
    if (!rows.empty()) {
      text += "|";
      for (const std::string& cell : kHeader) text += " " + cell + " |";
      text += "\n| --- | --- | --- | --- | --- | --- |\n" + rows;
    }
    std::string left;
    for (const WithoutExperiment& one : source.without) {
      left += "| " + commaSeparated(one.items) + " | " + one.why + " |\n";
    }
    if (!left.empty()) {
      text +=
          (rows.empty() ? "" : "\n") + ("| without an experiment | why |\n| --- | --- |\n" + left);
    }
  }
  return text;
}

std::string paperText(const PaperExperiment& paper, const std::string& folder, bool colour) {
  std::string text = toned(printable(paper.name), Tone::kBold, colour) + ": " +
                     printable(paper.shows, kLongestText) + "\n";
  const std::pair<const char*, std::string> facts[] = {
      {"serves", commaSeparated(paper.items)},
      {"model", paper.model},
      {"data", paper.data},
      {"ours", paper.ours.empty() ? "none" : paper.ours}};
  for (const auto& [name, value] : facts) {
    text += formatted("  %-8s", name) + printable(value, kLongestText) + "\n";
  }
  addPoints(kExactTable, paper.exact, colour, &text);
  addPoints(kChosen, paper.chosen, colour, &text);
  addPoints(kDiffers, paper.differs, colour, &text);
  text += "\n" + toned("Runs", Tone::kBold, colour) + "\n";
  for (const PaperRun& run : paper.runs) {
    text += "  # " + printable(run.title) + "\n  " +
            printable(commandOf(run, folder), kLongestMessage) + "\n";
  }
  return text;
}

json paperJson(const PaperExperiment& paper) {
  json runs = json::array();
  for (const PaperRun& run : paper.runs)
    runs.push_back(
        {{"title", run.title}, {"folder", run.folder}, {"options", run.options}, {"set", run.set}});
  json document = {{"name", paper.name},       {"paper", paper.paper},    {"items", paper.items},
                   {"shows", paper.shows},     {"model", paper.model},    {"data", paper.data},
                   {"exact", paper.isExact()}, {"as_paper", paper.exact}, {"chosen", paper.chosen},
                   {"differs", paper.differs}, {"runs", std::move(runs)}};
  document["ours"] = paper.ours.empty() ? json() : json(paper.ours);
  return document;
}

std::string paperMarkdown(const PaperExperiment& paper) {
  std::string text =
      paper.shows + ".\n\n- **Model**: " + paper.model + "\n- **Data**: " + paper.data + "\n";
  addPoints(kExactTable, paper.exact, &text);
  addPoints(kChosen, paper.chosen, &text);
  addPoints(kDiffers, paper.differs, &text);
  text += "\n**Runs**\n\n```\n";
  for (const PaperRun& run : paper.runs) {
    text += "# " + run.title + "\n" + commandOf(run, kFolder) + "\n";
  }
  return text + "```\n";
}

}  // namespace allot
