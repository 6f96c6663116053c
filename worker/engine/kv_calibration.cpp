#include "worker/engine/kv_calibration.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace allot {
namespace {

constexpr double kLargest = 448;  // of e4m3

// Returns the smallest power of two that is a normal float and brings numbers up to `largest`
// within e4m3's range; 1 if all numbers are 0.
double scaleFor(double largest) {
  if (largest == 0) return 1;
  int exponent = 0;
  const double fraction = std::frexp(largest / kLargest, &exponent);  // of [1/2, 1)
  return std::ldexp(1.0, std::clamp(fraction == 0.5 ? exponent - 1 : exponent, -126, 127));
}

LayerNumbers scalesFor(LayerNumbers largest) {
  for (auto& layer : largest) {
    for (double& number : layer) number = scaleFor(number);
  }
  return largest;
}

// Returns the numbers with a layer on each line.
std::string layersText(const LayerNumbers& numbers) {
  std::string text;
  for (const auto& layer : numbers) {
    const std::string row = numbersText({layer});  // [[...]]
    text += (text.empty() ? "[\n    " : ",\n    ") + row.substr(1, row.size() - 2);
  }
  return text + "]";
}

}  // namespace

KvCalibration::KvCalibration(int64_t layers, int64_t kv_heads)
    : keys_(static_cast<size_t>(layers), std::vector<double>(static_cast<size_t>(kv_heads))),
      values_(keys_) {}

Status KvCalibration::read(Decoder* decoder, const std::vector<int32_t>& prompt) {
  const PromptReading reading{.observer = [&](const kernels::PagedKv& kv,
                                              const kernels::PrefillInputs& in,
                                              int64_t layer) -> Status {
    assert(kv.element == kernels::Element::kFloat32);
    for (int j = in.first; j < in.first + in.count; ++j) {
      for (int head = 0; head < kv.kv_heads; ++head) {
        const int64_t at = kv.offset(in.page_table[j / kv.page_size], head, j % kv.page_size);
        const auto add = [&](const void* pool, double* largest) {
          const float* row = static_cast<const float*>(pool) + at;
          for (int d = 0; d < kv.head_dim; ++d) {
            *largest = std::max(*largest, static_cast<double>(std::fabs(row[d])));
          }
        };
        add(kv.keys, &keys_[static_cast<size_t>(layer)][static_cast<size_t>(head)]);
        add(kv.values, &values_[static_cast<size_t>(layer)][static_cast<size_t>(head)]);
      }
    }
    return {};
  }};
  ALLOT_ASSIGN(Prompt read, decoder->prefill(prompt, reading));
  decoder->release(&read);
  return {};
}

KvProfile KvCalibration::profile(const std::string& weights_sha256) const {
  return {weights_sha256, scalesFor(keys_), scalesFor(values_)};
}

std::string KvCalibration::file(const ProfileFacts& facts) const {
  const KvProfile made = profile(facts.weights_sha256);
  ProfileText text(kKvProfile, facts);
  text.add("keyScales", layersText(made.keys));
  text.add("valueScales", layersText(made.values));
  text.add("largestKeys", layersText(keys_));
  text.add("largestValues", layersText(values_));
  return text.whole();
}

std::string KvCalibration::table() const {
  std::string text = "  layer  largest key  its scale  largest value  its scale\n";
  for (size_t l = 0; l < keys_.size(); ++l) {
    const double key = *std::max_element(keys_[l].begin(), keys_[l].end());
    const double value = *std::max_element(values_[l].begin(), values_[l].end());
    char line[120];
    std::snprintf(line, sizeof line, "  %-5zu  %11.4g  %9.4g  %13.4g  %9.4g\n", l, key,
                  scaleFor(key), value, scaleFor(value));
    text += line;
  }
  return text;
}

}  // namespace allot
