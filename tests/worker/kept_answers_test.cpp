// Grades the kept answers of experiments/ again, and computes curve.csv's accuracies from them.
// experiments/README.md says what answers.csv.gz holds; tests/documents/figures_test.py holds each
// README's tables to the same files.
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "aggregator/report/report_tables.h"
#include "core/evaluation/evaluation_table.h"
#include "core/spec/spec.h"
#include "tests/results.h"
#include "tests/temp_folder.h"
#include "worker/tasks/task.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kExperiments = fs::path(ALLOT_SOURCE_DIR) / "experiments";
constexpr int kColumns = 12;

std::string unzipped(const fs::path& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  std::string text, part(1 << 20, ' ');
  if (!file) throw std::runtime_error("cannot read " + path.string());
  for (int read = 1; read > 0;) {
    read = gzread(file.get(), part.data(), static_cast<unsigned>(part.size()));
    if (read < 0) throw std::runtime_error(path.string() + " is no gzip file");
    text.append(part, 0, static_cast<size_t>(read));
  }
  return text;
}

// Splits a line whose quoted fields hold no line's end.
std::vector<std::string> fieldsOf(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '"' && quoted && at + 1 < line.size() && line[at + 1] == '"') {
      fields.back() += line[++at];
    } else if (line[at] == '"') {
      quoted = !quoted;
    } else if (line[at] == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += line[at];
    }
  }
  return fields;
}

// One line of answers.csv.gz.
struct KeptAnswer {
  Question question;
  v1::EvaluationUnit unit;  // without its number, schedule and questions
  v1::QuestionScore score;
  std::optional<std::string> text;
};

class KeptAnswers {
 public:
  // Reads the folder's experiment.yaml, answers.csv.gz and curve.csv.
  explicit KeptAnswers(const fs::path& folder)
      : experiment_(valueOf(parseExperiment(readFile(folder / "experiment.yaml"), folder))),
        points_(valueOf(curvePointsOf(readFile(folder / "curve.csv"), folder))) {
    std::istringstream lines(unzipped(folder / "answers.csv.gz"));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) addLine(line);
  }

  const std::vector<KeptAnswer>& answers() const { return answers_; }
  std::vector<KeptAnswer>& answers() { return answers_; }

  // Returns a sentence for each score that the grader does not give. An answer without text must
  // have the score 1: spec.evaluation.answers=wrong keeps the others.
  std::vector<std::string> wrongScores() const {
    std::vector<std::string> wrong;
    for (const KeptAnswer& answer : answers_) {
      const double score =
          answer.text ? grade(experiment_.spec().task(), answer.question, *answer.text).score : 1;
      if (score == answer.score.score()) continue;
      wrong.push_back(nameOf(answer) + " has the score " + std::to_string(answer.score.score()) +
                      ", and its text " + std::to_string(score));
    }
    return wrong;
  }

  // Returns a sentence for each accuracy or interval of curve.csv that the answers do not give, and
  // for each cell that only one of the two has.
  std::vector<std::string> wrongPoints() const {
    EvaluationTable table(experiment_);
    for (const KeptAnswer& answer : answers_) {
      v1::EvaluationResult result;
      *result.mutable_unit() = answer.unit;
      *result.add_scores() = answer.score;
      table.add(result);
    }
    std::map<std::string, std::string> given, written;
    for (const EvaluationCell& cell : table.cells()) {
      const std::string name = cell.method + "/" + cell.schedule_name + "/" +
                               std::to_string(cell.version) + "/" +
                               std::to_string(cell.total_budget);
      given[name] = cell.complete ? figures(cell.questions(), cell.all.mean(), cell.all.interval)
                                  : "not complete";
      for (const auto& [task, tally] : cell.tasks) {
        given[name + "/" + experiment_.spec().task().tasks(static_cast<int>(task))] =
            figures(cell.questionsOf(tally), tally.mean(), tally.interval);
      }
    }
    for (const CurvePoint& point : points_) {
      const std::string name = point.method + "/" + point.schedule + "/" +
                               std::to_string(point.version) + "/" +
                               std::to_string(point.total_budget);
      written[name] = figures(point.n, point.accuracy, {point.low, point.high});
      for (const TaskScore& task : point.tasks) {
        written[name + "/" + task.task] = figures(task.n, task.accuracy, {task.low, task.high});
      }
    }
    std::vector<std::string> wrong;
    for (const auto& [name, text] : given) {
      if (written[name] == text) continue;
      wrong.push_back(name + ": answers give " + text + ", curve.csv has " + written[name]);
    }
    for (const auto& [name, text] : written) {
      if (!given.contains(name)) wrong.push_back(name + ": no answers");
    }
    return wrong;
  }

 private:
  static std::string nameOf(const KeptAnswer& answer) {
    return "question " + std::to_string(answer.score.question()) + ", " + methodsName(answer.unit) +
           ", budget " + std::to_string(answer.unit.total_budget()) + ", repeat " +
           std::to_string(answer.unit.repeat());
  }
  // Nine decimals: curve.csv has seventeen digits, of sums in another order.
  static std::string figures(uint64_t n, double accuracy, const Interval& interval) {
    std::ostringstream text;
    text.precision(9);
    const auto rounded = [](double value) { return std::round(value * 1e9) / 1e9 + 0.0; };
    text << "n " << n << ", " << rounded(accuracy) << " [" << rounded(interval.low) << ", "
         << rounded(interval.high) << "]";
    return text.str();
  }

  void addLine(const std::string& line) {
    const std::vector<std::string> fields = fieldsOf(line);
    if (fields.size() != kColumns) throw std::runtime_error("not 12 columns: " + line);
    KeptAnswer answer;
    const auto number = [&](size_t column) { return std::stoul(fields[column]); };
    answer.score.set_question(static_cast<uint32_t>(number(0)));
    answer.question.task = fields[1];
    const auto& tasks = experiment_.spec().task().tasks();
    const auto task = std::find(tasks.begin(), tasks.end(), fields[1]);
    answer.score.set_task(static_cast<uint32_t>(task - tasks.begin()));
    answer.unit.set_method(fields[2]);
    if (fields[3] != "dense") answer.unit.set_prefill(fields[3]);
    answer.unit.set_total_budget(number(4));
    answer.unit.set_schedule_name(fields[5]);
    answer.unit.set_policy_version(number(6));
    answer.unit.set_repeat(static_cast<uint32_t>(number(7)));
    answer.unit.set_measure(std::string(wordOf(Measure::kAccuracy)));
    answer.score.set_score(std::stod(fields[8]));
    answer.score.set_tokens(static_cast<uint32_t>(number(9)));
    auto& expected = expected_[answer.score.question()];
    if (!fields[10].empty()) expected = json::parse(fields[10]).get<std::vector<std::string>>();
    answer.question.answers = expected;
    if (!fields[11].empty()) answer.text = json::parse(fields[11]).get<std::string>();
    answers_.push_back(std::move(answer));
  }

  v1::Experiment experiment_;
  std::vector<CurvePoint> points_;
  std::map<uint32_t, std::vector<std::string>> expected_;  // by question
  std::vector<KeptAnswer> answers_;
};

// Returns the folders with kept answers: of experiments, or of the runs of one.
std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(kExperiments)) {
    if (entry.path().filename() == "answers.csv.gz") found.push_back(entry.path().parent_path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

TEST(KeptAnswersOfExperiments, GradesAndIntervalsAreThoseOfCurveCsv) {
  ASSERT_FALSE(folders().empty());
  for (const fs::path& folder : folders()) {
    SCOPED_TRACE(folder);
    const KeptAnswers kept(folder);
    EXPECT_THAT(kept.wrongScores(), IsEmpty());
    EXPECT_THAT(kept.wrongPoints(), IsEmpty());
    const json about = json::parse(readFile(folder / "answers.json"));
    const auto texts = static_cast<uint64_t>(
        std::count_if(kept.answers().begin(), kept.answers().end(),
                      [](const KeptAnswer& answer) { return answer.text.has_value(); }));
    EXPECT_EQ(about["answers"], kept.answers().size());
    EXPECT_EQ(about["texts"], texts);
    EXPECT_GT(texts, 0u);
    EXPECT_THAT(about["model"]["weights_sha256"].get<std::string>(), MatchesRegex("[0-9a-f]{64}"));
    EXPECT_LT(fs::file_size(folder / "answers.csv.gz"), 1'100'000u);
  }
}

// The twins of the test above: each planted fault is found.
TEST(KeptAnswersOfExperiments, AnAnswerOfAnotherScoreOrTextIsFound) {
  KeptAnswers kept(folders().front());
  const auto with_text = [&](double score) {
    return std::find_if(kept.answers().begin(), kept.answers().end(), [&](const auto& answer) {
      return answer.text && answer.score.score() == score && !answer.question.answers.empty();
    });
  };
  const auto wrong = with_text(0);
  ASSERT_NE(wrong, kept.answers().end());
  const std::string text = *wrong->text;
  wrong->text = wrong->question.answers.front();
  EXPECT_THAT(kept.wrongScores(), SizeIs(1));
  wrong->text = text;
  EXPECT_THAT(kept.wrongScores(), IsEmpty());
  wrong->score.set_score(1);
  EXPECT_THAT(kept.wrongScores(), SizeIs(1));
  // The cell and its task.
  EXPECT_THAT(kept.wrongPoints(), SizeIs(2));
  wrong->score.set_score(0);
  kept.answers().erase(wrong);
  EXPECT_THAT(kept.wrongPoints(), Not(IsEmpty()));
}

}  // namespace
}  // namespace allot
