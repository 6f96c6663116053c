// README.md says what the parser knows.
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>
#include <set>

#include "allot/kernels/method.h"
#include "cli/methods_text.h"
#include "core/spec/model_catalogue.h"
#include "core/spec/spec.h"
#include "core/spec/task_catalogue.h"
#include "tests/readme.h"

namespace allot {
namespace {

TEST(Readme, ItsKeyTableIsTheParsers) {
  EXPECT_EQ(between(readSource("README.md"), "<!-- keys: begin -->\n", "<!-- keys: end -->"),
            specKeysMarkdown());
}

TEST(Readme, ItsTablesOfModelsAndChatTemplatesAreTheCatalogues) {
  const std::string readme = readSource("README.md");
  EXPECT_EQ(between(readme, "<!-- models: begin -->\n", "<!-- models: end -->"),
            architecturesMarkdown());
  EXPECT_EQ(between(readme, "<!-- chat templates: begin -->\n", "<!-- chat templates: end -->"),
            chatTemplatesMarkdown());
}

TEST(Readme, ItsTableOfMethodsIsTheListOfMethods) {
  EXPECT_EQ(between(readSource("README.md"), "<!-- methods: begin -->\n", "<!-- methods: end -->"),
            methodsMarkdown());
}

TEST(Readme, ItsTableOfMethodParametersIsTheParsers) {
  EXPECT_EQ(between(readSource("README.md"), "<!-- method parameters: begin -->\n",
                    "<!-- method parameters: end -->"),
            kernels::methodParametersMarkdown());
}

TEST(Readme, ItsTablesOfTasksAndGradersAreTheCatalogues) {
  const std::string readme = readSource("README.md");
  EXPECT_EQ(between(readme, "<!-- tasks: begin -->\n", "<!-- tasks: end -->"), tasksMarkdown());
  EXPECT_EQ(between(readme, "<!-- graders: begin -->\n", "<!-- graders: end -->"),
            gradersMarkdown());
}

// NAME of each "./run NAME" that begins a line or stands in backquotes.
std::set<std::string> commandsIn(const std::string& text) {
  std::set<std::string> commands;
  const std::regex command("(^|\n|`)\\./run ([a-z][a-z0-9]*)");
  for (std::sregex_iterator it(text.begin(), text.end(), command), end; it != end; ++it) {
    commands.insert((*it)[2]);
  }
  return commands;
}

TEST(Readme, EveryCommandOfRunThatItOrTheHelpNamesIsThere) {
  const auto succeeds = [](const std::string& arguments) {
    return std::system((ALLOT_SOURCE_DIR "/run " + arguments + " >/dev/null 2>&1").c_str()) == 0;
  };
  std::set<std::string> commands = commandsIn(readSource("run"));
  commands.merge(commandsIn(readSource("README.md")));
  EXPECT_GE(commands.size(), 11u);
  for (const std::string& command : commands) {
    EXPECT_TRUE(succeeds("help " + command)) << "./run " << command;
  }
  EXPECT_FALSE(succeeds("help nonsense"));
}

// Examples that are compiled and run as tests (tests/estimators).
TEST(Readme, TheKernelsExamplesAreTheFilesThatAreTested) {
  const std::string readme = readSource("kernels/README.md");
  for (const std::string name : {"decode_example.cpp", "uniform_method.h", "uniform_method.cpp"}) {
    const std::string file = "kernels/example/" + name;
    EXPECT_EQ(between(readme, "<!-- " + file + ": begin -->\n```cpp\n",
                      "```\n<!-- " + file + ": end -->"),
              readSource(file));
  }
}

TEST(Readme, TheKernelsTableHasEveryMethodOfDecode) {
  const std::string table = between(readSource("kernels/README.md"), "\n| method |", "\n\n");
  for (const std::string_view name : kernels::methodNames()) {
    EXPECT_NE(table.find("\n| `" + std::string(name) + "` |"), table.npos) << name;
  }
}

TEST(Readme, ItsExperimentIsTheOneThatShips) {
  const std::string shown = between(readSource("README.md"), "```yaml\n", "```");
  EXPECT_EQ(shown, readSource("experiments/recall-layer-budget/experiment.yaml"));
  EXPECT_TRUE(parseExperiment(shown, "README.md"));
}

}  // namespace
}  // namespace allot
