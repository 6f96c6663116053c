// README.md says what the parser knows.
#include <gtest/gtest.h>

#include "allot/kernels/method.h"
#include "core/spec.h"
#include "core/task_catalogue.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

std::string read(const std::string& name) {
  return readFile(std::string(ALLOT_SOURCE_DIR) + "/" + name);
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t from = text.find(begin);
  const size_t to = from == std::string::npos ? from : text.find(end, from + begin.size());
  if (to == std::string::npos) return "(not found)";
  return text.substr(from + begin.size(), to - from - begin.size());
}

TEST(Readme, ItsKeyTableIsTheParsers) {
  EXPECT_EQ(between(read("README.md"), "<!-- keys: begin -->\n", "<!-- keys: end -->"),
            specKeysMarkdown());
}

TEST(Readme, ItsTableOfMethodParametersIsTheParsers) {
  EXPECT_EQ(between(read("README.md"), "<!-- method parameters: begin -->\n",
                    "<!-- method parameters: end -->"),
            kernels::methodParametersMarkdown());
}

TEST(Readme, ItsTablesOfTasksAndGradersAreTheCatalogues) {
  const std::string readme = read("README.md");
  EXPECT_EQ(between(readme, "<!-- tasks: begin -->\n", "<!-- tasks: end -->"), tasksMarkdown());
  EXPECT_EQ(between(readme, "<!-- graders: begin -->\n", "<!-- graders: end -->"),
            gradersMarkdown());
}

TEST(Readme, ItsExperimentIsTheOneThatShips) {
  const std::string shown = between(read("README.md"), "```yaml\n", "```");
  EXPECT_EQ(shown, read("experiments/recall-layer-budget/experiment.yaml"));
  EXPECT_TRUE(parseExperiment(shown, "README.md"));
}

}  // namespace
}  // namespace allot
