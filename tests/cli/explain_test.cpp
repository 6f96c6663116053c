// What `allot explain` and `allot new` say, without processes.
#include "cli/explain.h"

#include <sstream>

#include "allot/kernels/method.h"
#include "cli/new_experiment.h"
#include "cli/terminal.h"
#include "core/spec/spec.h"
#include "core/telemetry/metric_catalogue.h"
#include "tests/results.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

TEST(Explain, EverySubjectFitsTheTerminal) {
  for (const size_t width : {40, 80, 120}) {
    for (const char* subject : {"spec", "methods", "models", "tasks", "metrics", "spec.policy",
                                "spec.policy.totalBudget", "s2anta-sys"}) {
      const auto told = explain(subject, width, false);
      ASSERT_TRUE(told) << subject;
      std::istringstream lines(told->text);
      for (std::string line; std::getline(lines, line);) {
        // A word that is longer than the terminal stays whole.
        const bool one_word = line.find(' ', line.find_first_not_of(' ')) == std::string::npos;
        EXPECT_TRUE(line.size() <= width || one_word) << subject << ": " << line;
      }
    }
  }
}

TEST(Explain, HasEverythingThatTheTablesHave) {
  const auto keys = explain("spec", 80, false);
  EXPECT_EQ(keys->fields["keys"].size(), specKeys().size());
  EXPECT_EQ(keys->markdown, specKeysMarkdown());
  for (const SpecKey& key : specKeys()) {
    EXPECT_NE(("\n" + keys->text).find("\n" + key.path + "\n"), std::string::npos) << key.path;
  }
  const auto methods = explain("methods", 80, false);
  for (const std::string_view name : kernels::methodNames()) {
    EXPECT_NE(methods->text.find(std::string(name) + "\n"), std::string::npos) << name;
  }
  const auto metrics = explain("metrics", 80, false);
  EXPECT_EQ(metrics->fields["metrics"].size(), metricCatalogue().size());
}

TEST(Explain, OneThingIsThatThing) {
  const auto section = explain("spec.stop", 80, false);
  EXPECT_EQ(section->fields["keys"].size(), 2u);
  const auto key = explain("spec.policy.totalBudget", 80, false);
  ASSERT_EQ(key->fields["keys"].size(), 1u);  // and not spec.policy.totalBudgets
  EXPECT_EQ(key->fields["keys"][0]["path"], "spec.policy.totalBudget");
  const auto method = explain("vattention", 80, false);
  EXPECT_THAT(method->text, HasSubstr("epsilon\n"));
  EXPECT_THAT(method->text, Not(HasSubstr("tileSize")));
  const auto grader = explain("rouge-l", 80, false);
  EXPECT_THAT(grader->text, HasSubstr("rouge-l\n"));
  EXPECT_THAT(grader->text, Not(HasSubstr("rouge-lsum\n")));
  const auto task = explain("niah", 80, false);
  EXPECT_THAT(task->text, HasSubstr("suite recall\n"));
  EXPECT_THAT(task->text, Not(HasSubstr("suite ruler\n")));
  EXPECT_THAT(task->text, Not(HasSubstr("track:")));
}

TEST(Explain, SaysWhatWasMeant) {
  const auto meant = [](const std::string& subject) {
    return explain(subject, 80, false).error().message;
  };
  EXPECT_THAT(meant("metods"), HasSubstr("did you mean methods?"));
  EXPECT_THAT(meant("spec.polcy"), HasSubstr("did you mean spec.policy?"));
  EXPECT_THAT(meant("totalBudget"), HasSubstr("did you mean spec.policy.totalBudget?"));
  EXPECT_THAT(meant("nothing like it"), HasSubstr("`allot explain` lists the topics"));
}

TEST(Wrapped, BreaksBetweenWords) {
  EXPECT_EQ(wrapped("one two  three", 8, 0), "one two\nthree\n");
  EXPECT_EQ(wrapped("one two three", 8, 2), "  one\n  two\n  three\n");
  EXPECT_EQ(wrapped("incomprehensible", 4, 1), " incomprehensible\n");
  EXPECT_EQ(wrapped("\xc3\xa4\xc3\xa4 \xc3\xa4\xc3\xa4", 5, 0),
            "\xc3\xa4\xc3\xa4 \xc3\xa4\xc3\xa4\n");
  EXPECT_EQ(wrapped("", 10), "\n");
}

class New : public testing::Test {
 protected:
  std::string modelWith(const std::string& name, const std::string& config) const {
    std::filesystem::create_directory(temp_.path() + "/" + name);
    temp_.write(name + "/config.json", config);
    return temp_.path() + "/" + name;
  }
  TempFolder temp_;
};

TEST_F(New, TheFileIsOneThatIsAccepted) {
  const std::string model = modelWith("Llama 3.1: \"8B\" #x", R"({"num_hidden_layers": 32})");
  const auto made = valueOf(newExperiment(model));
  const auto parsed = valueOf(parseExperiment(newExperimentText(made), "x.yaml"));
  EXPECT_EQ(parsed.name(), "llama-3-1-8b-x");
  EXPECT_EQ(parsed.spec().model().path(), model);
  EXPECT_EQ(parsed.spec().policy().total_budget(), 256u);
  EXPECT_TRUE(parsed.spec().has_update());
  // The repository's own model, from anywhere in it.
  NewExperiment own{
      .name = "recall-7m", .model = "experiments/models/recall-7m", .layers = 8, .recall = true};
  EXPECT_TRUE(parseExperiment(newExperimentText(own), "x.yaml"));
}

TEST_F(New, TakesWhatIsAModel) {
  std::filesystem::create_directory(temp_.path() + "/none");
  EXPECT_EQ(newExperiment(modelWith("---", "{}"))->name, "experiment");
  EXPECT_FALSE(newExperiment(modelWith("strange", "[]"))->layers);
  EXPECT_EQ(newExperiment(temp_.write("small.Q4.gguf", ""))->name, "small-q4");
  for (const std::string& wrong : {temp_.path() + "/nowhere", temp_.write("notes.txt", ""),
                                   temp_.path() + "/none", modelWith("broken", "{")}) {
    EXPECT_EQ(codeOf(newExperiment(wrong)), ErrorCode::kUsage) << wrong;
  }
}

TEST_F(New, NothingIsOverwritten) {
  const std::string path = temp_.path() + "/a.yaml";
  ASSERT_TRUE(writeNewFile(path, "first"));
  EXPECT_THAT(writeNewFile(path, "second"), isError(HasSubstr("is there already")));
  EXPECT_EQ(readFile(path), "first");
  EXPECT_EQ(writeNewFile(temp_.path() + "/no/a.yaml", "x").error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace allot
