#include "core/evaluation_table.h"

#include "core/evaluation_plan.h"

namespace allot {
namespace {

void count(double score, ScoreTally* tally) {
  ++tally->n;
  tally->sum += score;
  ++tally->scores[score];
}

double share(uint64_t part, uint64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : -1;
}

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

void EvaluationTable::add(const v1::EvaluationResult& result) {
  const v1::EvaluationUnit& unit = result.unit();
  if (unit.measure() == kFidelity) return;
  EvaluationCell& cell =
      cells_[{unit.policy_version(), unit.method(), unit.schedule_name(), unit.total_budget()}];
  cell.version = unit.policy_version();
  cell.method = unit.method();
  cell.schedule_name = unit.schedule_name();
  cell.total_budget = unit.total_budget();
  cell.schedule.assign(unit.schedule().begin(), unit.schedule().end());
  for (const v1::QuestionScore& score : result.scores()) {
    count(score.score(), &cell.all);
    count(score.score(), &cell.tasks[score.task()]);
    if (score.has_other_score()) count(score.other_score(), &cell.other);
  }
  cell.reads.add(result.counts());
  cell.seconds += result.seconds();
  cell.decode_seconds += result.counts().decode_seconds();
  cell.decode_steps += result.counts().decode_steps();
  cell.complete = cell.all.n == held_out_;
  setIntervals(&cell);
}

// A bootstrap takes some 10 ms: only once, when nothing more will come.
void EvaluationTable::setIntervals(EvaluationCell* cell) const {
  const auto set = [&](ScoreTally* tally, uint64_t stream) {
    tally->interval =
        cell->complete ? interval95(tally->scores, RandomStream(seed_, Purpose::kBootstrap, stream))
                       : wilson95(tally->sum, tally->n);
  };
  set(&cell->all, 0);
  for (auto& [task, tally] : cell->tasks) set(&tally, uint64_t{task} + 1);
  if (cell->other.n > 0) set(&cell->other, UINT32_MAX);
}

std::vector<EvaluationCell> EvaluationTable::cells() const {
  std::vector<EvaluationCell> cells;
  for (const auto& [key, cell] : cells_) cells.push_back(cell);
  return cells;
}

double EvaluationTable::learnedAccuracy(const std::string& method, uint64_t total_budget) const {
  double accuracy = -1;
  for (const auto& [key, cell] : cells_) {  // ascending version: the newest stays
    const bool asked = cell.method == method && cell.schedule_name == "learned" &&
                       cell.total_budget == total_budget;
    if (asked && cell.complete) accuracy = cell.all.mean();
  }
  return accuracy;
}

}  // namespace allot
