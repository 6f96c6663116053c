// allot compare.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/prediction_comparison.h"

namespace allot {
namespace {

struct CompareOptions {
  std::string a, b;
  PredictionFields fields;
  OutputFormat format = OutputFormat::kTable;
};

Status compareFiles(const CompareOptions& options) {
  ALLOT_ASSIGN(const Predictions a, readPredictions(options.a, options.fields));
  ALLOT_ASSIGN(const Predictions b, readPredictions(options.b, options.fields));
  ALLOT_ASSIGN(const PredictionComparison comparison, comparePredictions(a, b));
  if (options.format == OutputFormat::kTable) {
    std::printf("%s", comparisonText(comparison, options.a, options.b).c_str());
  } else {
    printDocument(document("Comparison", comparisonJson(comparison)), options.format);
  }
  return {};
}

}  // namespace

void addCompareCommand(CLI::App* app, Action* action) {
  auto options = std::make_shared<CompareOptions>();
  auto* compare = app->add_subcommand(
      "compare", "Which of two files of graded answers is better, question by question");
  compare->group(kLookUpGroup);
  compare
      ->add_option("A", options->a, "A file of any tool: one JSON object a question, a line each")
      ->required();
  compare->add_option("B", options->b, "The other, of the same questions")->required();
  compare->add_option("--id", options->fields.id,
                      "Member that names the question [id, prompt_id, question_id or doc_id]");
  compare->add_option(
      "--score", options->fields.score,
      "Member with the score, 0 to 1 [score, exact_match, acc, accuracy or correct]");
  addOutput(compare, &options->format);
  compare->footer(
      "Differences are taken on the questions that both files answer, with the intervals of "
      "allot's own tables: a bootstrap over questions, and not distinguishable where the interval "
      "holds 0. Several lines of one question count as their mean. A member `task` makes a row of "
      "each, and answers (answer, prediction, response) are counted where they are the same.\n\n"
      "Examples:\n"
      "  allot compare dense.jsonl sparse.jsonl\n"
      "  allot compare samples_a.jsonl samples_b.jsonl --id doc_id --score exact_match -o json");
  compare->callback([=] { *action = [options] { return exitCodeOf(compareFiles(*options)); }; });
}

}  // namespace allot
