// experiments/papers: every folder is what it says, and the READMEs say what `allot papers` does.
#include "cli/papers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "cli/papers_text.h"
#include "core/spec/spec.h"
#include "tests/readme.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

using testing::HasSubstr;

const std::string kFolder = "experiments/papers";

Papers shipped() {
  const auto papers = readPapers(std::string(ALLOT_SOURCE_DIR) + "/" + kFolder);
  EXPECT_TRUE(papers) << papers.error().message;
  return papers ? *papers : Papers();
}

std::string fileOf(const PaperExperiment& paper, const std::string& name) {
  return kFolder + "/" + paper.name + "/" + name;
}

TEST(ShippedPapers, EachRunIsAnExperimentThatIsTaken) {
  const Papers papers = shipped();
  ASSERT_GE(papers.experiments.size(), 14u);
  for (const PaperExperiment& paper : papers.experiments) {
    for (const PaperRun& run : paper.runs) {
      SCOPED_TRACE(paper.name + ": " + run.title);
      const std::string file = kFolder + "/" + run.folder + "/experiment.yaml";
      const auto parsed = parseExperiment(readSource(file), file, run.set);
      ASSERT_TRUE(parsed) << parsed.error().message;
      const Status effects = checkEffects(*parsed, file);
      EXPECT_TRUE(effects) << effects.error().message;
      EXPECT_EQ(parsed->name(), run.folder);
      // What the sentence of a run says is what its settings do.
      EXPECT_EQ(parsed->spec().attention().protocol(), paper.paper == "vattention" ? "B" : "A");
      EXPECT_EQ(parsed->spec().model().path().substr(0, 8), "/models/");
      // Each is for a GPU.
      EXPECT_EQ(parsed->spec().model().kv_dtype(), "bfloat16");
    }
    EXPECT_EQ(paper.runs[0].folder, paper.name);
  }
}

// The last part of a path under /models/.
std::string modelOf(const v1::Experiment& experiment) {
  return experiment.spec().model().path().substr(8);
}

TEST(ShippedPapers, EachModelThatIsSaidToBeNeededIsAskedAndNoOther) {
  for (const PaperExperiment& paper : shipped().experiments) {
    SCOPED_TRACE(paper.name);
    for (const PaperRun& run : paper.runs) {
      const std::string file = kFolder + "/" + run.folder + "/experiment.yaml";
      const auto parsed = parseExperiment(readSource(file), file, run.set);
      ASSERT_TRUE(parsed) << parsed.error().message;
      EXPECT_THAT(paper.model, HasSubstr(modelOf(*parsed))) << run.title;
      EXPECT_THAT(readSource(kFolder + "/README.md"),
                  HasSubstr("`" + parsed->spec().model().path()))
          << run.title;
      if (parsed->spec().task().path().empty()) continue;
      EXPECT_THAT(readSource(kFolder + "/README.md"), HasSubstr("`" + parsed->spec().task().path()))
          << run.title;
    }
  }
}

// "2, 4, ..., 256" doubles in between.
std::vector<uint64_t> numbersIn(const std::string& list) {
  std::vector<uint64_t> numbers;
  bool doubles = false;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == " ...") {
      doubles = true;
      continue;
    }
    const uint64_t last = std::stoull(word);
    while (doubles && numbers.back() * 2 < last) numbers.push_back(numbers.back() * 2);
    numbers.push_back(last);
  }
  return numbers;
}

TEST(ShippedPapers, BudgetsAreTheDrawsOfALayerThatTheirLinesSay) {
  const std::regex line(R"(budgets: \[([0-9, ]+)\]  # over ([0-9]+) layers: [Sk] = ([0-9., ]+)\n)");
  const std::map<std::string, uint64_t> layers = {{"Llama-3.1-8B-Instruct", 32},
                                                  {"DeepSeek-R1-Distill-Qwen-7B", 28}};
  size_t budgets = 0;
  for (const PaperExperiment& paper : shipped().experiments) {
    SCOPED_TRACE(paper.name);
    const std::string text = readSource(fileOf(paper, "experiment.yaml"));
    std::smatch match;
    ASSERT_EQ(std::regex_search(text, match, line), text.find(" budgets: ") != text.npos);
    if (match.empty()) continue;
    const auto parsed = parseExperiment(text, paper.name);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(std::stoull(match[2]), layers.at(modelOf(*parsed)));
    std::vector<uint64_t> totals = numbersIn(match[3]);
    for (uint64_t& draws : totals) draws *= std::stoull(match[2]);
    EXPECT_EQ(numbersIn(match[1]), totals);
    budgets += totals.size();
  }
  EXPECT_GT(budgets, 40u);
}

TEST(ShippedPapers, TheReadmesAreWhatTheCommandSays) {
  const Papers papers = shipped();
  EXPECT_EQ(between(readSource(kFolder + "/README.md"), "<!-- papers: begin -->\n",
                    "<!-- papers: end -->"),
            papersMarkdown(papers))
      << "allot papers -o markdown";
  for (const PaperExperiment& paper : papers.experiments) {
    SCOPED_TRACE(paper.name);
    const std::string readme = readSource(fileOf(paper, "README.md"));
    EXPECT_EQ(between(readme, "<!-- paper: begin -->\n", "<!-- paper: end -->"),
              paperMarkdown(paper))
        << "allot papers " << paper.name << " -o markdown";
    EXPECT_EQ(readme.substr(0, readme.find('\n')), "# " + paper.name);
    EXPECT_THAT(readme, HasSubstr("\n## What the paper reports\n"));
    // Figures of ours are there, or it says that there are none.
    const std::string ours = readme.substr(readme.find("\n## Figures of ours\n\n") + 21);
    EXPECT_EQ(ours.starts_with("None"), paper.ours.empty());
    if (!paper.ours.empty()) {
      EXPECT_TRUE(std::filesystem::exists(std::string(ALLOT_SOURCE_DIR) + "/" + paper.ours));
      EXPECT_THAT(ours, HasSubstr("(../../../" + paper.ours + ")"));
    }
  }
}

// Every table and figure of the paper whose numbers we know is somewhere, once:
// readPapers refuses two places.
TEST(ShippedPapers, NoTableOfTheSantaPaperIsForgotten) {
  const Papers papers = shipped();
  std::set<std::string> slugs;
  const auto take = [&](const std::string& paper, const std::vector<std::string>& items) {
    for (const std::string& item : items) slugs.insert(paperSlug(paper, item));
  };
  for (const PaperExperiment& one : papers.experiments) take(one.paper, one.items);
  for (const PaperSource& source : papers.sources) {
    for (const WithoutExperiment& one : source.without) take(source.key, one.items);
  }
  const auto expectAll = [&](const std::string& paper, const std::string& kind, int first,
                             int last) {
    for (int i = first; i <= last; ++i) {
      const std::string slug = paperSlug(paper, kind + " " + std::to_string(i));
      EXPECT_EQ(slugs.count(slug), 1u) << slug;
    }
  };
  expectAll("santa", "Table", 1, 30);
  expectAll("santa", "Figure", 1, 10);
  expectAll("sampleattention", "Table", 2, 6);
  expectAll("sale", "Table", 1, 3);
}

std::string lowered(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// Of a folder's files, and of those of the other experiments, which are no list's.
TEST(ShippedPapers, NothingSaysAsWrittenThatIsNot) {
  std::set<std::string> exact;
  for (const PaperExperiment& paper : shipped().experiments) {
    if (paper.isExact()) exact.insert(paper.name);
  }
  const std::filesystem::path root = std::string(ALLOT_SOURCE_DIR) + "/experiments";
  size_t read = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string extension = entry.path().extension();
    if (extension != ".md" && extension != ".yaml") continue;
    ++read;
    if (exact.count(entry.path().parent_path().filename()) > 0) continue;
    EXPECT_EQ(lowered(readFile(entry.path())).find("as written"), std::string::npos)
        << entry.path();
  }
  EXPECT_GT(read, 80u);
}

class PapersFolder : public testing::Test {
 protected:
  // A folder with one paper and one experiment, in which `from` has become `to`.
  std::string with(const std::string& from, const std::string& to) {
    std::map<std::string, std::string> files = {
        {"papers.yaml",
         "papers:\n- key: x\n  title: X\n  source: somewhere\n  without:\n"
         "  - {items: [Figure 1], why: a drawing}\n"},
        {"x-table-04/paper.yaml",
         "paper: x\nitems: [Table 4, Table 12]\nshows: something\nmodel: M\ndata: D\n"
         "exact: [all]\nruns:\n- {title: one, options: [--workers=1], set: [spec.seed=2]}\n"}};
    for (auto& [name, text] : files) {
      if (const size_t at = text.find(from); !from.empty() && at != std::string::npos) {
        text.replace(at, from.size(), to);
      }
      std::filesystem::create_directories(
          std::filesystem::path(folder_.path() + "/" + name).parent_path());
      folder_.write(name, text);
    }
    return folder_.path();
  }
  std::string refusal(const std::string& from, const std::string& to) {
    const auto papers = readPapers(with(from, to));
    EXPECT_FALSE(papers) << from << " -> " << to;
    if (papers) return "";
    EXPECT_EQ(papers.error().exitCode(), 64);
    return papers.error().message;
  }

  const TempFolder folder_;
};

TEST_F(PapersFolder, IsFoundByAnyTableThatItServes) {
  const auto papers = readPapers(with("", ""));
  ASSERT_TRUE(papers) << papers.error().message;
  for (const std::string name : {"x-table-04", "x-table-12"}) {
    const auto found = findPaperExperiment(*papers, name);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->name, "x-table-04");
  }
  const auto other = findPaperExperiment(*papers, "x-table-05");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("did you mean x-table-04?"));
  const auto drawing = findPaperExperiment(*papers, "x-figure-01");
  ASSERT_FALSE(drawing);
  EXPECT_EQ(drawing.error().message, "x-figure-01: a drawing");
}

TEST_F(PapersFolder, WhatIsWrongIsNamed) {
  EXPECT_THAT(refusal("data: D", "date: D"), HasSubstr("x-table-04/paper.yaml: \"date\" is not"));
  EXPECT_THAT(refusal("data: D", "data: [D]"), HasSubstr("data: required, as one line of text"));
  EXPECT_THAT(refusal("exact: [all]", "exact: []"), HasSubstr("exact: required"));
  EXPECT_THAT(refusal("paper: x", "paper: y"), HasSubstr("is called y-table-04"));
  EXPECT_THAT(refusal("Table 4, ", "Table 5, "), HasSubstr("is called x-table-05"));
  EXPECT_THAT(refusal("Table 12", "Table 4"), HasSubstr("is in x-table-04 and in x-table-04"));
  EXPECT_THAT(refusal("Figure 1", "Table 12"), HasSubstr("is in papers.yaml and in x-table-04"));
  EXPECT_THAT(refusal("key: x", "key: z"), HasSubstr("\"x\" is not one of z"));
  EXPECT_THAT(refusal("title: one", "title: one, folder: other"),
              HasSubstr("there is no \"other\" beside it"));
  EXPECT_THAT(refusal("set: [spec", "sets: [spec"), HasSubstr("runs: \"sets\" is not one of"));
}

TEST_F(PapersFolder, TextJsonAndMarkdownSayTheSame) {
  const auto papers =
      readPapers(with("exact: [all]", "exact: [all]\nchosen: [this]\ndiffers: [that]"));
  ASSERT_TRUE(papers) << papers.error().message;
  const std::string list = papersText(*papers, false);
  EXPECT_THAT(list, HasSubstr("x-table-04  Table 4, Table 12   M      D     1 differ, 1 chosen"));
  EXPECT_THAT(list, HasSubstr("Figure 1: a drawing"));
  const PaperExperiment& paper = papers->experiments[0];
  const std::string text = paperText(paper, "there", false);
  EXPECT_THAT(
      text,
      HasSubstr("allot run there/x-table-04/experiment.yaml --workers=1 --set spec.seed=2\n"));
  EXPECT_THAT(paperMarkdown(paper), HasSubstr("**Not as the paper has it**\n- that\n"));
  const nlohmann::json all = papersJson(*papers);
  EXPECT_EQ(all[0]["experiments"][0], paperJson(paper));
  EXPECT_EQ(paperJson(paper)["exact"], false);
  EXPECT_EQ(paperJson(paper)["differs"], nlohmann::json({"that"}));
  EXPECT_TRUE(paperJson(paper)["ours"].is_null());
}

}  // namespace
}  // namespace allot
