// Suite longbench-v1: LongBench (Bai et al. 2023), a folder with TASK.jsonl as published, whose
// lines have `input`, `context`, `answers` and, where one of several classes is asked for,
// `all_classes`.
//
// The wording of the prompts is part of the benchmark. It is from its config/dataset2prompt.json,
// errors and blanks included. As in its pred.py, a prompt that is too long loses its middle. Five
// tasks that continue examples or code are asked without a chat template.
#include <algorithm>
#include <array>

#include "worker/tasks/record_reader.h"
#include "worker/tasks/suite.h"

namespace allot {
namespace {

// A prompt is `before`, context, `middle` and, if it asks, input and `end`.
struct Wording {
  std::string_view task;
  std::string_view before;
  std::string_view middle;
  std::string_view end;
  bool asks = true;   // the prompt contains the input
  bool bare = false;  // no chat template is applied
};

constexpr std::string_view kPassages =
    "Answer the question based on the given passages. Only give me the answer and do not output "
    "any "
    "other words.\n\nThe following are given passages.\n";
constexpr std::string_view kPassagesAgain =
    "\n\nAnswer the question based on the given passages. Only give me the answer and do not "
    "output "
    "any other words.\n\nQuestion: ";
constexpr std::string_view kComplete = "Please complete the code given below. \n";
constexpr std::string_view kNextLine = "Next line of code:\n";

constexpr std::array<Wording, 16> kWordings = {{
    {"narrativeqa",
     "You are given a story, which can be either a novel or a movie script, and a question. Answer "
     "the question asconcisely as you can, using a single phrase if possible. Do not provide any "
     "explanation.\n\nStory: ",
     "\n\nNow, answer the question based on the story asconcisely as you can, using a single "
     "phrase "
     "if possible. Do not provide any explanation.\n\nQuestion: ",
     "\n\nAnswer:"},
    {"qasper",
     "You are given a scientific article and a question. Answer the question as concisely as you "
     "can, using a single phrase or sentence if possible. If the question cannot be answered based "
     "on the information in the article, write \"unanswerable\". If the question is a yes/no "
     "question, answer \"yes\", \"no\", or \"unanswerable\". Do not provide any explanation.\n\n"
     "Article: ",
     "\n\n Answer the question based on the above article as concisely as you can, using a single "
     "phrase or sentence if possible. If the question cannot be answered based on the information "
     "in the article, write \"unanswerable\". If the question is a yes/no question, answer "
     "\"yes\", "
     "\"no\", or \"unanswerable\". Do not provide any explanation.\n\nQuestion: ",
     "\n\nAnswer:"},
    {"multifieldqa_en", "Read the following text and answer briefly.\n\n",
     "\n\nNow, answer the following question based on the above text, only give me the answer and "
     "do "
     "not output any other words.\n\nQuestion: ",
     "\nAnswer:"},
    {"hotpotqa", kPassages, kPassagesAgain, "\nAnswer:"},
    {"2wikimqa", kPassages, kPassagesAgain, "\nAnswer:"},
    {"musique", kPassages, kPassagesAgain, "\nAnswer:"},
    {"gov_report",
     "You are given a report by a government agency. Write a one-page summary of the report.\n\n"
     "Report:\n",
     "\n\nNow, write a one-page summary of the report.\n\nSummary:", "", false},
    {"qmsum",
     "You are given a meeting transcript and a query containing a question or instruction. Answer "
     "the query in one or more sentences.\n\nTranscript:\n",
     "\n\nNow, answer the query based on the above meeting transcript in one or more sentences.\n\n"
     "Query: ",
     "\nAnswer:"},
    {"multi_news",
     "You are given several news passages. Write a one-page summary of all news. \n\nNews:\n",
     "\n\nNow, write a one-page summary of all the news.\n\nSummary:", "", false},
    {"trec",
     "Please determine the type of the question below. Here are some examples of questions.\n\n",
     "\n", "", true, true},
    {"triviaqa",
     "Answer the question based on the given passage. Only give me the answer and do not output "
     "any "
     "other words. The following are some examples.\n\n",
     "\n\n", "", true, true},
    {"samsum",
     "Summarize the dialogue into a few short sentences. The following are some examples.\n\n",
     "\n\n", "", true, true},
    {"passage_count",
     "There are some paragraphs below sourced from Wikipedia. Some of them may be duplicates. "
     "Please "
     "carefully read these paragraphs and determine how many unique paragraphs there are after "
     "removing duplicates. In other words, how many non-repeating paragraphs are there in "
     "total?\n\n",
     "\n\nPlease enter the final count of unique paragraphs after removing duplicates. The output "
     "format should only contain the number, such as 1, 2, 3, and so on.\n\nThe final answer is: ",
     "", false},
    {"passage_retrieval_en",
     "Here are 30 paragraphs from Wikipedia, along with an abstract. Please determine which "
     "paragraph the abstract is from.\n\n",
     "\n\nThe following is an abstract.\n\n",
     "\n\nPlease enter the number of the paragraph that the abstract is from. The answer format "
     "must "
     "be like \"Paragraph 1\", \"Paragraph 2\", etc.\n\nThe answer is: "},
    {"lcc", kComplete, kNextLine, "", false, true},
    {"repobench-p", kComplete, "", kNextLine, true, true},
}};

Result<Record> longbenchRecord(const std::string& task, const JsonRecord& json) {
  const auto& wording = *std::find_if(kWordings.begin(), kWordings.end(),
                                      [&](const Wording& one) { return one.task == task; });
  ALLOT_ASSIGN(const std::string of, json.textOrNone("dataset"));
  if (!of.empty() && of != task) {
    return json.place().refuse("field \"dataset\" is not \"" + task +
                               "\", which the file is named after");
  }
  ALLOT_ASSIGN(const std::string context, json.text("context"));
  ALLOT_ASSIGN(const std::string input,
               wording.asks ? json.text("input") : json.textOrNone("input"));
  std::string behind(wording.middle);
  if (wording.asks) behind.append(input).append(wording.end);
  Record record = recordAbout(task, wording.before, context, behind);
  record.draft.bare = wording.bare;
  ALLOT_ASSIGN(record.draft.answers, json.verbatimAnswers("answers"));
  if (task == "trec") {
    ALLOT_ASSIGN(record.draft.classes, json.verbatimAnswers("all_classes"));
  }
  return record;
}

Result<std::vector<Record>> readLongbenchV1(const std::string& path, const v1::Task& spec) {
  return readTaskFolder(path, spec, "longbench-v1", longbenchRecord);
}

}  // namespace

Suite longbenchV1Suite() { return {.name = "longbench-v1", .read = readLongbenchV1}; }

}  // namespace allot
