// What `allot-worker --schedules` answers: spelled answers are the model's own, token by token, and
// lines that are wrong are named.
#include "worker/engine/schedule_answers.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/temp_folder.h"
#include "tests/worker/engine_fixture.h"

namespace allot {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

class ScheduleAnswers : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    experiment_ = new v1::Experiment(
        experiment({"spec.task.trainQuestions=16", "spec.task.heldOutQuestions=8",
                    "spec.task.contextTokens=256"}));
    engine_ = load(*experiment_, 64).release();
  }
  static void TearDownTestSuite() {
    delete engine_;
    delete experiment_;
  }

  // The last line's answer; an error's message.
  static json answered(const std::string& lines, bool any_model = false) {
    std::istringstream in(lines);
    std::ostringstream out;
    const Status done = answerSchedules(*experiment_, engine_, &in, &out, any_model);
    if (!done) return done.error().message;
    std::string text = out.str(), last;
    std::istringstream all(text);
    for (std::string line; std::getline(all, line);) last = line;
    return json::parse(last);
  }

  static inline v1::Experiment* experiment_ = nullptr;
  static inline Engine* engine_ = nullptr;
};

TEST_F(ScheduleAnswers, AnswersThatCannotBeWrittenEndIt) {
  std::istringstream in(R"({"spell": [5], "method": "dense"})");
  std::ostream nowhere(nullptr);
  EXPECT_EQ(codeOf(answerSchedules(*experiment_, engine_, &in, &nowhere)), ErrorCode::kIo);
}

// A policy that names this model answers as its schedule does; another's is refused, unless told.
TEST_F(ScheduleAnswers, PoliciesOfOtherModelsAreRefused) {
  const TempFolder folder;
  const json policy = {{"total_budget", 8},
                       {"learned_schedule", {1, 1, 1, 1, 1, 1, 1, 1}},
                       {"frontier",
                        {{{"total_budget", 8}, {"learned_schedule", {1, 1, 1, 1, 1, 1, 1, 1}}},
                         {{"total_budget", 16}, {"learned_schedule", {2, 2, 2, 2, 2, 2, 2, 2}}}}}};
  const auto under = [&](const json& model, const char* more = "", bool any_model = false) {
    json made_for = policy;
    made_for["model"] = model;
    folder.write("policy.json", made_for.dump());
    return answered(R"({"policy": ")" + folder.path() + R"(", "heldOut": true)" + more + "}",
                    any_model);
  };
  const json own = {{"weights_sha256", engine_->facts().weights_sha256()},
                    {"model_sha256", engine_->facts().model_sha256()}};
  const json eight = answered(R"({"schedule": [1, 1, 1, 1, 1, 1, 1, 1], "heldOut": true})");
  const json sixteen = answered(R"({"schedule": [2, 2, 2, 2, 2, 2, 2, 2], "heldOut": true})");
  EXPECT_EQ(under(own), eight);
  EXPECT_EQ(under(own, R"(, "totalBudget": 16)"), sixteen);
  EXPECT_EQ(under(json()), eight);           // of an earlier build
  EXPECT_EQ(under({{"layers", 8}}), eight);  // without a digest
  const std::string path = folder.path() + "/policy.json";
  json other = own;
  other["weights_sha256"] = std::string(64, '0');
  EXPECT_EQ(under(other), "line 1 of the input: " + path +
                              ": was made for another model: the SHA-256 of its weights is "
                              "000000000000, this model's " +
                              engine_->facts().weights_sha256().substr(0, 12) +
                              "; --any-model takes it all the same");
  EXPECT_EQ(under(other, "", true), eight);
  other = own;
  other["model_sha256"] = std::string(64, '1');
  EXPECT_THAT(under(other).get<std::string>(), HasSubstr("configuration and tokenizer"));
  EXPECT_THAT(under({{"layers", 9}}).get<std::string>(),
              HasSubstr("it has 9 layers, this model 8;"));
  EXPECT_THAT(under(own, R"(, "totalBudget": 9)").get<std::string>(),
              HasSubstr("has schedules for the total budgets 8, 16, not for 9"));
  EXPECT_THAT(under(own, R"(, "schedule": [1])").get<std::string>(),
              HasSubstr("leave out schedule"));
  folder.write("policy.json", "{}");
  EXPECT_THAT(answered(R"({"policy": ")" + path + R"("})").get<std::string>(),
              HasSubstr("is no policy.json"));
}

// Each token is what a prompt that ends before it is followed by.
TEST_F(ScheduleAnswers, ASpelledAnswerIsTheModelsLikeliest) {
  const json answer = answered(R"({"spell": [5, 0], "method": "dense"})");
  ASSERT_EQ(answer["answers"].size(), 2u);
  Decoder& decoder = engine_->decoder();
  for (const size_t i : {0, 1}) {
    const json& spelled = answer["answers"][i];
    const uint32_t question = i == 0 ? 5 : 0;
    EXPECT_EQ(spelled["question"], question);
    Ids ids = spelled["prompt"].get<Ids>();
    EXPECT_EQ(ids, engine_->dataset().held_out[question].prompt_ids);
    const Ids tokens = spelled["tokens"].get<Ids>();
    ASSERT_FALSE(tokens.empty());
    for (const int32_t token : tokens) {
      auto prompt = valueOf(decoder.prefill(ids));
      const auto& logits = prompt.first_logits;
      EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), token);
      decoder.release(&prompt);
      ids.push_back(token);
    }
  }
}

TEST_F(ScheduleAnswers, ASpelledAnswerIsAnEvaluations) {
  v1::EvaluationUnit unit;
  unit.set_unit_id("all");
  unit.set_question_count(8);
  for (const char* method : {"dense", "s2anta-sys"}) {
    unit.set_method(method);
    const std::vector<uint32_t> schedule(8, 4);
    *unit.mutable_schedule() = {schedule.begin(), schedule.end()};
    const auto evaluated = valueOf(engine_->evaluate(unit));
    const json line = {
        {"spell", {0, 1, 2, 3, 4, 5, 6, 7}}, {"method", method}, {"schedule", schedule}};
    const json all = answered(line.dump())["answers"];
    ASSERT_EQ(all.size(), 8u);
    for (int q = 0; q < 8; ++q) {
      EXPECT_EQ(all[q]["score"], evaluated.scores(q).score()) << method;
      EXPECT_EQ(all[q]["tokens"].size(), evaluated.scores(q).tokens()) << method;
      // Whatever else is asked beside it.
      const json one = {{"spell", {q}}, {"method", method}, {"schedule", schedule}};
      EXPECT_EQ(answered(one.dump())["answers"][0], all[q]) << method;
    }
  }
}

TEST_F(ScheduleAnswers, LinesThatAreWrongAreNamed) {
  const std::string good = R"({"spell": [0], "method": "dense"})";
  for (const auto& [line, why] : std::vector<std::pair<std::string, std::string>>{
           {"7", "it is no JSON object"},
           {R"({"spel": [0], "method": "dense"})", "unknown key \"spel\""},
           {R"({"spell": [], "method": "dense"})", "spell is no list of 1 to 4096 questions"},
           {R"({"spell": 3, "method": "dense"})", "spell is no list of 1 to 4096 questions"},
           {R"({"spell": [-1], "method": "dense"})", "spell: -1 is no question's number"},
           {R"({"spell": [8], "method": "dense"})", "there is no held-out question 8"},
           {R"({"spell": [0]})", "method, what the questions of spell are answered by, is missing"},
           {R"({"spell": [0], "method": "densely"})", "method: densely"},
           {R"({"spell": [0], "method": "dense", "set": 1})", "leave out set and heldOut"},
           {R"({"spell": [0], "method": "dense", "schedule": [1, 2]})",
            "schedule has 2 entries, the model 8 layers"},
           {R"({"schedule": [1, 1, 1, 1, 1, 1, 1, 1], "method": "dense"})",
            "method is for the questions of spell"},
       }) {
    const json said = answered(good + "\n" + line);
    ASSERT_TRUE(said.is_string()) << line;
    EXPECT_THAT(said.get<std::string>(), HasSubstr(why)) << line;
  }
  EXPECT_THAT(answered(good + "\n7").get<std::string>(), HasSubstr("line 2 of the input: "));
}

}  // namespace
}  // namespace allot
