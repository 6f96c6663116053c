// Questions from files: the prompts that are made of them, the split, and what is said of files
// that are not what they should be.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "core/spec/spec_defaults.h"
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

v1::Task spec(const std::string& suite, const std::string& path, uint32_t train = 1,
              uint32_t held_out = 1, uint32_t context_tokens = 2048) {
  v1::Task task;
  task.set_suite(suite);
  task.set_path(path);
  task.set_context_tokens(context_tokens);
  task.set_train_questions(train);
  task.set_held_out_questions(held_out);
  task.set_max_new_tokens(24);
  deriveTaskDefaults(task);
  return task;
}

Result<Dataset> make(const v1::Task& task, uint64_t seed = 7) {
  return makeDataset(task, seed, tokenizer(), {.bos_token = 0});
}

std::string refusal(const v1::Task& task) { return messageOf(make(task)); }

class Files : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_.path() + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  // `count` lines of suite jsonl.
  std::string writeQuestions(const std::string& name, int count, int first = 0) {
    return write(name, jsonLines(count, [&](int i) {
                   const std::string n = std::to_string(first + i);
                   return json({{"prompt", "Question number " + n + ": why?"}, {"answers", n}});
                 }));
  }

  TempFolder folder_;
};

// Of a program every blank counts; of other answers none around them.
TEST_F(Files, AnswersThatAreProgramsStayAsTheyStand) {
  const std::string path = write(
      "own.jsonl",
      json({{"prompt", "Add."}, {"answers", {"def f():\n", "\nassert f() == 1"}}}).dump() + "\n");
  v1::Task task = spec("jsonl", path, 0, 1);
  EXPECT_THAT(make(task)->held_out[0].answers, ElementsAre("def f():", "assert f() == 1"));
  task.set_grader("python-tests");
  EXPECT_THAT(make(task)->held_out[0].answers, ElementsAre("def f():\n", "\nassert f() == 1"));
}

// Those of tests/worker/humaneval, and of any model: no turns, every blank where it was.
TEST_F(Files, HumanevalIsCompletedAsItStands) {
  const v1::Task task =
      spec("humaneval", ALLOT_SOURCE_DIR "/tests/worker/humaneval/problems.jsonl", 0, 4);
  const auto turns = [](const Draft& draft) { return Rendered{"<turn>" + draft.prompt, {1}}; };
  const auto made = valueOf(makeDataset(task, 7, tokenizer(), {.bos_token = 0, .render = turns}));
  ASSERT_EQ(made.held_out.size(), 4u);
  bool found = false;
  for (const Question& question : made.held_out) {
    ASSERT_EQ(question.answers.size(), 2u);
    EXPECT_EQ(question.prompt, question.answers[0]);
    EXPECT_EQ(
        tokenizer().decode({question.prompt_ids.begin() + 1, question.prompt_ids.end()}, false),
        question.prompt);
    if (!question.prompt.starts_with("\ndef fold_name(text: str)")) continue;
    found = true;
    EXPECT_THAT(question.prompt, EndsWith("'sparse-attention-\u00e9'\n    \"\"\"\n"));
    EXPECT_THAT(question.answers[1], StartsWith("\n\ndef check(candidate):\n"));
    EXPECT_THAT(question.answers[1], EndsWith(" == 'a-b'\n\ncheck(fold_name)"));
  }
  EXPECT_TRUE(found);
  EXPECT_FALSE(isComplete(task, "    return 1\n\n    # more\n  def"));
  EXPECT_TRUE(isComplete(task, "    return 1\n\ndef"));
  for (const auto& [line, wrong] : std::vector<std::pair<std::string, std::string>>{
           {R"({"prompt": "def f():", "test": "x"})", "has no field \"entry_point\""},
           {R"({"prompt": "def f():", "test": "x", "entry_point": "f); g("})",
            "field \"entry_point\" is not the name of a Python function"},
           {R"({"prompt": "def f():", "test": "x", "entry_point": "2f"})",
            "field \"entry_point\" is not the name of a Python function"},
           {R"({"prompt": " ", "test": "x", "entry_point": "f"})", "field \"prompt\" is blank"},
           {R"({"prompt": "def f():", "test": 1, "entry_point": "f"})",
            "field \"test\" is not a string"}}) {
    EXPECT_THAT(refusal(spec("humaneval", write("wrong.jsonl", line), 0, 1)),
                HasSubstr("wrong.jsonl: line 1: " + wrong));
  }
}

TEST_F(Files, Gsm8kPromptsAreThoseOfAppendixO) {
  const std::string text = jsonLines(20, [](int i) {
    return json({{"question", "What is " + std::to_string(i) + " and 1?"},
                 {"answer", "Add <<1>> one.\n#### 1," + std::to_string(100 + i)}});
  });
  v1::Task task = spec("gsm8k", write("train.jsonl", text));
  const Dataset llama = make(task).value();
  EXPECT_THAT(llama.train[0].prompt,
              StartsWith("You are a precise mathematician. Explain your reasoning step by step, "
                         "then output ONLY the final number on a new line.\n\nWhat is "));
  EXPECT_THAT(llama.train[0].answers[0], StartsWith("1,1"));
  const std::string blank =
      write("blank.jsonl", R"({"question": "q", "answer": "#### 12 345 678"})");
  EXPECT_THAT(make(spec("gsm8k", blank, 0, 1))->held_out[0].answers, ElementsAre("12345678"));
  EXPECT_EQ(llama.train[0].context_tokens, 0U);
  EXPECT_EQ(grade(task, llama.train[0], "So\n" + llama.train[0].answers[0].substr(2)).score, 0);
  EXPECT_EQ(grade(task, llama.train[0], "So\n$" + llama.train[0].answers[0] + ".0").score, 1);
  task.set_prompt_style("deepseek");
  const Dataset deepseek = make(task).value();
  EXPECT_THAT(deepseek.train[0].prompt,
              EndsWith(" and 1?\n\nPlease reason step by step, and put your final numeric answer "
                       "within \\boxed{}."));
  EXPECT_THAT(deepseek.train[0].prompt, StartsWith("What is "));
  EXPECT_EQ(grade(task, deepseek.train[0], "\\boxed{" + deepseek.train[0].answers[0] + "} 3").score,
            1);
}

TEST_F(Files, MmluIsReadAsCsvFolderAndJsonToTheSameQuestions) {
  const std::string csv =
      "\"Which \"\"word\"\", here?\",\"a, b\",two,\"three\nlines\",four,C\r\n"
      "Plain question,1,2,3,4,A\r\n\r\n"
      "Third,1,,3,4,d";
  json lines = {
      {{"question", "Which \"word\", here?"},
       {"choices", {"a, b", "two", "three\nlines", "four"}},
       {"answer", 2},
       {"subject", "x"}},
      {{"question", "Plain question"}, {"choices", {"1", "2", "3", "4"}}, {"answer", "A"}},
      {{"question", "Third"}, {"choices", {"1", "", "3", "4"}}, {"answer", 3}}};
  std::string jsonl;
  for (const json& line : lines) jsonl += line.dump() + "\r\n";
  write("val/one_val.csv", csv.substr(0, csv.rfind("Third")) + "Third,1,,3,4,D");
  write("val/README.txt", "not read");
  const auto all = [&](const std::string& path) {
    // Any split of three questions has two on a side or three; all are wanted.
    std::set<std::string> texts;
    for (uint32_t train = 0; train <= 3; ++train) {
      const auto made = make(spec("mmlu", path, train, 3 - train));
      if (!made) continue;
      for (const auto* split : {&made->train, &made->held_out}) {
        for (const Question& question : *split) {
          texts.insert(question.prompt + "|" + question.answers[0]);
        }
      }
    }
    return texts;
  };
  const auto from_folder = all(folder_.path() + "/val");
  EXPECT_EQ(from_folder.size(), 3U);
  EXPECT_EQ(all(write("val.jsonl", jsonl)), from_folder);
  EXPECT_EQ(all(write("val.json", lines.dump(1))), from_folder);
  EXPECT_THAT(from_folder, testing::Contains(testing::AllOf(
                               StartsWith("You are a knowledgeable and concise subject-matter "),
                               EndsWith("\n\nWhich \"word\", here?\n\nA. a, b\nB. two\nC. three\n"
                                        "lines\nD. four|C"))));
  EXPECT_THAT(refusal(spec("mmlu", write("bad.csv", csv))),
              EndsWith("bad.csv: line 5: its answer is not one of A, B, C, D"));
}

TEST_F(Files, MmluOfThePublishedFolderIsTheSplitThatIsAskedFor) {
  write("data/test/a_test.csv", "Tested?,1,2,3,4,A\n");
  write("data/val/a_val.csv", "Validated?,1,2,3,4,B\n");
  write("data/dev/a_dev.csv", "An example?,1,2,3,4,C\n");
  write("data/README.txt", "not read");
  const auto prompt = [&](const std::string& path, const std::string& split) {
    v1::Task task = spec("mmlu", path, 0, 1);
    EXPECT_EQ(task.split(), "");
    task.set_split(split);
    const auto made = make(task);
    return made ? made->held_out[0].prompt : made.error().message;
  };
  const std::string data = folder_.path() + "/data";
  EXPECT_THAT(prompt(data, "test"), HasSubstr("Tested?"));
  EXPECT_THAT(prompt(data, ""), HasSubstr("Tested?"));  // missing
  EXPECT_THAT(prompt(data, "validation"), HasSubstr("Validated?"));
  EXPECT_THAT(prompt(data + "/val", "test"), HasSubstr("Validated?"));  // named by hand
  EXPECT_EQ(prompt(data + "/val", "validation"),
            "spec.task.path: " + data +
                "/val: has no folder val or validation with *.csv or *.jsonl in it, and "
                "spec.task.split is validation");
  EXPECT_EQ(prompt(data + "/val/a_val.csv", "validation"),
            "spec.task.path: " + data +
                "/val/a_val.csv: is no folder, and spec.task.split is validation: name the folder "
                "that has val in it, or remove that key");
  write("other/validation/all.jsonl",
        R"({"question": "Other?", "choices": ["1", "2", "3", "4"], "answer": 3})");
  EXPECT_THAT(prompt(folder_.path() + "/other", "validation"), HasSubstr("Other?"));
  EXPECT_THAT(prompt(folder_.path() + "/other", "test"),
              HasSubstr("/other: has no file *.csv or *.jsonl, nor a folder test with some"));
  // Files of its own go before folders: that is how a folder was read that has both.
  write("data/own.csv", "Own?,1,2,3,4,D\n");
  EXPECT_THAT(prompt(data, "test"), HasSubstr("Own?"));
}

TEST_F(Files, LongDocumentsLoseTheirMiddle) {
  std::string context = "BEGIN \xc3\xa9";
  for (int i = 0; i < 3000; ++i) context += " w\xc3\xb6rd" + std::to_string(i);
  context += " END";
  const auto record = [&](const std::string& document, int i) {
    return json({{"context", document},
                 {"question", "Which one is number " + std::to_string(i) + "?"},
                 {"choice_A", "one"},
                 {"choice_B", "two"},
                 {"choice_C", "three"},
                 {"choice_D", "four"},
                 {"answer", "B"},
                 {"length", "long"},
                 {"difficulty", "easy"}});
  };
  json array = json::array();
  for (int i = 0; i < 8; ++i) array.push_back(record(i % 2 ? context : "BEGIN short END", i));
  for (const std::string& text : {array.dump(), array.dump(2)}) {
    const v1::Task task = spec("longbench-v2", write("data.json", text), 2, 2, 700);
    const Dataset dataset = make(task).value();
    for (const Question& question : dataset.held_out) {
      const std::string& prompt = question.prompt;
      EXPECT_THAT(prompt, StartsWith("Please read the following text and answer the question "
                                     "below.\n\n<text>\nBEGIN "));
      EXPECT_THAT(prompt, HasSubstr(" END\n</text>\n\nWhat is the correct answer to this question: "
                                    "Which one is number "));
      EXPECT_THAT(prompt, EndsWith("\nChoices:\n(A) one\n(B) two\n(C) three\n(D) four\n\nFormat "
                                   "your response as follows: \"The correct answer is (insert "
                                   "answer here)\"."));
      EXPECT_LE(question.prompt_ids.size(), 700U);
      EXPECT_NO_THROW(json(prompt).dump()) << "not UTF-8";
      if (prompt.size() > 1000) {
        EXPECT_GE(question.prompt_ids.size(), 690U);
        EXPECT_GT(question.context_tokens, 500U);
      }
      EXPECT_EQ(grade(task, question, "The correct answer is (B).").score, 1);
    }
  }
  EXPECT_THAT(refusal(spec("longbench-v2", folder_.path() + "/data.json", 2, 2, 60)),
              HasSubstr("do not fit spec.task.contextTokens, the shortest of which takes "));
}

TEST_F(Files, RulersOwnFilesAreTakenAsTheyAre) {
  std::string niah, qa;
  for (int i = 0; i < 24; ++i) {
    const std::string n = std::to_string(i);
    niah += json({{"index", i},
                  {"input", "<s>[INST] text " + n + "\nWhat is the special magic number for k" + n +
                                " mentioned in the provided text? [/INST]"},
                  {"answer_prefix", " The special magic number is"},
                  {"outputs", {"100000" + n}}})
                .dump() +
            "\n";
    qa += json({{"input", "Documents " + n + "\n\nQuestion: who is " + std::to_string(i / 2) + "?"},
                {"outputs", {"me", "I"}}})
              .dump() +
          "\n";
  }
  write("r/niah_single_2/validation.jsonl", niah);
  write("r/qa_1/validation.jsonl", qa);
  v1::Task task = spec("ruler", folder_.path() + "/r", 4, 4);
  task.add_tasks("niah_single_2");
  task.add_tasks("qa_1");
  const auto template_never = [](const Draft&) { return Rendered{"a template", {1}}; };
  const Dataset dataset = makeDataset(task, 7, tokenizer(), {.render = template_never}).value();
  EXPECT_THAT(dataset.train[0].prompt, StartsWith("<s>[INST] text "));
  EXPECT_THAT(dataset.train[0].prompt, EndsWith("? [/INST] The special magic number is"));
  EXPECT_GT(dataset.train[0].context_tokens, 3U);
  EXPECT_EQ(dataset.train[1].task, "qa_1");
  // One question among other documents is the same question.
  std::set<std::string> sides[2];
  for (int side = 0; side < 2; ++side) {
    for (const Question& question : side == 0 ? dataset.train : dataset.held_out) {
      if (question.task != "qa_1") continue;
      sides[side].insert(question.prompt.substr(question.prompt.find("Question: ")));
    }
  }
  for (const std::string& question : sides[0]) EXPECT_FALSE(sides[1].contains(question));
  // RULER's lengths of answers, by task: room in the context, and how far each row is decoded.
  EXPECT_EQ(dataset.train[0].own_answer_tokens, 0U);
  task.set_max_new_tokens(0);
  const Dataset own = make(task).value();
  EXPECT_EQ(own.train[0].own_answer_tokens, 128U);
  EXPECT_EQ(own.train[1].own_answer_tokens, 32U);
  EXPECT_EQ(own.train[0].prompt, dataset.train[0].prompt);
  EXPECT_NE(datasetDigest(own), datasetDigest(dataset)) << "an older worker would cut at 0";
  task.set_context_tokens(150);
  EXPECT_THAT(refusal(task), HasSubstr(" niah_single_2 questions asked for"));
  EXPECT_EQ(longestRow(task), 150U);
  task.set_tasks(0, "vt");
  EXPECT_THAT(refusal(task), EndsWith("r/vt/validation.jsonl: cannot be read: is the path right?"));
}

TEST_F(Files, WithoutTrainingAWholeFileIsForEvaluation) {
  const std::string path = writeQuestions("q.jsonl", 40);
  const Dataset dataset = make(spec("jsonl", path, 0, 40)).value();
  EXPECT_TRUE(dataset.train.empty());
  std::set<std::string> prompts;
  for (const Question& question : dataset.held_out) prompts.insert(question.prompt);
  EXPECT_EQ(prompts.size(), 40U);
  EXPECT_THAT(refusal(spec("jsonl", path, 0, 41)),
              HasSubstr("has 40 of the 41 questions asked for: 40 different ones are for "
                        "evaluation"));
  EXPECT_THAT(refusal(spec("jsonl", path, 1, 40)), HasSubstr("spec.task.heldOutQuestions"));
}

TEST_F(Files, NoQuestionIsOnBothSides) {
  // Each question three times, with other case and other blanks; and the answers differ.
  std::string text;
  for (int i = 0; i < 300; ++i) {
    const std::string n = std::to_string(i);
    for (const std::string& prompt :
         {"What is question " + n + "?", "what  is\tQUESTION " + n + "? ",
          "\n What is Question\n" + n + "?"}) {
      text += json({{"prompt", prompt}, {"answers", {n, "x"}}}).dump() + "\n";
    }
  }
  const std::string path = write("q.jsonl", text);
  const auto numbers = [](const std::vector<Question>& questions) {
    std::multiset<std::string> all;
    for (const Question& question : questions) all.insert(question.answers[0]);
    return all;
  };
  std::set<std::string> ever[2];
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Dataset dataset = make(spec("jsonl", path, 60, 60), seed).value();
    const auto train = numbers(dataset.train), held_out = numbers(dataset.held_out);
    ever[0].insert(train.begin(), train.end());
    ever[1].insert(held_out.begin(), held_out.end());
    // Nor is one there twice.
    EXPECT_EQ(std::set<std::string>(train.begin(), train.end()).size(), 60U);
    EXPECT_EQ(std::set<std::string>(held_out.begin(), held_out.end()).size(), 60U);
  }
  for (const std::string& question : ever[0]) EXPECT_FALSE(ever[1].contains(question)) << question;
  EXPECT_GT(ever[0].size(), 100U);
  EXPECT_GT(ever[1].size(), 100U);
  EXPECT_EQ(datasetDigest(make(spec("jsonl", path, 60, 60), 3).value()),
            datasetDigest(make(spec("jsonl", path, 60, 60), 3).value()));
  EXPECT_NE(datasetDigest(make(spec("jsonl", path, 60, 60), 3).value()),
            datasetDigest(make(spec("jsonl", path, 60, 60), 4).value()));
}

TEST_F(Files, ASecondFileIsHeldOutButForWhatTheFirstHas) {
  v1::Task task = spec("jsonl", writeQuestions("train.jsonl", 50), 50, 20);
  task.set_held_out_path(writeQuestions("test.jsonl", 50, 30));
  const Dataset dataset = make(task).value();
  EXPECT_EQ(dataset.train.size(), 50U);  // all of the first file
  for (const Question& question : dataset.held_out) EXPECT_GE(std::stoi(question.answers[0]), 50);
  task.set_held_out_questions(31);
  EXPECT_EQ(refusal(task),
            "spec.task.heldOutQuestions: " + folder_.path() +
                "/test.jsonl has 30 of the 31 questions asked for: 30 different ones are for "
                "evaluation (20 more are in the file of the training questions, too); ask for "
                "fewer or give a larger file");
}

TEST_F(Files, TooFewQuestionsAreCounted) {
  const std::string path = writeQuestions("q.jsonl", 20);
  EXPECT_THAT(refusal(spec("jsonl", path, 100, 1)),
              testing::MatchesRegex("spec.task.trainQuestions: .*/q.jsonl has [0-9]+ of the 100 "
                                    "questions asked for: [0-9]+ different ones are for training; "
                                    "ask for fewer or give a larger file"));
  EXPECT_THAT(
      refusal(spec("jsonl", path, 1, 1, 4)),
      HasSubstr(" of them do not fit spec.task.contextTokens, the shortest of which takes"));
}

TEST_F(Files, AnswersAreTextsNumbersOrLists) {
  for (const auto& [answers, expected] :
       std::vector<std::pair<json, std::vector<std::string>>>{{"a", {"a"}},
                                                              {7, {"7"}},
                                                              {2.5, {"2.5"}},
                                                              {-3, {"-3"}},
                                                              {" a ", {"a"}},
                                                              {{"a", "b"}, {"a", "b"}},
                                                              {{1, "b"}, {"1", "b"}}}) {
    const std::string path = write("q.jsonl", json({{"q", "why?"}, {"a", answers}}).dump());
    v1::Task task = spec("jsonl", path, 0);
    task.set_prompt_field("q");
    task.set_answers_field("a");
    EXPECT_EQ(valueOf(make(task)).held_out[0].answers, expected);
  }
}

TEST_F(Files, HostileFilesAreASentenceWithKeyFileAndLine) {
  const std::string kKey = "spec.task.path: ";
  const std::string good = R"({"prompt": "p", "answers": "a"})";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", ": is empty: it has no question"},
      {" \r\n\n", ": is empty: it has no question"},
      {"\xef\xbb\xbf", ": is empty: it has no question"},
      {"version https://git-lfs.github.com/spec/v1\n",
       " is a Git LFS pointer, not the file itself; run git lfs pull there"},
      {"prompt,answers\n", ": line 1: is not JSON at column 1"},
      {good + "\n{\"prompt\": \"p\"", ": line 2: is not JSON: it ends too early"},
      {good + "\r\n\r\n" + good + " x\r\n", ": line 3: is not JSON at column 33"},
      {good + "\n\"p\"\n", ": line 2: is JSON, but no object ({...})"},
      {good + "\nnull\n", ": line 2: is JSON, but no object ({...})"},
      {"{}", ": line 1: has no field \"prompt\"; spec.task.promptField says which one it is"},
      {"{\"prompt\": \"p\"}",
       ": line 1: has no field \"answers\"; spec.task.answersField says which one it is"},
      {"{\"prompt\": 1, \"answers\": 2}", ": line 1: field \"prompt\" is not a string"},
      {"{\"prompt\": null, \"answers\": 2}", ": line 1: field \"prompt\" is not a string"},
      {"{\"prompt\": \" \", \"answers\": 2}", ": line 1: field \"prompt\" is blank"},
      {"{\"prompt\": \"p\", \"answers\": null}",
       ": line 1: field \"answers\" is not a string, a number or a list of them"},
      {"{\"prompt\": \"p\", \"answers\": {\"a\": 1}}",
       ": line 1: field \"answers\" is not a string, a number or a list of them"},
      {"{\"prompt\": \"p\", \"answers\": [[1]]}",
       ": line 1: field \"answers\" is not a string, a number or a list of them"},
      {"{\"prompt\": \"p\", \"answers\": true}",
       ": line 1: field \"answers\" is not a string, a number or a list of them"},
      {"{\"prompt\": \"p\", \"answers\": []}", ": line 1: field \"answers\" is an empty list"},
      {"{\"prompt\": \"p\", \"answers\": [\"\"]}", ": line 1: field \"answers\" has a blank entry"},
      {good + "\n{\"prompt\": \"\xff\", \"answers\": 1}", ": line 2: is not UTF-8"},
      {good + "\n{\"prompt\": \"\xed\xa0\x80\", \"answers\": 1}", ": line 2: is not UTF-8"},
      {good + "\n{\"prompt\": \"\xc0\xaf\", \"answers\": 1}", ": line 2: is not UTF-8"},
      {std::string("\0\0\0", 3), ": line 1: is not JSON at column 1"},
      {std::string(100000, '[') + std::string(100000, ']'),
       ": line 1: it is nested deeper than 64 levels"},
      {std::string(64, '[') + std::string(64, ']'), ": line 1: is JSON, but no object ({...})"},
      {std::string(60, '{'), ": line 1: is not JSON at column 2"},
      {R"({"prompt": "p", "answers": )" + std::string(1'900'000, '[') +
           std::string(1'900'000, ']') + "}",
       ": line 1: \"answers\" is nested deeper than 64 levels"},
      {"[\n" + good + ",\n" + good + "\n", ": line 4: its array does not end: is the file whole?"},
      {"[\n" + good + ",\n{\"prompt\": }]", ": line 3: is not JSON at column 12"},
      {"[" + good + ",\n]", ": line 2: has a comma before the ] of its array; remove it"},
      {R"({"prompt": "p", "prompt": "q", "answers": "a"})",
       ": line 1: has \"prompt\" twice; remove one"},
      {R"({"prompt": "p", "answers": "a", "answers": "b"})",
       ": line 1: has \"answers\" twice; remove one"},
      {R"({"prompt": "p", "answers": [1e999]})",
       ": line 1: has a number that is too large; at most 1.7e308 is read"},
      {R"({"prompt": "p", "answers": [{"\u0001n\u0075mber": "7"}]})",
       ": line 1: has a field \"\\u0001number\", which none may be called"},
      {"[" + good + " " + good + "]",
       ": line 1: has neither a comma nor a ] behind an element of its array"},
      {"[" + good + "] " + good, ": line 1: has text behind the end of its array"},
      {"[1, 2]", ": line 1: is JSON, but no object ({...})"},
      {std::string(1 << 20, 'x'), ": line 1: is not JSON at column 1"}};
  for (const auto& [text, message] : cases) {
    const std::string path = write("q.jsonl", text);
    EXPECT_EQ(refusal(spec("jsonl", path)), kKey + path + message) << text.substr(0, 80);
  }
  EXPECT_EQ(refusal(spec("jsonl", folder_.path())),
            kKey + folder_.path() + ": is a folder; name the file with the questions");
  EXPECT_EQ(refusal(spec("jsonl", "/dev/zero")), kKey + "/dev/zero: is not a plain file");
  const std::string endless = write("endless.jsonl", good);
  std::filesystem::resize_file(endless, uint64_t{1} << 40);  // zeros, of which the disk holds none
  EXPECT_EQ(refusal(spec("jsonl", endless)),
            kKey + endless + ": has more than the 8 GiB that are read");
  EXPECT_EQ(refusal(spec("jsonl", "/no/such/file")),
            kKey + "/no/such/file: cannot be read: is the path right?");
  const std::string csv = write("q.csv", "q,1,2,3,4,A\nq,\"1,2,3,4,A\nmore");
  EXPECT_EQ(refusal(spec("mmlu", csv)),
            kKey + csv + ": line 2: has a quoted field that does not end");
  write("q.csv", "q,1,2,3,4,A\nq,1,2,3,A\n");
  EXPECT_EQ(refusal(spec("mmlu", csv)), kKey + csv + ": line 2: has 5 fields instead of 6");
  write("q.csv", "q,1,2,3,4,A\nq\xff,1,2,3,4,A\n");
  EXPECT_EQ(refusal(spec("mmlu", csv)), kKey + csv + ": line 2: is not UTF-8");
  EXPECT_EQ(
      refusal(spec("gsm8k", csv)),
      kKey + csv +
          ": line 1: is not JSON at column 1; suite gsm8k reads JSON lines, CSV is for suite mmlu");
  v1::Task two = spec("jsonl", writeQuestions("good.jsonl", 40));
  two.set_held_out_path("/no/such/file");
  EXPECT_EQ(refusal(two),
            "spec.task.heldOutPath: /no/such/file: cannot be read: is the path right?");
  v1::Task ruler = spec("ruler", csv);
  ruler.add_tasks("vt");
  EXPECT_EQ(refusal(ruler),
            kKey + csv +
                ": is no folder; suite ruler reads the one that RULER's scripts made, with "
                "TASK/validation.jsonl in it");
  const std::string gsm = write("g.jsonl", R"({"question": "q", "answer": "no mark 42"})");
  EXPECT_EQ(refusal(spec("gsm8k", gsm)),
            kKey + gsm + ": line 1: field \"answer\" does not end with \"#### \" and a number");
}

TEST_F(Files, WhatIsOnlyUnusualIsRead) {
  const std::string good = R"({"prompt": "one", "answers": "a"})";
  std::string large =
      json({{"prompt", "p" + std::string(1 << 20, ' ') + "q"}, {"answers", 1}}).dump();
  std::string text = "\xef\xbb\xbf" + good + "\r\n\r\n" + large + "\r\n";
  for (int i = 0; i < 20; ++i) {
    text +=
        json({{"prompt", "tab\tquote\" \xe2\x82\xac " + std::to_string(i)}, {"answers", 1}}).dump();
    if (i < 19) text += "\r\n";  // the last line does not end
  }
  const auto made = valueOf(make(spec("jsonl", write("q.jsonl", text), 4, 4)));
  EXPECT_THAT(made.train[0].prompt, testing::Not(HasSubstr("\r")));
}

// As a double it would be 1.2345678901234568e+22.
TEST_F(Files, ANumberKeepsItsDigits) {
  const std::map<std::string, std::vector<std::string>> cases = {
      {"12345678901234567890123", {"12345678901234567890123"}},
      {"[-7, 0.50, 1e3, 123456789012345678]", {"-7", "0.50", "1e3", "123456789012345678"}},
      {R"(["a\\", "0.50\"0.50"])", {"a\\", "0.50\"0.50"}}};
  for (const auto& [written, answers] : cases) {
    std::string text;
    for (int i = 0; i < 20; ++i)
      text += R"({"prompt": "p)" + std::to_string(i) + R"(", "answers": )" + written + "}\n";
    EXPECT_EQ(valueOf(make(spec("jsonl", write("q.jsonl", text), 4, 4))).train[0].answers, answers);
  }
  EXPECT_THAT(refusal(spec("jsonl", write("q.jsonl", R"({"prompt": 0.50, "answers": 1})"))),
              HasSubstr("field \"prompt\" is not a string"));
}

}  // namespace
}  // namespace allot
