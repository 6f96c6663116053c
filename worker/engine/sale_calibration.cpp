#include "worker/engine/sale_calibration.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

namespace allot {
namespace {

constexpr double kLeastTau = 1e-4;

// Returns the block lists of a selection for the heads in `open`, or with `all` lists of all
// blocks; other heads have no blocks. Adds the numbers of blocks to each head's count.
kernels::BlockLists listsOf(const kernels::BlockLists& chosen, const kernels::PrefillInputs& in,
                            const std::vector<char>& open, bool all,
                            std::vector<uint64_t>* counts) {
  kernels::BlockLists lists;
  lists.query_block = chosen.query_block;
  lists.key_block = chosen.key_block;
  lists.begin.push_back(0);
  const int blocks = kernels::queryBlocks(in, chosen.query_block);
  const int first = kernels::firstQueryBlock(in, chosen.query_block);
  for (int h = 0; h < in.heads; ++h) {
    const size_t before = lists.blocks.size();
    for (int b = 0; b < blocks; ++b) {
      const auto i = static_cast<size_t>(h * blocks + b);
      if (open[static_cast<size_t>(h)] && all) {
        const int end = std::min(in.first + in.count, (first + b + 1) * chosen.query_block);
        const int seen = (end + chosen.key_block - 1) / chosen.key_block;
        for (int j = 0; j < seen; ++j) lists.blocks.push_back(static_cast<uint32_t>(j));
      } else if (open[static_cast<size_t>(h)]) {
        lists.blocks.insert(lists.blocks.end(), chosen.blocks.begin() + chosen.begin[i],
                            chosen.blocks.begin() + chosen.begin[i + 1]);
      }
      lists.begin.push_back(static_cast<uint32_t>(lists.blocks.size()));
    }
    (*counts)[static_cast<size_t>(h)] += lists.blocks.size() - before;
  }
  return lists;
}

// Six digits are enough for comparisons.
std::string shortNumber(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string exactNumber(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value);
  return {text, end.ptr};
}

// A layer on each line.
template <typename Rows, typename Number>
std::string grid(const Rows& rows, const Number& number) {
  std::string text = "[";
  for (size_t l = 0; l < rows.size(); ++l) {
    text += l == 0 ? "\n    [" : ",\n    [";
    for (size_t h = 0; h < rows[l].size(); ++h) text += (h ? ", " : "") + number(rows[l][h]);
    text += "]";
  }
  return text + "\n  ]";
}

// Returns the mean output over all heads.
double meanOutput(const SaleCalibration& calibration) {
  double sum = 0;
  size_t count = 0;
  for (const auto& layer : calibration.report()) {
    for (const auto& head : layer) sum += head.output;
    count += layer.size();
  }
  return count > 0 ? sum / static_cast<double>(count) : 0;
}

}  // namespace

double saleTau(double first, int level) {
  const double tau = std::ldexp(first, -level);
  return tau <= kLeastTau ? 0 : tau;
}

SaleCalibration::SaleCalibration(int64_t layers, int64_t heads,
                                 std::vector<std::vector<int32_t>> prompts,
                                 const SaleCalibrationOptions& options)
    : layers_(layers),
      heads_(heads),
      prompts_(std::move(prompts)),
      options_(options),
      levels_(static_cast<size_t>(layers * heads)),
      readings_(prompts_.size(), std::vector<HeadReading>(levels_.size())),
      space_(options.threads) {
  while (tau(last_level_) > 0) ++last_level_;
}

size_t SaleCalibration::nextPrompt() const {
  for (size_t p = 0; p < readings_.size(); ++p) {
    for (size_t h = 0; h < levels_.size(); ++h) {
      if (isOpen(p, h)) return p;
    }
  }
  return readings_.size();
}

uint64_t SaleCalibration::settled() const {
  uint64_t count = 0;
  for (size_t p = 0; p < readings_.size(); ++p) {
    for (size_t h = 0; h < levels_.size(); ++h) count += isOpen(p, h) ? 0 : 1;
  }
  return count;
}

Status SaleCalibration::step(Decoder* decoder) {
  const size_t p = nextPrompt();
  if (p == readings_.size()) return {};
  std::vector<char> open(levels_.size());
  for (size_t h = 0; h < levels_.size(); ++h) open[h] = isOpen(p, h) ? 1 : 0;
  std::vector<HeadReading> sums(levels_.size());
  const PromptReading reading{
      .observer = [&](const kernels::PagedKv& kv, const kernels::PrefillInputs& in, int64_t layer) {
        return measure(kv, in, layer, open, &sums);
      }};
  ALLOT_ASSIGN(Prompt prompt, decoder->prefill(prompts_[p], reading));
  decoder->release(&prompt);
  const auto n = static_cast<double>(prompts_[p].size());
  for (size_t h = 0; h < levels_.size(); ++h) {
    if (!open[h]) continue;
    HeadReading& sum = sums[h];
    sum.level = levels_[h];
    sum.error = sum.level == last_level_ ? 0 : sum.error / n;
    sum.output /= n;
    if (sum.error < options_.theta) {
      readings_[p][h] = sum;
    } else {
      ++levels_[h];
    }
  }
  return {};
}

Status SaleCalibration::measure(const kernels::PagedKv& kv, const kernels::PrefillInputs& in,
                                int64_t layer, const std::vector<char>& open,
                                std::vector<HeadReading>* sums) {
  const auto first = static_cast<size_t>(layer * heads_), count = static_cast<size_t>(heads_);
  const std::vector<char> own(open.begin() + static_cast<int64_t>(first),
                              open.begin() + static_cast<int64_t>(first + count));
  if (std::find(own.begin(), own.end(), 1) == own.end()) return {};
  std::vector<float> taus(count);  // 0, which needs no scores, for heads that are not measured
  for (size_t h = 0; h < count; ++h) {
    if (own[h]) taus[h] = static_cast<float>(tau(levels_[first + h]));
  }
  kernels::BlockLists chosen;
  // No keys are exempt from selection, so that short prompts test the thresholds, too.
  kernels::MethodOptions sale = kernels::methodDefaults(kernels::Method::kSale);
  sale.dense_keys = 0;
  if (options_.exact) sale.scores = kernels::KeyScores::kExact;
  auto why = kernels::selectBlocks(sale, kv, in, taus.data(), &space_, &chosen);
  const auto attend = [&](bool all, std::vector<float>* out, std::vector<uint64_t>* counts) {
    if (why) return;
    const kernels::BlockLists lists = listsOf(chosen, in, own, all, counts);
    const kernels::KeyBlocks view = lists.view();
    out->resize(static_cast<size_t>(in.count) * count * static_cast<size_t>(kv.head_dim));
    why = kernels::attendBlocks(kv, in, &view, &space_, {.out = out->data()});
  };
  std::vector<uint64_t> kept(count), all(count);
  attend(false, &sparse_, &kept);
  attend(true, &dense_, &all);
  if (why) {
    return fail(ErrorCode::kData, "calibration, layer " + std::to_string(layer) + ": " + *why);
  }
  const auto channels = static_cast<size_t>(kv.head_dim);
  for (size_t i = 0; i < static_cast<size_t>(in.count) * count; ++i) {
    if (!own[i % count]) continue;
    HeadReading& sum = (*sums)[first + i % count];
    for (size_t c = i * channels; c < (i + 1) * channels; ++c) {
      sum.error += std::fabs(static_cast<double>(dense_[c]) - static_cast<double>(sparse_[c]));
      sum.output += std::fabs(static_cast<double>(dense_[c]));
    }
  }
  for (size_t h = 0; h < count; ++h) {
    (*sums)[first + h].blocks += kept[h];
    (*sums)[first + h].dense_blocks += all[h];
  }
  return {};
}

nlohmann::json SaleCalibration::state() const {
  nlohmann::json readings = nlohmann::json::array();
  for (const auto& prompt : readings_) {
    nlohmann::json& own = readings.emplace_back(nlohmann::json::array());
    for (const HeadReading& head : prompt) {
      own.push_back({head.level, head.error, head.output, head.blocks, head.dense_blocks});
    }
  }
  return {{"levels", levels_}, {"readings", std::move(readings)}};
}

Status SaleCalibration::restore(const nlohmann::json& state) {
  std::vector<int> levels;
  std::vector<std::vector<HeadReading>> readings;
  try {
    state.at("levels").get_to(levels);
    for (const auto& prompt : state.at("readings")) {
      auto& own = readings.emplace_back();
      for (const auto& head : prompt) {
        own.push_back({head.at(0).get<int>(), head.at(1).get<double>(), head.at(2).get<double>(),
                       head.at(3).get<uint64_t>(), head.at(4).get<uint64_t>()});
      }
    }
  } catch (const nlohmann::json::exception&) {
    return fail(ErrorCode::kData, "is no state of a calibration");
  }
  const auto sound = [this](int level, int least) {
    return level >= least && level <= last_level_;
  };
  bool good = levels.size() == levels_.size() && readings.size() == readings_.size();
  for (const int level : levels) good = good && sound(level, 0);
  for (const auto& prompt : readings) {
    good = good && prompt.size() == levels_.size();
    for (const HeadReading& head : prompt) good = good && sound(head.level, -1);
  }
  if (!good) return fail(ErrorCode::kData, "is no state of this calibration");
  levels_ = std::move(levels);
  readings_ = std::move(readings);
  return {};
}

std::vector<std::vector<double>> SaleCalibration::taus() const {
  std::vector<std::vector<double>> taus(static_cast<size_t>(layers_));
  for (size_t h = 0; h < levels_.size(); ++h) {
    taus[h / static_cast<size_t>(heads_)].push_back(tau(levels_[h]));
  }
  return taus;
}

std::vector<std::vector<SaleCalibration::HeadReport>> SaleCalibration::report() const {
  std::vector<std::vector<HeadReport>> layers(static_cast<size_t>(layers_));
  for (size_t h = 0; h < levels_.size(); ++h) {
    HeadReport head;
    uint64_t blocks = 0, dense = 0;
    for (const auto& prompt : readings_) {
      head.error = std::max(head.error, prompt[h].error);
      head.output += prompt[h].output / static_cast<double>(readings_.size());
      blocks += prompt[h].blocks;
      dense += prompt[h].dense_blocks;
    }
    if (dense > 0) head.sparsity = 1 - static_cast<double>(blocks) / static_cast<double>(dense);
    layers[h / static_cast<size_t>(heads_)].push_back(head);
  }
  return layers;
}

std::string profileFile(const SaleCalibration& calibration, const SaleCalibrationOptions& options,
                        const ProfileFacts& facts) {
  using Head = SaleCalibration::HeadReport;
  const auto report = calibration.report();
  const double output = meanOutput(calibration);
  ProfileText text(kSaleProfile, facts);
  text.addText("select", options.exact ? "exact" : "q4");
  text.add("queryBlock", std::to_string(kProfileQueryBlock));
  text.add("keyBlock", std::to_string(kProfileKeyBlock));
  text.add("firstTau", exactNumber(options.first_tau));
  text.add("theta", exactNumber(options.theta));
  // theta is an absolute error and belongs to one model: this is its share of a head's output.
  text.add("relativeTheta", shortNumber(output > 0 ? options.theta / output : 0));
  text.add("tau", grid(calibration.taus(), exactNumber));
  text.add("error", grid(report, [](const Head& head) { return shortNumber(head.error); }));
  text.add("output", grid(report, [](const Head& head) { return shortNumber(head.output); }));
  text.add("sparsity", grid(report, [](const Head& head) { return shortNumber(head.sparsity); }));
  return text.whole();
}

std::string profileTable(const SaleCalibration& calibration) {
  std::string text =
      "  layer  tau, least to most      blocks left out  error  of a head's output\n";
  const auto taus = calibration.taus();
  const auto report = calibration.report();
  for (size_t l = 0; l < taus.size(); ++l) {
    const auto [least, most] = std::minmax_element(taus[l].begin(), taus[l].end());
    double error = 0, output = 0, sparsity = 0;
    for (const auto& head : report[l]) {
      error = std::max(error, head.error);
      output += head.output / static_cast<double>(report[l].size());
      sparsity += head.sparsity / static_cast<double>(report[l].size());
    }
    const std::string range = exactNumber(*least) + " to " + exactNumber(*most);
    char line[160];
    std::snprintf(line, sizeof line, "  %-5zu  %-22s  %13.1f %%  %5.3f  %.1f %%\n", l,
                  range.c_str(), 100 * sparsity, error, output > 0 ? 100 * error / output : 0.0);
    text += line;
  }
  return text;
}

}  // namespace allot
