#include "worker/fidelity.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <tuple>

namespace allot {
namespace {

constexpr int kSupportTile = 32;
constexpr double kSupportMass = 0.9;

// Sixteen sums side by side, which a compiler can put into vectors. width: a multiple of 16.
float dot(const float* a, const float* b, int width) {
  std::array<float, 16> sums{};
  for (int i = 0; i < width; i += 16) {
    for (int lane = 0; lane < 16; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (const float lane : sums) sum += lane;
  return sum;
}

// The exact scores of one query head over the keys that its row attends to, which the pool holds as
// float32.
void exactScores(const kernels::PagedKv& kv, const kernels::DecodeInputs& in, int row, int head,
                 std::vector<float>* scores) {
  assert(kv.element == kernels::Element::kFloat32);
  const auto* keys = static_cast<const float*>(kv.keys);
  const int32_t* pages = in.page_table + static_cast<int64_t>(row) * in.max_pages;
  const float* query = in.queries + (static_cast<int64_t>(row) * in.heads + head) * kv.head_dim;
  const int kv_head = head / (in.heads / kv.kv_heads);
  const int first = in.first(in.lengths[row]);
  scores->resize(static_cast<size_t>(in.lengths[row] - first));
  for (int j = first; j < in.lengths[row]; ++j) {
    const int64_t key = kv.offset(pages[j / kv.page_size], kv_head, j % kv.page_size);
    (*scores)[static_cast<size_t>(j - first)] = in.scale * dot(query, keys + key, kv.head_dim);
  }
}

// What comparing one head's output with the dense one gives.
struct Difference {
  double dense_norm = 0;
  double error = 0;  // |out - o|
  double cosine = 0;
};

Difference compare(const float* out, const float* dense, int width) {
  double oo = 0, dd = 0, od = 0, error = 0;
  for (int i = 0; i < width; ++i) {
    const double a = out[i], b = dense[i];
    oo += a * a;
    dd += b * b;
    od += a * b;
    error += (a - b) * (a - b);
  }
  const double norms = std::sqrt(oo * dd);
  return {std::sqrt(dd), std::sqrt(error), norms > 0 ? od / norms : 0};
}

// The method beside the dense decode that generate() does.
class Comparison {
 public:
  Comparison(Decoder* decoder, const std::vector<GenerationRow>& rows,
             const std::vector<uint32_t>& tasks, const GenerationOptions& options)
      : decoder_(*decoder), rows_(rows), tasks_(tasks), options_(options), guesses_(rows.size()) {}
  ~Comparison() { decoder_.pool().release(scratch_); }
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  bool allocate() {
    auto pages = decoder_.pool().allocate(kFidelityPages * rows_.size());
    if (pages) scratch_ = std::move(*pages);
    return pages.has_value();
  }

  // The step that dense decode is about to make, with the method in all layers. It writes keys and
  // values of its own at the newest position, so the page of that position is a copy.
  Status approximate(const StepBatch& dense, const std::vector<size_t>& live) {
    ALLOT_TRY(refusal_);
    live_ = live;
    StepBatch step = dense;
    step.method = options_.method;
    step.probe = nullptr;
    for (size_t r = 0; r < live.size(); ++r) {
      step.schedules[r] = rows_[live[r]].schedule;
      const int newest = (step.lengths[r] - 1) / decoder_.pool().pageSize();
      int32_t& page =
          step.page_table[r * static_cast<size_t>(step.max_pages) + static_cast<size_t>(newest)];
      decoder_.pool().copyPage(page, scratch_[live[r]]);
      page = scratch_[live[r]];
    }
    std::vector<kernels::RowStatistics> statistics(live.size());
    ALLOT_ASSIGN(const std::span<const float> logits, decoder_.step(step, &statistics));
    const size_t vocabulary = logits.size() / live.size();
    for (size_t r = 0; r < live.size(); ++r) {
      const auto first = logits.begin() + static_cast<std::ptrdiff_t>(r * vocabulary);
      const auto best = std::max_element(first, first + static_cast<std::ptrdiff_t>(vocabulary));
      guesses_[live[r]].push_back(static_cast<int32_t>(best - first));
      add(statistics[r], &result_.statistics);
    }
    return {};
  }

  // One layer of the dense step that approximate() was told of.
  void compareLayer(const kernels::PagedKv& kv, const kernels::DecodeInputs& dense,
                    const float* attended) {
    if (!refusal_) return;
    const auto heads = static_cast<size_t>(dense.rows) * static_cast<size_t>(dense.heads);
    std::vector<ScheduleView> schedules;
    int longest = 0;
    for (size_t r = 0; r < live_.size(); ++r) {
      schedules.push_back(rows_[live_[r]].schedule);
      longest = std::max(longest, dense.lengths[r]);
    }
    out_.resize(heads * static_cast<size_t>(kv.head_dim));
    statistics_.resize(heads);
    workspace_.plan(longest, dense.heads / kv.kv_heads, kv.head_dim);
    kernels::DecodeInputs in = dense;
    in.head_budgets = layerBudgets(schedules, decoder_.config(), dense.layer, &budgets_);
    in.budgets = budgets_.data();
    if (const auto why =
            kernels::decodeAttention(options_.method, kv, in, &workspace_,
                                     {.out = out_.data(), .head_statistics = statistics_.data()})) {
      refusal_ =
          fail(ErrorCode::kData, "fidelity, layer " + std::to_string(dense.layer) + ": " + *why);
      return;
    }
    for (int r = 0; r < dense.rows; ++r) {
      for (int h = 0; h < dense.heads; ++h) addState(kv, dense, attended, r, h);
    }
  }

  Result<Fidelity> finish(const std::vector<Generated>& dense) {
    ALLOT_TRY(refusal_);
    std::map<uint32_t, v1::AgreementCell> agreement;
    for (size_t i = 0; i < rows_.size(); ++i) {
      v1::AgreementCell& cell = agreement[tasks_[i]];
      cell.set_task(tasks_[i]);
      // The first token is the prefill's.
      for (size_t step = 0; step < guesses_[i].size(); ++step) {
        const bool agreed = guesses_[i][step] == dense[i].tokens[step + 1];
        cell.set_steps(cell.steps() + 1);
        cell.set_agreed(cell.agreed() + (agreed ? 1 : 0));
        ++result_.steps;
      }
    }
    for (auto& [key, cell] : cells_) result_.cells.push_back(std::move(cell));
    for (auto& [task, cell] : agreement) result_.agreement.push_back(cell);
    return std::move(result_);
  }

 private:
  void addState(const kernels::PagedKv& kv, const kernels::DecodeInputs& in, const float* attended,
                int row, int head) {
    const size_t index =
        static_cast<size_t>(row) * static_cast<size_t>(in.heads) + static_cast<size_t>(head);
    const size_t at = index * static_cast<size_t>(kv.head_dim);
    const Difference difference = compare(out_.data() + at, attended + at, kv.head_dim);
    if (difference.dense_norm == 0) return;  // nothing to be relative to
    exactScores(kv, in, row, head, &scores_);
    const uint32_t task = tasks_[live_[static_cast<size_t>(row)]];
    const uint32_t support = supportBucket(tilesOfSupport(scores_));
    v1::FidelityCell& cell = cells_[{task, in.layer, support}];
    cell.set_task(task);
    cell.set_layer(in.layer);
    cell.set_support(support);
    const double relative = difference.error / difference.dense_norm;
    cell.set_states(cell.states() + 1);
    cell.set_relative_error(cell.relative_error() + relative);
    cell.set_relative_error_squared(cell.relative_error_squared() + relative * relative);
    cell.set_cosine(cell.cosine() + difference.cosine);
    cell.set_squared_error(cell.squared_error() + difference.error * difference.error);
    const kernels::HeadStatistics& head_statistics = statistics_[index];
    if (head_statistics.relative_error >= 0) {
      cell.set_estimated_error(cell.estimated_error() + head_statistics.relative_error);
      cell.set_estimated_states(cell.estimated_states() + 1);
    }
    const kernels::MethodOptions& method = options_.method;
    if (kernels::hasErrorTarget(method) && relative > method.epsilon)
      cell.set_exceeded(cell.exceeded() + 1);
    cell.set_draws(cell.draws() + head_statistics.draws);
    cell.set_unique_rows(cell.unique_rows() + head_statistics.unique_rows);
    cell.set_dense_rows(cell.dense_rows() +
                        static_cast<uint64_t>(in.lengths[row] - in.first(in.lengths[row])));
    cell.set_effective_sample_size(cell.effective_sample_size() +
                                   head_statistics.effective_sample_size);
  }

  Decoder& decoder_;
  const std::vector<GenerationRow>& rows_;
  const std::vector<uint32_t>& tasks_;
  const GenerationOptions& options_;
  std::vector<int32_t> scratch_;               // a page for each row
  std::vector<size_t> live_;                   // rows of the present step
  std::vector<std::vector<int32_t>> guesses_;  // [rows], the method's token at each dense step
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, v1::FidelityCell> cells_;
  Fidelity result_;
  Status refusal_;  // of the method, inside a probe that cannot return it

  kernels::DecodeWorkspace workspace_;
  std::vector<uint32_t> budgets_;
  std::vector<float> out_;
  std::vector<float> scores_;
  std::vector<kernels::HeadStatistics> statistics_;
};

}  // namespace

int tilesOfSupport(const std::vector<float>& scores) {
  const float top = *std::max_element(scores.begin(), scores.end());
  std::vector<double> tiles((scores.size() + kSupportTile - 1) / kSupportTile);
  double total = 0;
  for (size_t j = 0; j < scores.size(); ++j) {
    const double mass = std::exp(scores[j] - top);
    tiles[j / kSupportTile] += mass;
    total += mass;
  }
  std::sort(tiles.begin(), tiles.end(), std::greater<>());
  double held = 0;
  int count = 0;
  while (count < static_cast<int>(tiles.size()) && held < kSupportMass * total) {
    held += tiles[static_cast<size_t>(count++)];
  }
  return count;
}

uint32_t supportBucket(int tiles) {
  if (tiles <= 2) return static_cast<uint32_t>(tiles);
  if (tiles <= 4) return 3;
  return tiles <= 8 ? 5 : 9;
}

Result<Fidelity> measureFidelity(Decoder* decoder, const Tokenizer& tokenizer,
                                 const std::vector<GenerationRow>& rows,
                                 const std::vector<uint32_t>& tasks,
                                 const GenerationOptions& options) {
  Comparison comparison(decoder, rows, tasks, options);
  if (!comparison.allocate()) {
    return badInput("the memory for keys and values does not hold a batch of " +
                    std::to_string(rows.size()) + " rows: raise --kv-memory");
  }
  std::vector<GenerationRow> dense_rows = rows;
  for (GenerationRow& row : dense_rows) row.schedule.assign(row.schedule.size(), UINT32_MAX);
  GenerationOptions dense = options;
  dense.method = {};
  dense.choice = {};           // greedily
  dense.after_step = nullptr;  // the time of a step would hold the comparison's
  dense.before_step = [&](const StepBatch& step, const std::vector<size_t>& live) -> Status {
    if (options.before_step) ALLOT_TRY(options.before_step(step, live));
    return comparison.approximate(step, live);
  };
  dense.probe = [&](const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                    const float* attended) { comparison.compareLayer(kv, in, attended); };
  ALLOT_ASSIGN(const auto generated, generate(decoder, tokenizer, dense_rows, dense));
  return comparison.finish(generated);
}

}  // namespace allot
