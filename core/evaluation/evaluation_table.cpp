#include "core/evaluation/evaluation_table.h"

#include <algorithm>
#include <cmath>

#include "core/evaluation/evaluation_plan.h"
#include "core/learning/questions.h"
#include "core/spec/choices.h"

namespace allot {
namespace {

void count(double score, ScoreTally* tally) {
  ++tally->n;
  tally->sum += score;
}

// Numbers of bootstrap streams: 0 for all questions, t + 1 for those of task t, and these.
constexpr uint64_t kOtherGrader = UINT32_MAX;
constexpr uint64_t kDifferences = uint64_t{1} << 32;

constexpr size_t kWholeLines = 2;
constexpr size_t kPoints = 1000;

// Removes what thinned cells lack.
void forgetDetails(EvaluationCell* cell) {
  cell->tasks.clear();
  cell->other = {};
  cell->all.scores.clear();
  cell->schedule.clear();
  cell->repeat_sums.clear();
  cell->over_dense.reset();
  cell->over_uniform.reset();
}

// Returns the interval of an incomplete or thinned cell. Repeated answers to one question count as
// one question.
Interval wilsonOf(const ScoreTally& tally, uint64_t questions) {
  const double answers = std::max(1.0, static_cast<double>(tally.n));
  return wilson95(tally.sum * static_cast<double>(questions) / answers, questions);
}

double share(double part, uint64_t whole) {
  return whole > 0 ? part / static_cast<double>(whole) : -1;
}
double share(uint64_t part, uint64_t whole) { return share(static_cast<double>(part), whole); }

}  // namespace

void KvReads::add(const v1::DecodeCounts& counts) {
  unique_rows += counts.unique_rows();
  dense_rows += counts.dense_rows();
  key_bytes += counts.key_bytes();
  value_bytes += counts.value_bytes();
  dense_bytes += counts.dense_bytes();
}

double KvReads::bytesShare() const { return share(key_bytes + value_bytes, dense_bytes); }
double KvReads::keyShare() const { return share(2 * key_bytes, dense_bytes); }
double KvReads::valueRowsShare() const { return share(unique_rows, dense_rows); }

void PrefillReads::add(const v1::PrefillCounts& counts) {
  sums.set_prompts(sums.prompts() + counts.prompts());
  sums.set_tokens(sums.tokens() + counts.tokens());
  sums.set_blocks(sums.blocks() + counts.blocks());
  sums.set_dense_blocks(sums.dense_blocks() + counts.dense_blocks());
  sums.set_skipped_blocks(sums.skipped_blocks() + counts.skipped_blocks());
  sums.set_unique_rows(sums.unique_rows() + counts.unique_rows());
  sums.set_dense_rows(sums.dense_rows() + counts.dense_rows());
  sums.set_key_bytes(sums.key_bytes() + counts.key_bytes());
  sums.set_value_bytes(sums.value_bytes() + counts.value_bytes());
  sums.set_dense_bytes(sums.dense_bytes() + counts.dense_bytes());
  sums.set_seconds(sums.seconds() + counts.seconds());
  sums.set_selection_seconds(sums.selection_seconds() + counts.selection_seconds());
  if (counts.kept_queries() == 0) return;
  sums.set_least_kept_mass(sums.kept_queries() > 0
                               ? std::min(sums.least_kept_mass(), counts.least_kept_mass())
                               : counts.least_kept_mass());
  sums.set_kept_queries(sums.kept_queries() + counts.kept_queries());
  sums.set_kept_mass(sums.kept_mass() + counts.kept_mass());
}

double PrefillReads::seconds() const { return share(sums.seconds(), sums.prompts()); }
double PrefillReads::selectionSeconds() const {
  return share(sums.selection_seconds(), sums.prompts());
}
double PrefillReads::density() const {
  if (sums.dense_blocks() == 0) return share(sums.unique_rows(), sums.dense_rows());
  return share(sums.blocks() - sums.skipped_blocks(), sums.dense_blocks());
}
double PrefillReads::bytesShare() const {
  return share(sums.key_bytes() + sums.value_bytes(), sums.dense_bytes());
}
double PrefillReads::keptMass() const { return share(sums.kept_mass(), sums.kept_queries()); }
double PrefillReads::leastKeptMass() const {
  return sums.kept_queries() > 0 ? sums.least_kept_mass() : -1;
}

std::optional<double> EvaluationCell::repeatDeviation() const {
  if (!complete || repeat_sums.size() < 2) return std::nullopt;
  const auto repeats_made = static_cast<double>(repeat_sums.size());
  const auto asked = static_cast<double>(questions());
  double squares = 0;
  for (const double repeat : repeat_sums) {
    const double off = repeat / asked - all.mean();
    squares += off * off;
  }
  return std::sqrt(squares / (repeats_made - 1));
}

double EvaluationCell::answerTokens() const {
  return answer_tokens > 0 ? share(answer_tokens, all.n) : -1;
}

double EvaluationCell::promptTokens() const {
  return share(prompts.sums.tokens(), prompts.sums.prompts());
}

EvaluationTable::EvaluationTable(const v1::Experiment& experiment, Keep keep)
    : keep_(keep),
      held_out_(experiment.spec().task().held_out_questions()),
      spec_(experiment.spec()),
      streams_(runStreams(experiment.spec())),
      total_budget_(experiment.spec().policy().total_budget()),
      budgets_(static_cast<size_t>(experiment.spec().evaluation().budgets_size())) {}

void EvaluationTable::add(const v1::EvaluationResult& result) {
  const v1::EvaluationUnit& unit = result.unit();
  if (measureOf(unit) != Measure::kAccuracy) return;
  const Key key = {unit.policy_version(), methodsName(unit), unit.schedule_name(),
                   unit.total_budget()};
  EvaluationCell& cell = cells_[key];
  cell.version = unit.policy_version();
  cell.prefill = prefillOf(unit);
  cell.method = methodsName(unit);
  cell.schedule_name = unit.schedule_name();
  cell.total_budget = unit.total_budget();
  cell.schedule.assign(unit.schedule().begin(), unit.schedule().end());
  cell.repeats = repeatsOf(spec_, prefillOf(unit), unit.method());
  addScores(result, key, &cell);
  cell.reads.add(result.counts());
  cell.prompts.add(result.prefill());
  cell.seconds += result.seconds();
  cell.decode_seconds += result.counts().decode_seconds();
  cell.decode_steps += result.counts().decode_steps();
  cell.complete = cell.all.n == uint64_t{held_out_} * cell.repeats;
  if (!cell.complete) return setIntervals(key, &cell);
  unsettled_[key] = &cell;
  uncompared_.insert(key);
  if (keep_ == Keep::kNewest && cell.schedule_name == kLearnedSchedule) {
    thinOut(EvaluationCell(cell));
  }
}

void EvaluationTable::addScores(const v1::EvaluationResult& result, const Key& key,
                                EvaluationCell* cell) {
  const bool repeated = cell->repeats > 1;
  Questions& questions = questions_[key];
  cell->repeat_sums.resize(cell->repeats);
  double sum = 0;
  for (const v1::QuestionScore& score : result.scores()) {
    ScoreTally& task = cell->tasks[score.task()];
    count(score.score(), &cell->all);
    count(score.score(), &task);
    sum += score.score();
    cell->answer_tokens += score.tokens();
    questions.scores.add(score.question(), score.score());
    if (score.has_other_score()) count(score.other_score(), &cell->other);
    if (!repeated) {
      ++cell->all.scores[score.score()];
      ++task.scores[score.score()];
      if (score.has_other_score()) ++cell->other.scores[score.other_score()];
      continue;
    }
    if (score.has_other_score()) questions.others.add(score.question(), score.other_score());
    if (score.question() >> kQuestionBits != 0) continue;  // beyond every run
    if (tasks_.size() <= score.question()) tasks_.resize(size_t{score.question()} + 1);
    tasks_[score.question()] = static_cast<uint8_t>(score.task());
  }
  const uint32_t repeat = result.unit().repeat();
  if (repeat < cell->repeats) cell->repeat_sums[repeat] += sum;
}

// Sets the scores of a cell with repeats to its questions' means.
void EvaluationTable::countMeans(const Key& key, EvaluationCell* cell) const {
  const auto found = questions_.find(key);
  if (cell->repeats < 2 || found == questions_.end()) return;
  const Questions& questions = found->second;
  cell->all.scores = questions.scores.means(cell->repeats);
  cell->other.scores = questions.others.means(cell->repeats);
  for (auto& [task, tally] : cell->tasks) {
    tally.scores = questions.scores.means(cell->repeats, [&, task = task](uint32_t question) {
      return question < tasks_.size() && tasks_[question] == task;
    });
  }
}

// Notes a complete learned cell, and thins the line that it makes superfluous, if any.
void EvaluationTable::thinOut(const EvaluationCell& completed) {
  const std::string& method = completed.method;
  auto& complete = complete_[method];
  if (++complete[completed.version] < budgets_) return;
  complete.erase(completed.version);
  std::set<uint64_t>& lines = lines_[method];
  lines.insert(completed.version);
  if (lines.size() <= kWholeLines) return;
  thinLine(method, *lines.begin());
  lines.erase(lines.begin());
}

void EvaluationTable::thinLine(const std::string& method, uint64_t version) {
  std::set<uint64_t>& points = points_[method];
  auto it = cells_.lower_bound({version, method, kLearnedSchedule, 0});
  while (it != cells_.end() && it->second.version == version && it->second.method == method &&
         it->second.schedule_name == kLearnedSchedule) {
    unsettled_.erase(it->first);
    uncompared_.erase(it->first);
    questions_.erase(it->first);
    if (it->second.total_budget != total_budget_) {
      it = cells_.erase(it);
      continue;
    }
    EvaluationCell& cell = it->second;
    // The cell's own interval has not been computed, and a bootstrap would cost too much.
    if (cell.all.interval.low == 0 && cell.all.interval.high == 1) {
      cell.all.interval = wilsonOf(cell.all, cell.questions());
    }
    forgetDetails(&cell);
    points.insert(version);
    ++it;
  }
  if (points.size() <= kPoints) return;
  bool drop = false;  // every second one, the first stays
  for (auto point = points.begin(); point != points.end(); drop = !drop) {
    if (!drop) {
      ++point;
      continue;
    }
    cells_.erase({*point, method, kLearnedSchedule, total_budget_});
    point = points.erase(point);
  }
}

// Sets the intervals. Of a complete cell this takes some 10 ms, so that only cells() does it, once.
void EvaluationTable::setIntervals(const Key& key, EvaluationCell* cell) const {
  if (cell->complete) countMeans(key, cell);
  const auto set = [&](ScoreTally* tally, uint64_t stream) {
    tally->interval =
        cell->complete
            ? interval95(tally->scores, RandomStream(streams_, Purpose::kBootstrap, stream))
            : wilsonOf(*tally, cell->questionsOf(*tally));
  };
  set(&cell->all, 0);
  for (auto& [task, tally] : cell->tasks) set(&tally, uint64_t{task} + 1);
  if (cell->other.n > 0) set(&cell->other, kOtherGrader);
}

std::optional<PairedDifference> EvaluationTable::difference(const EvaluationCell& a,
                                                            const EvaluationCell& b) const {
  const auto by_question = differences(a, *this, b);
  if (!by_question) return std::nullopt;
  return pairedDifference(*by_question, RandomStream(streams_, Purpose::kBootstrap, kDifferences));
}

const QuestionScores* EvaluationTable::scoresOf(const EvaluationCell& cell) const {
  const auto found =
      questions_.find({cell.version, cell.method, cell.schedule_name, cell.total_budget});
  return found == questions_.end() ? nullptr : &found->second.scores;
}

std::optional<std::vector<double>> EvaluationTable::differences(const EvaluationCell& a,
                                                                const EvaluationTable& other,
                                                                const EvaluationCell& b) const {
  const QuestionScores *const mine = scoresOf(a), *const others = other.scoresOf(b);
  if (mine == nullptr || others == nullptr || !a.complete || !b.complete) return std::nullopt;
  return mine->less(*others, a.repeats, b.repeats);
}

// Compares the cell as far as possible. Returns true if no comparison is left to make.
bool EvaluationTable::compare(const Key& key, EvaluationCell* cell) const {
  const auto against = [&](const Key& other, std::optional<PairedDifference>* over) {
    const auto found = cells_.find(other);
    if (other == key || *over) return true;
    if (found == cells_.end() || !found->second.complete) return false;
    *over = difference(*cell, found->second);
    return true;
  };
  const bool dense = against({0, kDenseSchedule, kDenseSchedule, 0}, &cell->over_dense);
  if (cell->total_budget == 0) return dense;
  return against({0, cell->method, kUniformSchedule, cell->total_budget}, &cell->over_uniform) &&
         dense;
}

namespace {

// Applies Holm's rule to the newest complete cells.
// Requires: cells ascend by version.
void setFamilies(std::vector<EvaluationCell>* cells) {
  std::map<std::tuple<std::string, std::string, uint64_t>, EvaluationCell*> newest;
  for (EvaluationCell& cell : *cells) {
    if (cell.complete) newest[{cell.method, cell.schedule_name, cell.total_budget}] = &cell;
  }
  std::vector<PairedDifference*> dense, uniform;
  for (const auto& [key, cell] : newest) {
    if (cell->over_dense) dense.push_back(&*cell->over_dense);
    if (cell->over_uniform) uniform.push_back(&*cell->over_uniform);
  }
  applyHolm(dense);
  applyHolm(uniform);
}

}  // namespace

std::vector<EvaluationCell> EvaluationTable::cells() {
  for (const auto& [key, cell] : unsettled_) setIntervals(key, cell);
  unsettled_.clear();
  std::erase_if(uncompared_, [&](const Key& key) { return compare(key, &cells_.at(key)); });
  std::vector<EvaluationCell> cells;
  for (const auto& [key, cell] : cells_) cells.push_back(cell);
  setFamilies(&cells);
  return cells;
}

double EvaluationTable::learnedAccuracy(const std::string& method, uint64_t total_budget) const {
  double accuracy = -1;
  for (const auto& [key, cell] : cells_) {  // ascending version: the newest stays
    const bool asked = cell.method == method && cell.schedule_name == kLearnedSchedule &&
                       cell.total_budget == total_budget;
    if (asked && cell.complete) accuracy = cell.all.mean();
  }
  return accuracy;
}

}  // namespace allot
