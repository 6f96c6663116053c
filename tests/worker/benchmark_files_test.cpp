// Suites longbench-v1 and infinitebench: the prompts that are made of files as published, and what
// is said of files that are not what they should be.
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "core/spec/spec_defaults.h"
#include "core/spec/task_catalogue.h"
#include "tests/results.h"
#include "tests/temp_folder.h"
#include "tests/worker/datasets.h"
#include "worker/tasks/task.h"

namespace allot {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class Benchmarks : public testing::Test {
 protected:
  v1::Task spec(const std::string& suite, const std::string& name, uint32_t questions = 1) {
    v1::Task task;
    task.set_suite(suite);
    task.add_tasks(name);
    task.set_path(folder_.path());
    task.set_context_tokens(4096);
    task.set_held_out_questions(questions);
    deriveTaskDefaults(task);
    return task;
  }

  Result<Dataset> make(const v1::Task& task) {
    return makeDataset(task, 7, tokenizer(), {.bos_token = 0});
  }

  // The question that one line of a task's file makes.
  Question questionOf(const std::string& suite, const std::string& name, const json& line) {
    folder_.write(name + ".jsonl", line.dump() + "\n");
    return valueOf(make(spec(suite, name))).held_out[0];
  }

  std::string refusal(const std::string& suite, const std::string& name, const std::string& text) {
    folder_.write(name + ".jsonl", text);
    const std::string message = messageOf(make(spec(suite, name)));
    const std::string file = "spec.task.path: " + folder_.path() + "/" + name + ".jsonl: ";
    EXPECT_THAT(message, StartsWith(file)) << text.substr(0, 80);
    return message.substr(std::min(file.size(), message.size()));
  }

  TempFolder folder_;
};

const json kLongbench = {
    {"input", "Who?"}, {"context", "A long text."}, {"answers", {" Ann", "Ann Lee"}}, {"length", 3},
    {"dataset", ""},   {"language", "en"},          {"all_classes", nullptr},         {"_id", "7"}};

TEST_F(Benchmarks, LongbenchPromptsAreThePublishedOnes) {
  const std::map<std::string, std::pair<std::string, std::string>> ends = {
      {"narrativeqa",
       {"You are given a story,",
        "A long text.\n\nNow, answer the question based on "
        "the story asconcisely as you can, using a single phrase if possible. Do not "
        "provide any explanation.\n\nQuestion: Who?\n\nAnswer:"}},
      {"qasper", {"You are given a scientific article", "\n\nQuestion: Who?\n\nAnswer:"}},
      {"multifieldqa_en", {"Read the following text", "words.\n\nQuestion: Who?\nAnswer:"}},
      {"hotpotqa",
       {"Answer the question based on the given passages.", "words.\n\nQuestion: Who?\nAnswer:"}},
      {"2wikimqa", {"Answer the question", "Who?\nAnswer:"}},
      {"musique", {"Answer the question", "Who?\nAnswer:"}},
      {"gov_report",
       {"You are given a report by a government agency. Write a one-page summary of "
        "the report.\n\nReport:\nA long text.",
        "text.\n\nNow, write a one-page summary of the report.\n\nSummary:"}},
      {"qmsum", {"You are given a meeting transcript", "\n\nQuery: Who?\nAnswer:"}},
      {"multi_news", {"You are given several news", "of all the news.\n\nSummary:"}},
      {"trec",
       {"Please determine the type of the question below. Here are some examples of "
        "questions.\n\nA long text.",
        "text.\nWho?"}},
      {"triviaqa", {"Answer the question based on the given passage. Only", "text.\n\nWho?"}},
      {"samsum", {"Summarize the dialogue into", "examples.\n\nA long text.\n\nWho?"}},
      {"passage_count", {"There are some paragraphs", "\n\nThe final answer is: "}},
      {"passage_retrieval_en",
       {"Here are 30 paragraphs",
        "text.\n\nThe following is an abstract.\n\n"
        "Who?\n\nPlease enter the number of the paragraph that the abstract "
        "is from. The answer format must be like \"Paragraph 1\", "
        "\"Paragraph 2\", etc.\n\nThe answer is: "}},
      {"lcc",
       {"Please complete the code given below. \nA long text.", "text.Next line of code:\n"}},
      {"repobench-p",
       {"Please complete the code given below. \nA long text.", "text.Who?Next line of code:\n"}}};
  const SuiteInfo& suite = *findSuiteInfo("longbench-v1");
  ASSERT_EQ(suite.tasks.size(), ends.size());
  for (const TaskInfo& info : suite.tasks) {
    const std::string name(info.name);
    json line = kLongbench;
    line["dataset"] = name;
    line["all_classes"] = {"Ann", "Ann Lee", "Bob"};
    const Question question = questionOf("longbench-v1", name, line);
    EXPECT_THAT(question.prompt, StartsWith(ends.at(name).first)) << name;
    EXPECT_THAT(question.prompt, EndsWith(ends.at(name).second)) << name;
    EXPECT_THAT(question.answers, ElementsAre(" Ann", "Ann Lee")) << "as they stand";
    EXPECT_EQ(question.classes.size(), name == "trec" ? 3U : 0U);
    EXPECT_EQ(question.own_answer_tokens, info.answer_tokens);
    EXPECT_GT(question.context_tokens, 0U) << name;
    EXPECT_LT(question.context_tokens, question.prompt_ids.size()) << name;
  }
}

// Five tasks go on from examples or code, and are asked without a chat template.
TEST_F(Benchmarks, OfLongbenchFiveTasksHaveNoChatTemplate) {
  const DatasetOptions options{.render = [](const Draft& draft) {
    return Rendered{"<turn>" + draft.prompt, {1, 2, 3}};
  }};
  std::vector<std::string> bare;
  for (const TaskInfo& info : findSuiteInfo("longbench-v1")->tasks) {
    json line = kLongbench;
    line["dataset"] = info.name;
    line["all_classes"] = {"Ann"};
    folder_.write(std::string(info.name) + ".jsonl", line.dump());
    const auto made =
        valueOf(makeDataset(spec("longbench-v1", std::string(info.name)), 7, tokenizer(), options));
    if (!made.held_out[0].prompt.starts_with("<turn>")) bare.emplace_back(info.name);
  }
  EXPECT_THAT(bare, ElementsAre("trec", "triviaqa", "samsum", "lcc", "repobench-p"));
}

TEST_F(Benchmarks, GradesAreThoseOfTheTask) {
  json line = kLongbench;
  line["dataset"] = "trec";
  line["answers"] = {"City"};
  line["all_classes"] = {"City", "Country", "Date"};
  const v1::Task task = spec("longbench-v1", "trec");
  const Question question = questionOf("longbench-v1", "trec", line);
  EXPECT_EQ(grade(task, question, "City\nDate").score, 1);
  EXPECT_EQ(grade(task, question, "City or Country").score, 0.5);
  EXPECT_EQ(grade(task, question, "City or Country").other, std::nullopt);
  // What classes there are is a part of what is asked.
  line["all_classes"] = {"City", "Country"};
  const Question fewer = questionOf("longbench-v1", "trec", line);
  EXPECT_EQ(fewer.prompt, question.prompt);
  EXPECT_NE(datasetDigest({{}, {fewer}}), datasetDigest({{}, {question}}));
}

TEST_F(Benchmarks, APromptThatIsTooLongLosesItsMiddle) {
  json line = kLongbench;
  line["dataset"] = "hotpotqa";
  std::string text = "First words.";
  for (int i = 0; i < 3000; ++i) text += " word" + std::to_string(i);
  line["context"] = text + " Last words.";
  folder_.write("hotpotqa.jsonl", line.dump());
  v1::Task task = spec("longbench-v1", "hotpotqa");
  task.set_context_tokens(500);
  const auto made = valueOf(make(task));
  const Question& question = made.held_out[0];
  EXPECT_LE(question.prompt_ids.size(), 500U);
  EXPECT_GT(question.prompt_ids.size(), 480U);
  EXPECT_THAT(question.prompt, StartsWith("Answer the question based on"));
  EXPECT_THAT(question.prompt, HasSubstr("First words. word0"));
  EXPECT_THAT(question.prompt, HasSubstr("Last words.\n\nAnswer the question"));
  EXPECT_THAT(question.prompt, EndsWith("Question: Who?\nAnswer:"));
  EXPECT_GT(question.context_tokens, 0U);
  EXPECT_LT(question.context_tokens, question.prompt_ids.size());
}

TEST_F(Benchmarks, InfinitebenchPromptsAreThePublishedOnes) {
  const json options = {"one", "two", "three", "four"};
  const auto asked = [&](const std::string& name, const std::string& input, const json& answer,
                         const json& choices = json::array()) {
    return questionOf("infinitebench", name,
                      {{"id", 1},
                       {"context", "The context."},
                       {"input", input},
                       {"answer", answer},
                       {"options", choices}});
  };
  Question question = asked("passkey", "What is the pass key?", {"71432"});
  EXPECT_EQ(
      question.prompt,
      "There is an important info hidden inside a lot of irrelevant text. Find it and memorize "
      "it. I will quiz you about the important information.\n\nThe context.\n\nWhat is the "
      "pass key?\n\nThe pass key is");
  EXPECT_THAT(question.answers, ElementsAre("71432"));
  EXPECT_EQ(question.own_answer_tokens, 6U);
  question = asked("number_string", "What is it?", 11);
  EXPECT_THAT(question.prompt, EndsWith("there.\n\nThe context.\n\nWhat is it?\n\nThe sequence of "
                                        "digits is"));
  EXPECT_THAT(question.answers, ElementsAre("11"));
  EXPECT_EQ(asked("kv_retrieval", "Key: \"k\"", "v").prompt,
            "Extract the value corresponding to the specified key in the JSON object below.\n\nThe "
            "context.\n\nKey: \"k\"");
  EXPECT_EQ(asked("longbook_sum_eng", "", {"A summary."}).prompt,
            "Summarize the book below.\n\nThe context.\n\nSummary:");
  question = asked("longbook_choice_eng", "Which?", {"three"}, options);
  EXPECT_EQ(question.prompt,
            "Read the book and answer the question.\n\nThe context.\n\nQuestion: Which?\nA. one\n"
            "B. two\nC. three\nD. four\n\nThe letter of the correct answer is");
  EXPECT_THAT(question.answers, ElementsAre("three", "C"));
  question = asked("longbook_qa_eng", "Who?", {"Ann", "Ann Lee"});
  EXPECT_EQ(question.prompt,
            "Read the book and answer the question. Be very concise in your answer.\n\nThe context."
            "\n\nQuestion: Who?\nAnswer:");
  EXPECT_THAT(question.answers, ElementsAre("Ann", "Ann Lee"));
  EXPECT_THAT(asked("longdialogue_qa_eng", "", {"ANN"}).prompt,
              EndsWith("The context.\n\nThe name that has been replaced with $$MASK$$ is likely"));
  question = asked("math_find", "The smallest number of the list is:\nof", {12});
  EXPECT_EQ(question.prompt,
            "What is the smallest number in the following list?\n\nThe context.\n\nThe smallest "
            "number of the list is:\nof");
  EXPECT_THAT(question.answers, ElementsAre("12"));
  question = asked("code_run", "Please give the value of func_7(-3).", -9);
  EXPECT_EQ(question.prompt,
            "There is a function called func_7 in the following Python code.\n\nThe context.\n\n"
            "Please compute the exact value of func_7(-3). The value of func_7(-3) is");
  EXPECT_THAT(question.answers, ElementsAre("-9"));
  question = asked("code_debug", "", {"two", "B"}, options);
  EXPECT_THAT(question.prompt, StartsWith("Following is a Python code where exactly one of"));
  EXPECT_THAT(question.prompt, EndsWith("The context.\n\nOptions:\nA. one\nB. two\nC. three\nD. "
                                        "four\n\nThe correct option is:"));
  EXPECT_THAT(question.answers, ElementsAre("two", "B"));
  EXPECT_GT(question.context_tokens, 0U);
}

TEST_F(Benchmarks, HostileFilesAreASentenceWithFileAndLine) {
  const std::string good = R"({"context": "c", "input": "i", "answers": ["a"]})";
  const auto longbench = [&](const std::string& text) {
    return refusal("longbench-v1", "qasper", text);
  };
  EXPECT_EQ(longbench(""), "is empty: it has no question");
  EXPECT_EQ(longbench(good + "\n{\"context\": \"c\""), "line 2: is not JSON: it ends too early");
  EXPECT_EQ(longbench(good + "\n{\"context\": \"\xff\"}"), "line 2: is not UTF-8");
  EXPECT_EQ(longbench("{}"), "line 1: has no field \"context\"");
  EXPECT_EQ(longbench(R"({"context": 1})"), "line 1: field \"context\" is not a string");
  EXPECT_EQ(longbench(R"({"context": " "})"), "line 1: field \"context\" is blank");
  EXPECT_EQ(longbench(R"({"context": "c"})"), "line 1: has no field \"input\"");
  EXPECT_EQ(longbench(R"({"context": "c", "input": ""})"), "line 1: field \"input\" is blank");
  EXPECT_EQ(longbench(R"({"context": "c", "input": "i"})"), "line 1: has no field \"answers\"");
  EXPECT_EQ(longbench(R"({"context": "c", "input": "i", "answers": []})"),
            "line 1: field \"answers\" has no answer");
  EXPECT_EQ(longbench(R"({"context": "c", "input": "i", "answers": [" ", ""]})"),
            "line 1: field \"answers\" has no answer");
  EXPECT_EQ(longbench(R"({"context": "c", "input": "i", "answers": {"a": 1}})"),
            "line 1: field \"answers\" is not a string, a number or a list of them");
  EXPECT_EQ(longbench(R"({"context": "c", "input": "i", "answers": [["a"]]})"),
            "line 1: field \"answers\" is not a string, a number or a list of them");
  EXPECT_EQ(longbench(R"({"dataset": "trec", "context": "c", "input": "i", "answers": ["a"]})"),
            "line 1: field \"dataset\" is not \"qasper\", which the file is named after");
  EXPECT_EQ(longbench(R"({"dataset": 7, "context": "c"})"),
            "line 1: field \"dataset\" is not a string");
  EXPECT_EQ(longbench(std::string(1 << 24, 'x')), "line 1: is not JSON at column 1");
  EXPECT_EQ(longbench(R"({"context": ")" + std::string(1 << 24, 'x') + R"(", "input": "i"})"),
            "line 1: has no field \"answers\"");
  EXPECT_EQ(refusal("longbench-v1", "trec", good), "line 1: has no field \"all_classes\"");
  EXPECT_EQ(refusal("longbench-v1", "gov_report", R"({"context": "c", "input": 1})"),
            "line 1: field \"input\" is not a string");

  const auto chosen = [&](const std::string& rest) {
    return refusal("infinitebench", "longbook_choice_eng",
                   R"({"context": "c", "input": "i", )" + rest + "}");
  };
  EXPECT_EQ(chosen(R"("answer": "a")"), "line 1: has no field \"options\"");
  EXPECT_EQ(chosen(R"("options": ["a", "b"], "answer": "a")"),
            "line 1: field \"options\" has 2 entries instead of 4");
  const std::string neither =
      "line 1: field \"answer\" is neither one of the options nor an option with its letter";
  EXPECT_EQ(chosen(R"("options": ["a", "b", "c", "d"], "answer": "e")"), neither);
  EXPECT_EQ(chosen(R"("options": ["a", "b", "c", "d"], "answer": ["a", "b"])"), neither);
  EXPECT_EQ(chosen(R"("options": ["a", "b", "c", "d"], "answer": ["a", "A", "b"])"), neither);
  EXPECT_EQ(refusal("infinitebench", "code_run", R"({"context": "c", "input": "func_x(1)?"})"),
            "line 1: field \"input\" has no call such as func_1(2)");
  EXPECT_EQ(refusal("infinitebench", "code_run", R"({"context": "c", "input": "func_1(2"})"),
            "line 1: field \"input\" has no call such as func_1(2)");
  EXPECT_EQ(refusal("infinitebench", "math_find", R"({"context": "c", "input": "The  of"})"),
            "line 1: field \"input\" does not say \"The ... of\" what is asked for");
  EXPECT_EQ(
      refusal("infinitebench", "passkey", R"({"context": "c", "input": "i", "answer": [[1]]})"),
      "line 1: field \"answer\" is not a string, a number or a list of them");

  v1::Task task = spec("infinitebench", "passkey");
  task.set_path(folder_.path() + "/passkey.jsonl");
  EXPECT_EQ(make(task).error().message,
            "spec.task.path: " + task.path() +
                ": is no folder; suite infinitebench reads the one that has TASK.jsonl in it for "
                "each task");
  task.set_path(folder_.path());
  task.set_tasks(0, "kv_retrieval");
  EXPECT_EQ(make(task).error().message,
            "spec.task.path: " + folder_.path() +
                "/kv_retrieval.jsonl: cannot be read: is the path right?");
}

// Questions about one text are on one side, and several tasks are asked in turns.
TEST_F(Benchmarks, OneTextIsOnOneSide) {
  for (const std::string name : {"qasper", "musique"}) {
    folder_.write(name + ".jsonl", jsonLines(120, [](int i) {
                    return json({{"context", "Text " + std::to_string(i / 3)},
                                 {"input", "Question " + std::to_string(i)},
                                 {"answers", {std::to_string(i / 3)}}});
                  }));
  }
  v1::Task task = spec("longbench-v1", "qasper", 60);
  task.add_tasks("musique");
  task.set_train_questions(60);
  const auto made = valueOf(make(task));
  std::map<std::string, int> sides;
  for (const Question& question : made.train) sides[question.task + question.answers[0]] |= 1;
  for (const Question& question : made.held_out) sides[question.task + question.answers[0]] |= 2;
  for (const auto& [text, side] : sides) EXPECT_NE(side, 3) << text;
  EXPECT_EQ(made.held_out[0].task, "qasper");
  EXPECT_EQ(made.held_out[1].task, "musique");
}

}  // namespace
}  // namespace allot
