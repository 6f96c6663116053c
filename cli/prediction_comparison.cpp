#include "cli/prediction_comparison.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "aggregator/page/run_view.h"
#include "cli/table_notes.h"
#include "core/evaluation/margin.h"
#include "core/files/files.h"
#include "core/json_text.h"
#include "core/printable.h"
#include "core/words.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr size_t kWidest = 60;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;
constexpr std::array kIds = {"id", "prompt_id", "question_id", "doc_id"};
constexpr std::array kScores = {"score", "exact_match", "acc", "accuracy", "correct"};
constexpr std::array kAnswers = {"answer", "prediction", "response"};

template <size_t N>
std::string firstOf(const json& line, const std::array<const char*, N>& names) {
  for (const char* name : names) {
    if (line.contains(name)) return name;
  }
  return "";
}

std::string membersOf(const json& line) {
  std::string names;
  for (const auto& [name, value] : line.items()) {
    names += (names.empty() ? "" : ", ") + printable(name, 40);
  }
  return names;
}

// Sets missing names by the members of the first line. All lines must have these members.
Result<PredictionFields> fieldsOf(const json& line, PredictionFields fields,
                                  const std::string& place) {
  if (fields.id.empty()) fields.id = firstOf(line, kIds);
  if (fields.score.empty()) fields.score = firstOf(line, kScores);
  for (const auto& [name, what, option] :
       {std::tuple{&fields.id, "question", "--id"}, {&fields.score, "score", "--score"}}) {
    if (!name->empty() && line.contains(*name)) continue;
    return badInput(place + ": no member " +
                    (name->empty() ? std::string("names the ") + what : "'" + *name + "'") +
                    "; say with " + option + " which of these does: " + membersOf(line));
  }
  return fields;
}

Result<std::string> idOf(const json& value, const std::string& name, const std::string& place) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return value.dump();
  return badInput(place + ": '" + name + "' is no text and no whole number");
}

Result<double> scoreOf(const json& value, const std::string& name, const std::string& place) {
  const double score = value.is_boolean()  ? value.get<bool>()
                       : value.is_number() ? value.get<double>()
                                           : -1;
  if (score >= 0 && score <= 1) return score;
  return badInput(place + ": '" + name + "' is " + printable(value.dump(), 40) +
                  ", but a score is from 0 to 1, true or false");
}

std::string textOf(const json& line, const std::string& name) {
  if (name.empty() || !line.contains(name) || !line[name].is_string()) return "";
  return line[name].get<std::string>();
}

RandomStream draws(uint64_t index) { return {RunStreams{}, Purpose::kBootstrap, index}; }

using Pairs = std::vector<std::pair<const Prediction*, const Prediction*>>;

PredictionRow rowOf(const std::string& task, const Pairs& pairs) {
  PredictionRow row;
  row.task = task;
  row.questions = pairs.size();
  std::vector<double> differences;
  ScoreCounts counts_a, counts_b;
  uint64_t same = 0, answered = 0;
  for (const auto& [a, b] : pairs) {
    row.a.accuracy += a->score() / static_cast<double>(pairs.size());
    row.b.accuracy += b->score() / static_cast<double>(pairs.size());
    ++counts_a[a->score()];
    ++counts_b[b->score()];
    differences.push_back(b->score() - a->score());
    if (a->answer.empty() || b->answer.empty()) continue;
    ++answered;
    same += a->answer == b->answer;
  }
  // The same draws in each row, so that files in the other order give the mirror image.
  row.a.interval = interval95(counts_a, draws(0));
  row.b.interval = interval95(counts_b, draws(0));
  row.difference = pairedDifference(differences, draws(1));
  if (answered > 0) row.same_answer = static_cast<double>(same) / static_cast<double>(answered);
  return row;
}

json sideJson(const PredictionSide& side) {
  return {{"accuracy", side.accuracy},
          {"ci95", {side.interval.low, side.interval.high}},
          {"interval", side.interval.name}};
}

std::string numbers(double mean, const Interval& interval, bool sign) {
  return sign ? fmt::format("{:+.3f}  [{:+.3f}, {:+.3f}]", mean, interval.low, interval.high)
              : fmt::format("{:.3f}  [{:.3f}, {:.3f}]", mean, interval.low, interval.high);
}

std::string verdictOf(const PairedDifference& difference, std::optional<double> margin) {
  if (margin) {
    return marginText(difference, *margin) + (difference.differsByHolm() ? kHolmMark : "");
  }
  if (!difference.differs()) return "not distinguishable";
  return std::string(difference.mean > 0 ? "better" : "worse") +
         (difference.differsByHolm() ? kHolmMark : "");
}

// Returns the sentence that names the tests of column p.
std::string testsText(const PredictionComparison& comparison) {
  std::set<std::string_view> tests;
  for (const PredictionRow& row : comparison.rows) tests.insert(row.difference.test);
  std::vector<std::string> names;
  for (const auto& [test, name] :
       {std::pair{"mcnemar", "McNemar's exact test"},
        {"sign-flip", "a sign-flip test by question"},
        {"normal", "a sign-flip test by question, in its normal limit"}}) {
    if (tests.contains(test)) names.emplace_back(name);
  }
  return "p, of no difference: " + joined(names, ", or ") + "\n";
}

}  // namespace

Result<Predictions> readPredictions(const std::string& path, const PredictionFields& wanted) {
  ALLOT_ASSIGN(const std::string text, readWholeFile(path, kMostBytes));
  Predictions all;
  std::optional<PredictionFields> fields;
  uint64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (part.find_first_not_of(" \t\r") == part.npos) continue;
    const std::string place = path + ", line " + std::to_string(number);
    ALLOT_ASSIGN(const json line, parseJson(part, place));
    if (!line.is_object()) return badInput(place + ": is no JSON object");
    if (!fields) {
      ALLOT_ASSIGN(fields, fieldsOf(line, wanted, place));
    }
    for (const std::string& name : {fields->id, fields->score}) {
      if (!line.contains(name)) return badInput(place + ": has no member '" + name + "'");
    }
    ALLOT_ASSIGN(const std::string id, idOf(line[fields->id], fields->id, place));
    ALLOT_ASSIGN(const double score, scoreOf(line[fields->score], fields->score, place));
    const std::string task = textOf(line, "task"), filter = textOf(line, "filter");
    const auto [at, fresh] = all.try_emplace(task.empty() ? id : task + "\n" + id);
    at->second.score_sum += score;
    ++at->second.lines;
    if (fresh) {
      at->second.id = id;
      at->second.answer = textOf(line, firstOf(line, kAnswers));
      at->second.task = task;
      at->second.filter = filter;
    } else if (at->second.filter != filter) {
      return badInput(place + ": question " + inQuotes(id) + " is there as read by the filter " +
                      inQuotes(at->second.filter) + " and by " + inQuotes(filter) +
                      ", which are two scores of one answer: keep the lines of one filter");
    }
  }
  if (all.empty()) return badInput(path + ": holds no answer");
  return all;
}

namespace {

bool haveTasks(const Predictions& predictions) {
  return std::any_of(predictions.begin(), predictions.end(),
                     [](const auto& one) { return !one.second.task.empty(); });
}

// Returns the predictions by id alone, for a comparison with a file that names no tasks.
Result<Predictions> withoutTasks(const Predictions& predictions) {
  Predictions by_id;
  for (const auto& [key, one] : predictions) {
    if (!by_id.try_emplace(one.id, one).second) {
      return badInput("question " + inQuotes(one.id) +
                      " is in several tasks of one file, and the other file names no tasks");
    }
  }
  return by_id;
}

Result<PredictionComparison> compareByKey(const Predictions& a, const Predictions& b) {
  PredictionComparison comparison;
  Pairs pairs;
  std::map<std::string, Pairs> by_task;
  for (const auto& [id, one] : a) {
    const auto other = b.find(id);
    if (other == b.end()) continue;
    pairs.emplace_back(&one, &other->second);
    if (!one.task.empty()) by_task[one.task].push_back(pairs.back());
  }
  comparison.only_a = a.size() - pairs.size();
  comparison.only_b = b.size() - pairs.size();
  if (pairs.empty()) {
    const auto named = [](const Prediction& one) {
      return one.task.empty() ? inQuotes(one.id) : inQuotes(one.id) + " of " + one.task;
    };
    return badInput("no question is in both files: " + named(a.begin()->second) +
                    " is one of the first, " + named(b.begin()->second) +
                    " one of the second; --id names the member that they share");
  }
  comparison.rows.push_back(rowOf("all", pairs));
  if (by_task.size() < 2) return comparison;
  for (const auto& [task, some] : by_task) comparison.rows.push_back(rowOf(task, some));
  std::vector<PairedDifference*> family;  // all rows
  for (PredictionRow& row : comparison.rows) family.push_back(&row.difference);
  applyHolm(family);
  return comparison;
}

}  // namespace

Result<PredictionComparison> comparePredictions(const Predictions& a, const Predictions& b) {
  if (haveTasks(a) == haveTasks(b)) return compareByKey(a, b);
  ALLOT_ASSIGN(const Predictions first, withoutTasks(a));
  ALLOT_ASSIGN(const Predictions second, withoutTasks(b));
  return compareByKey(first, second);
}

json comparisonJson(const PredictionComparison& comparison, std::optional<double> margin) {
  json rows = json::array();
  for (const PredictionRow& row : comparison.rows) {
    rows.push_back(
        {{"task", row.task},
         {"n", row.questions},
         {"a", sideJson(row.a)},
         {"b", sideJson(row.b)},
         {"b_over_a", differenceView(row.difference)},
         {"verdict", margin ? json(wordOf(marginVerdict(row.difference, *margin))) : json()},
         {"same_answer", row.same_answer ? json(*row.same_answer) : json()}});
  }
  return {{"rows", rows},
          {"margin", margin ? json(*margin) : json()},
          {"only_a", comparison.only_a},
          {"only_b", comparison.only_b}};
}

std::string comparisonText(const PredictionComparison& comparison, const std::string& name_a,
                           const std::string& name_b, std::optional<double> margin) {
  std::string text = "A: " + printable(name_a) + "\nB: " + printable(name_b) + "\n\n";
  const std::string head = comparison.of_runs ? "cell" : "task";
  size_t width = head.size();
  for (const PredictionRow& row : comparison.rows) {
    width = std::max(width, std::min(row.task.size(), kWidest));
  }
  text += fmt::format("{:<{}}  {:>6}  {:<23}  {:<23}  {:<26}  {:<7}  {}\n", head, width, "n",
                      "A (95 %)", "B (95 %)", "B - A (95 %)", "p",
                      margin ? "B, against A, is" : "B is");
  TableNotes notes;
  for (const PredictionRow& row : comparison.rows) {
    for (const PredictionSide* side : {&row.a, &row.b}) notes.addAccuracy(side->interval.name);
    notes.addDifference(differenceView(row.difference), "rows");
    text += fmt::format("{:<{}}  {:>6}  {:<23}  {:<23}  {:<26}  {:<7.2g}  {}\n",
                        printable(row.task, kWidest), width, row.questions,
                        numbers(row.a.accuracy, row.a.interval, false),
                        numbers(row.b.accuracy, row.b.interval, false),
                        numbers(row.difference.mean, row.difference.interval, true),
                        row.difference.p, verdictOf(row.difference, margin));
  }
  text += "\n" + notes.text();
  text += testsText(comparison);
  if (margin) {
    text += "as good to within " + pointsText(*margin) +
            ": the one-sided 95 % lower bound of B - A is above minus the margin\n";
  }
  if (comparison.of_runs) text += "each row: a cell of the same name, paired by question\n";
  if (const auto same = comparison.rows[0].same_answer) {
    text += fmt::format("\nthe same answer to {:.1f} % of the questions\n", 100 * *same);
  }
  if (comparison.only_a + comparison.only_b > 0) {
    text += fmt::format("\nleft out: {} questions that only A answers, {} that only B does\n",
                        comparison.only_a, comparison.only_b);
  }
  return text;
}

}  // namespace allot
