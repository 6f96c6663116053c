#include "worker/engine/fidelity.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>

#include "worker/engine/variance.h"

namespace allot {
namespace {

constexpr double kSupportMass = 0.9;

// The comparison of one head's output with the dense one.
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

// The distribution of a row's next token.
class Distribution {
 public:
  // [vocab] logits of one row.
  explicit Distribution(std::span<const float> logits)
      : logits_(logits.begin(), logits.end()), shares_(logits.size()) {
    log_sum_ = logSum(logits);
    for (size_t i = 0; i < logits.size(); ++i) {
      shares_[i] = std::exp(logits_[i] - static_cast<float>(log_sum_));
    }
  }

  // Returns KL(this || other) in nats. other: [vocab] logits.
  double divergence(std::span<const float> other) const {
    const double shift = logSum(other) - log_sum_;
    double nats = 0;
    for (size_t i = 0; i < shares_.size(); ++i) {
      nats += shares_[i] * (static_cast<double>(logits_[i]) - other[i] + shift);
    }
    return nats < 0 ? 0 : nats;  // rounding
  }

 private:
  static double logSum(std::span<const float> logits) {
    const float top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - top);
    return top + std::log(sum);
  }

  std::vector<float> logits_, shares_;
  double log_sum_ = 0;
};

// What the method says in the steps of one row.
struct Guesses {
  std::vector<int32_t> tokens;  // one a step
  double divergence = 0;        // sum over steps
};

// The layers that use the method, one after another; nothing: all of them at once.
std::vector<std::optional<uint32_t>> layersAsked(AgreementLayers agreement, int64_t layers) {
  if (agreement == AgreementLayers::kAll) return {std::nullopt};
  const auto count = static_cast<uint32_t>(layers);
  if (agreement == AgreementLayers::kLast) return {count - 1};
  std::vector<std::optional<uint32_t>> each;
  for (uint32_t l = 0; l < count; ++l) each.emplace_back(l);
  return each;
}

// Runs the method beside dense decode.
class Comparison {
 public:
  Comparison(Decoder* decoder, const std::vector<GenerationRow>& rows,
             const std::vector<uint32_t>& tasks, const GenerationOptions& options,
             const FidelityProtocol& protocol)
      : decoder_(*decoder),
        rows_(rows),
        tasks_(tasks),
        options_(options),
        protocol_(protocol),
        asked_(layersAsked(protocol.agreement, decoder->config().layers)),
        guesses_(asked_.size(), std::vector<Guesses>(rows.size())) {}
  ~Comparison() { decoder_.pool().release(scratch_); }
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  Status allocate() {
    auto pages = decoder_.pool().allocate(kFidelityPages * rows_.size());
    if (!pages) {
      return badInput("the memory for keys and values does not hold a batch of " +
                      std::to_string(rows_.size()) + " rows: raise --kv-memory");
    }
    scratch_ = std::move(*pages);
    return {};
  }

  // Runs the method in the step that dense decode is about to make.
  Status approximate(const StepBatch& dense, const std::vector<size_t>& live) {
    ALLOT_TRY(refusal_);
    live_ = live;
    ALLOT_TRY(expect(dense));
    for (size_t a = 0; a < asked_.size(); ++a) ALLOT_TRY(guess(dense, a));
    return {};
  }

  // Compares one layer of the dense step that approximate() was called for.
  void compareLayer(const kernels::PagedKv& kv, const kernels::DecodeInputs& dense,
                    const float* attended) {
    if (!enter(kv, dense, attended) || !run(kv, dense, nullptr)) return;
    for (size_t head = 0; head < cells_of_heads_.size(); ++head)
      addState(kv, dense, attended, head);
  }

  // Starts the dense step that reads the last token of one row's prompt again.
  StepBatch lastOfPrompt(size_t row, int32_t token) {
    live_ = {row};
    const Prompt& prompt = *rows_[row].prompt;
    StepBatch step;
    step.seed = options_.seed;
    step.tokens = {token};
    step.lengths = {prompt.length};
    step.sequences = {rows_[row].sequence};
    step.steps = {0};
    step.schedules = {dense_schedule_};
    step.page_table = prompt.pages;
    step.page_table.resize(decoder_.pool().pagesFor(static_cast<size_t>(prompt.length)));
    step.max_pages = static_cast<int>(step.page_table.size());
    decoder_.pool().copyPage(step.page_table.back(), scratch_[row]);
    step.page_table.back() = scratch_[row];
    result_.steps += protocol_.replicates;
    return step;
  }

  // Measures one layer of that step.
  void replicateLayer(const kernels::PagedKv& kv, const kernels::DecodeInputs& dense,
                      const float* attended) {
    if (!enter(kv, dense, attended)) return;
    const auto width = static_cast<size_t>(kv.head_dim);
    std::vector<Spread> spreads(cells_of_heads_.size());
    kernels::DecodeInputs in = dense;
    for (uint32_t r = 0; r < protocol_.replicates; ++r) {
      in.steps = &r;  // the draws of replicate r
      if (!run(kv, in, &result_.statistics)) return;
      for (size_t head = 0; head < spreads.size(); ++head) {
        addState(kv, in, attended, head);
        spreads[head].add(std::span(out_).subspan(head * width, width));
      }
    }
    HostRow row;
    const bool closed = hasClosedForm(options_.method);
    if (closed && refuses(dense, decoder_.rowOnHost(kv, dense, 0, &row))) return;
    for (size_t head = 0; head < spreads.size(); ++head) {
      if (cells_of_heads_[head] == nullptr) continue;
      v1::FidelityCell& cell = *cells_of_heads_[head];
      cell.set_positions(cell.positions() + 1);
      cell.set_variance(cell.variance() + spreads[head].variance());
      if (!closed) continue;
      cell.set_closed_form_positions(cell.closed_form_positions() + 1);
      cell.set_closed_form(cell.closed_form() + closedForm(row, dense, static_cast<int>(head)));
    }
  }

  // Returns the method's error, if there was one.
  const Status& refusal() const { return refusal_; }

  // Returns all figures; `dense` is generate()'s output, if there is one.
  Result<Fidelity> finish(const std::vector<Generated>& dense) {
    ALLOT_TRY(refusal_);
    std::map<std::pair<uint32_t, size_t>, v1::AgreementCell> agreement;
    for (size_t i = 0; i < dense.size(); ++i) {
      for (size_t a = 0; a < asked_.size(); ++a) {
        v1::AgreementCell& cell = agreement[{tasks_[i], a}];
        cell.set_task(tasks_[i]);
        if (asked_[a]) cell.set_layer(*asked_[a]);
        const Guesses& guesses = guesses_[a][i];
        if (guesses.tokens.empty()) continue;
        if (!std::isfinite(guesses.divergence)) {
          return fail(ErrorCode::kData, "fidelity: the method's logits are not finite");
        }
        cell.set_divergence(cell.divergence() + guesses.divergence);
        cell.set_divergence_squared(cell.divergence_squared() +
                                    guesses.divergence * guesses.divergence);
        cell.set_questions(cell.questions() + 1);
        // The first token is the prefill's.
        for (size_t step = 0; step < guesses.tokens.size(); ++step) {
          const bool agreed = guesses.tokens[step] == dense[i].tokens[step + 1];
          cell.set_steps(cell.steps() + 1);
          cell.set_agreed(cell.agreed() + (agreed ? 1 : 0));
          ++result_.steps;
        }
      }
    }
    for (auto& [key, cell] : cells_) result_.cells.push_back(std::move(cell));
    for (auto& [key, cell] : agreement) result_.agreement.push_back(cell);
    return std::move(result_);
  }

 private:
  // Computes dense attention's distributions of the next tokens. generate() makes the same step
  // again and returns tokens alone, which a GPU chooses without copying logits to the host.
  Status expect(const StepBatch& dense) {
    StepBatch step = dense;
    step.probe = nullptr;
    ALLOT_ASSIGN(const std::span<const float> logits, decoder_.step(step, nullptr));
    const size_t vocabulary = logits.size() / live_.size();
    expected_.clear();
    for (size_t r = 0; r < live_.size(); ++r) {
      expected_.emplace_back(logits.subspan(r * vocabulary, vocabulary));
    }
    return {};
  }

  // Computes the next tokens with the method in the layers of asked_[a]. The step writes other keys
  // and values at the newest position, so that it uses a copy of that page.
  Status guess(const StepBatch& dense, size_t a) {
    StepBatch step = dense;
    step.method = options_.method;
    step.only_layer = asked_[a];
    step.probe = nullptr;
    for (size_t r = 0; r < live_.size(); ++r) {
      step.schedules[r] = rows_[live_[r]].schedule;
      const int newest = (step.lengths[r] - 1) / decoder_.pool().pageSize();
      int32_t& page =
          step.page_table[r * static_cast<size_t>(step.max_pages) + static_cast<size_t>(newest)];
      decoder_.pool().copyPage(page, scratch_[live_[r]]);
      page = scratch_[live_[r]];
    }
    std::vector<kernels::RowStatistics> statistics(live_.size());
    ALLOT_ASSIGN(const std::span<const float> logits, decoder_.step(step, &statistics));
    const size_t vocabulary = logits.size() / live_.size();
    for (size_t r = 0; r < live_.size(); ++r) {
      const auto mine = logits.subspan(r * vocabulary, vocabulary);
      const auto best = std::max_element(mine.begin(), mine.end());
      Guesses& guesses = guesses_[a][live_[r]];
      guesses.tokens.push_back(static_cast<int32_t>(best - mine.begin()));
      guesses.divergence += expected_[r].divergence(mine);
      add(statistics[r], &result_.statistics);
    }
    return {};
  }

  // Prepares a layer: budgets, memory, and the cell of each head. False if the method has refused.
  bool enter(const kernels::PagedKv& kv, const kernels::DecodeInputs& dense,
             const float* attended) {
    if (!refusal_) return false;
    const auto heads = static_cast<size_t>(dense.rows) * static_cast<size_t>(dense.heads);
    std::vector<ScheduleView> schedules;
    for (const size_t row : live_) schedules.push_back(rows_[row].schedule);
    out_.resize(heads * static_cast<size_t>(kv.head_dim));
    statistics_.resize(heads);
    head_budgets_ = layerBudgets(schedules, decoder_.config(), dense.layer, &budgets_);
    if (refuses(dense, decoder_.tileSums(kv, dense, protocol_.support_tile, &masses_))) {
      return false;
    }
    cells_of_heads_.clear();
    for (int r = 0; r < dense.rows; ++r) {
      for (int h = 0; h < dense.heads; ++h) {
        const size_t at = cells_of_heads_.size() * static_cast<size_t>(kv.head_dim);
        cells_of_heads_.push_back(cellOf(dense, attended + at, kv.head_dim, r, h));
      }
    }
    return true;
  }

  // Null if dense attention's output is zero, so that a relative error does not exist.
  v1::FidelityCell* cellOf(const kernels::DecodeInputs& dense, const float* attended, int width,
                           int row, int head) {
    if (std::all_of(attended, attended + width, [](float x) { return x == 0; })) return nullptr;
    const uint32_t task = tasks_[live_[static_cast<size_t>(row)]];
    auto& masses = masses_[static_cast<size_t>(row * dense.heads + head)];
    const uint32_t support = supportBucket(tilesOfSupport(std::move(masses)));
    v1::FidelityCell& cell = cells_[{task, dense.layer, support}];
    cell.set_task(task);
    cell.set_layer(dense.layer);
    cell.set_support(support);
    return &cell;
  }

  // Runs the method on the layer's queries, into out_ and statistics_. Its reads are added to
  // `total`, if it is given. False if the method refused.
  bool run(const kernels::PagedKv& kv, const kernels::DecodeInputs& dense,
           kernels::RowStatistics* total) {
    kernels::DecodeInputs in = dense;
    in.head_budgets = head_budgets_;
    in.budgets = budgets_.data();
    std::vector<kernels::RowStatistics> read(static_cast<size_t>(dense.rows));
    if (refuses(dense, decoder_.attendAgain(options_.method, kv, in,
                                            {.out = out_.data(),
                                             .statistics = read.data(),
                                             .head_statistics = statistics_.data()}))) {
      return false;
    }
    for (const kernels::RowStatistics& row : read) {
      if (total != nullptr) add(row, total);
    }
    return true;
  }

  bool refuses(const kernels::DecodeInputs& dense, const std::optional<std::string>& why) {
    if (why) {
      refusal_ =
          fail(ErrorCode::kData, "fidelity, layer " + std::to_string(dense.layer) + ": " + *why);
    }
    return why.has_value();
  }

  // head: of all rows' heads.
  void addState(const kernels::PagedKv& kv, const kernels::DecodeInputs& in, const float* attended,
                size_t head) {
    if (cells_of_heads_[head] == nullptr) return;
    v1::FidelityCell& cell = *cells_of_heads_[head];
    const size_t at = head * static_cast<size_t>(kv.head_dim);
    const int length = in.lengths[head / static_cast<size_t>(in.heads)];
    const Difference difference = compare(out_.data() + at, attended + at, kv.head_dim);
    const double relative = difference.error / difference.dense_norm;
    cell.set_states(cell.states() + 1);
    cell.set_relative_error(cell.relative_error() + relative);
    cell.set_relative_error_squared(cell.relative_error_squared() + relative * relative);
    cell.set_cosine(cell.cosine() + difference.cosine);
    cell.set_squared_error(cell.squared_error() + difference.error * difference.error);
    const kernels::HeadStatistics& head_statistics = statistics_[head];
    if (head_statistics.relative_error >= 0) {
      cell.set_estimated_error(cell.estimated_error() + head_statistics.relative_error);
      cell.set_estimated_states(cell.estimated_states() + 1);
    }
    const kernels::MethodOptions& method = options_.method;
    if (kernels::hasErrorTarget(method) && relative > method.epsilon)
      cell.set_exceeded(cell.exceeded() + 1);
    cell.set_draws(cell.draws() + head_statistics.draws);
    cell.set_unique_rows(cell.unique_rows() + head_statistics.unique_rows);
    cell.set_dense_rows(cell.dense_rows() + static_cast<uint64_t>(length - in.first(length)));
    cell.set_effective_sample_size(cell.effective_sample_size() +
                                   head_statistics.effective_sample_size);
  }

  // Of the current row.
  double closedForm(const HostRow& row, kernels::DecodeInputs in, int head) {
    const kernels::PagedKv& kv = row.kv;
    in.page_table = row.pages.data();
    exactScores(kv, in, 0, head, &scores_);
    const int first = in.first(in.lengths[0]);
    const int kv_head = head / (in.heads / kv.kv_heads);
    value_.resize(static_cast<size_t>(kv.head_dim));
    const auto value = [&](size_t key) -> const float* {
      const int position = first + static_cast<int>(key);
      const int64_t at =
          kv.offset(in.page_table[position / kv.page_size], kv_head, position % kv.page_size);
      if (kv.element == kernels::Element::kFloat32) {
        return static_cast<const float*>(kv.values) + at;
      }
      if (kv.element == kernels::Element::kE4M3) {
        const auto* codes = static_cast<const uint8_t*>(kv.values) + at;
        std::transform(codes, codes + kv.head_dim, value_.begin(), [&](uint8_t code) {
          return kernels::fromE4M3(code) * kv.valueScale(kv_head);
        });
        return value_.data();
      }
      const auto* held = static_cast<const uint16_t*>(kv.values) + at;
      std::transform(held, held + kv.head_dim, value_.begin(), kernels::fromBFloat16);
      return value_.data();
    };
    const uint32_t budget = budgets_[head_budgets_ ? static_cast<size_t>(head) : 0];
    return *closedFormVariance(options_.method, scores_, value, static_cast<size_t>(kv.head_dim),
                               budget);
  }

  Decoder& decoder_;
  const std::vector<GenerationRow>& rows_;
  const std::vector<uint32_t>& tasks_;
  const GenerationOptions& options_;
  const FidelityProtocol protocol_;
  const std::vector<std::optional<uint32_t>> asked_;
  const SampleSchedule dense_schedule_ =
      SampleSchedule(static_cast<size_t>(decoder_.config().layers), UINT32_MAX);
  std::vector<int32_t> scratch_;               // a page for each row
  std::vector<size_t> live_;                   // rows of the present step
  std::vector<Distribution> expected_;         // [live_] dense attention's, of the present step
  std::vector<std::vector<Guesses>> guesses_;  // [asked_, rows]
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, v1::FidelityCell> cells_;
  Fidelity result_;
  Status refusal_;  // of the method, inside a probe that cannot return it

  // Of the present layer.
  std::vector<uint32_t> budgets_;
  bool head_budgets_ = false;
  std::vector<v1::FidelityCell*> cells_of_heads_;  // [rows * heads]
  std::vector<float> out_;
  std::vector<std::vector<double>> masses_;  // of each head's tiles
  std::vector<float> scores_;
  std::vector<float> value_;  // one row, of a pool that is not in float32
  std::vector<kernels::HeadStatistics> statistics_;
};

}  // namespace

int tilesOfSupport(const std::vector<float>& scores, uint32_t tile) {
  return tilesOfSupport(tileSums(scores, tile));
}

int tilesOfSupport(std::vector<double> tiles) {
  const double total = std::accumulate(tiles.begin(), tiles.end(), 0.0);
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
                                 const GenerationOptions& options,
                                 const FidelityProtocol& protocol) {
  Comparison comparison(decoder, rows, tasks, options, protocol);
  ALLOT_TRY(comparison.allocate());
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
  if (protocol.errors) {
    dense.probe = [&](const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                      const float* attended) { comparison.compareLayer(kv, in, attended); };
  }
  ALLOT_ASSIGN(const auto generated, generate(decoder, tokenizer, dense_rows, dense));
  return comparison.finish(generated);
}

Result<Fidelity> measureVariance(Decoder* decoder, const std::vector<GenerationRow>& rows,
                                 const std::vector<int32_t>& last_tokens,
                                 const std::vector<uint32_t>& tasks,
                                 const GenerationOptions& options,
                                 const FidelityProtocol& protocol) {
  Comparison comparison(decoder, rows, tasks, options, protocol);
  ALLOT_TRY(comparison.allocate());
  for (size_t i = 0; i < rows.size(); ++i) {
    StepBatch step = comparison.lastOfPrompt(i, last_tokens[i]);
    if (options.before_step) ALLOT_TRY(options.before_step(step, {i}));
    step.probe = [&](const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                     const float* attended) { comparison.replicateLayer(kv, in, attended); };
    ALLOT_TRY(decoder->step(step, nullptr));
    ALLOT_TRY(comparison.refusal());
  }
  return comparison.finish({});
}

}  // namespace allot
