// The documents say what the parser knows; each test names the command that prints the new table.
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>
#include <set>

#include "allot/kernels/method.h"
#include "cli/explain.h"
#include "core/spec/model_catalogue.h"
#include "core/spec/spec.h"
#include "core/spec/task_catalogue.h"
#include "tests/readme.h"

namespace allot {
namespace {

TEST(Documents, TheKeyTableIsTheParsers) {
  EXPECT_EQ(between(readSource("docs/reference/experiment-file.md"), "<!-- keys: begin -->\n",
                    "<!-- keys: end -->"),
            specKeysMarkdown())
      << "allot keys";
}

TEST(Documents, TheTablesOfModelsAndChatTemplatesAreTheCatalogues) {
  const std::string models = readSource("docs/models.md");
  EXPECT_EQ(between(models, "<!-- models: begin -->\n", "<!-- models: end -->"),
            architecturesMarkdown())
      << "allot models";
  EXPECT_EQ(between(models, "<!-- chat templates: begin -->\n", "<!-- chat templates: end -->"),
            chatTemplatesMarkdown())
      << "allot models";
}

TEST(Documents, TheTableOfMethodsIsTheListOfMethods) {
  EXPECT_EQ(between(readSource("docs/reference/methods.md"), "<!-- methods: begin -->\n",
                    "<!-- methods: end -->"),
            methodsMarkdown())
      << "allot methods";
}

TEST(Documents, TheTableOfMethodParametersIsTheParsers) {
  EXPECT_EQ(between(readSource("docs/reference/methods.md"), "<!-- method parameters: begin -->\n",
                    "<!-- method parameters: end -->"),
            kernels::methodParametersMarkdown())
      << "allot methods";
}

TEST(Documents, TheTablesOfTasksAndGradersAreTheCatalogues) {
  const std::string tasks = readSource("docs/reference/tasks.md");
  EXPECT_EQ(between(tasks, "<!-- tasks: begin -->\n", "<!-- tasks: end -->"), tasksMarkdown())
      << "allot tasks";
  EXPECT_EQ(between(tasks, "<!-- graders: begin -->\n", "<!-- graders: end -->"), gradersMarkdown())
      << "allot tasks";
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

TEST(Documents, EveryCommandOfRunThatTheyOrTheHelpNameIsThere) {
  const auto succeeds = [](const std::string& arguments) {
    return std::system((ALLOT_SOURCE_DIR "/run " + arguments + " >/dev/null 2>&1").c_str()) == 0;
  };
  std::set<std::string> commands = commandsIn(readSource("run"));
  for (const std::string name : {"README.md", "docs/extending.md", "docs/operations.md"}) {
    commands.merge(commandsIn(readSource(name)));
  }
  EXPECT_GE(commands.size(), 11u);
  for (const std::string& command : commands) {
    EXPECT_TRUE(succeeds("help " + command)) << "./run " << command;
  }
  EXPECT_FALSE(succeeds("help nonsense"));
}

// Examples that are compiled and run as tests (tests/kernels).
TEST(Documents, TheKernelsExamplesAreTheFilesThatAreTested) {
  const std::string readme = readSource("kernels/README.md");
  for (const std::string name : {"decode_example.cpp", "uniform_method.h", "uniform_method.cpp"}) {
    const std::string file = "kernels/example/" + name;
    EXPECT_EQ(between(readme, "<!-- " + file + ": begin -->\n```cpp\n",
                      "```\n<!-- " + file + ": end -->"),
              readSource(file));
  }
}

TEST(Documents, TheKernelsTableHasEveryMethodOfDecode) {
  const std::string table = between(readSource("kernels/README.md"), "\n| method |", "\n\n");
  for (const std::string_view name : kernels::methodNames()) {
    EXPECT_NE(table.find("\n| `" + std::string(name) + "` |"), table.npos) << name;
  }
}

TEST(Documents, TheirExperimentIsTheOneThatShips) {
  const std::string shown =
      between(readSource("docs/reference/experiment-file.md"), "```yaml\n", "```");
  EXPECT_EQ(shown, readSource("experiments/recall-layer-budget/experiment.yaml"));
  EXPECT_TRUE(parseExperiment(shown, "experiment-file.md"));
}

}  // namespace
}  // namespace allot
