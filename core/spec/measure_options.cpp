#include "core/spec/measure_options.h"

#include <charconv>
#include <set>
#include <vector>

#include "core/spec/spec_rules.h"

namespace allot {
namespace {

constexpr uint32_t kMostQuestions = 1'000'000;
constexpr uint32_t kMostTile = 1 << 20;
constexpr uint32_t kMostReplicates = 4096;

struct Parameter {
  std::string key;
  std::string allowed;
  bool (*read)(std::string_view value, MeasureOptions* options);
  std::string (*write)(const MeasureOptions& options);
};

bool readCount(std::string_view text, uint32_t low, uint32_t high, uint32_t* value) {
  uint32_t read = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), read);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return false;
  if (read < low || read > high) return false;
  *value = read;
  return true;
}

std::vector<Parameter> parametersOf(Measure measure) {
  if (measure == Measure::kAccuracy) return {};
  std::vector<Parameter> all = {
      {"questions", "1..1000000",
       [](std::string_view value, MeasureOptions* o) {
         return readCount(value, 1, kMostQuestions, &o->questions);
       },
       [](const MeasureOptions& o) { return std::to_string(o.questions); }},
      {"tile", "1..1048576",
       [](std::string_view value, MeasureOptions* o) {
         return readCount(value, 1, kMostTile, &o->tile);
       },
       [](const MeasureOptions& o) { return std::to_string(o.tile); }}};
  if (measure == Measure::kFidelity) {
    all.push_back({"agreement", joined(wordsOf<AgreementLayers>()),
                   [](std::string_view value, MeasureOptions* o) {
                     const auto layers = fromWord<AgreementLayers>(value);
                     o->agreement = layers.value_or(o->agreement);
                     return layers.has_value();
                   },
                   [](const MeasureOptions& o) { return std::string(wordOf(o.agreement)); }});
  } else {
    all.push_back({"replicates", "2..4096",
                   [](std::string_view value, MeasureOptions* o) {
                     return readCount(value, 2, kMostReplicates, &o->replicates);
                   },
                   [](const MeasureOptions& o) { return std::to_string(o.replicates); }});
  }
  return all;
}

std::optional<std::string> readParameter(std::string_view word, MeasureOptions* options) {
  const size_t equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  std::vector<std::string> known;
  for (const Parameter& parameter : parametersOf(options->measure)) {
    known.push_back(parameter.key);
    if (parameter.key != key) continue;
    if (equals == word.npos || !parameter.read(word.substr(equals + 1), options)) {
      return std::string(key) + (equals == word.npos ? " has no value" : ": a bad value") +
             "; allowed: " + parameter.allowed;
    }
    return std::nullopt;
  }
  return std::string(wordOf(options->measure)) +
         (known.empty() ? " takes no parameters"
                        : " has no such parameter; it takes " + joined(known));
}

}  // namespace

std::optional<std::string> parseMeasure(std::string_view text, MeasureOptions* options) {
  const size_t space = text.find(' ');
  const auto measure = fromWord<Measure>(text.substr(0, space));
  if (!measure || *measure == Measure::kLayerLoss) {
    return "no such measure; there are accuracy, fidelity, variance";
  }
  MeasureOptions parsed{.measure = *measure};
  std::set<std::string_view> seen;
  for (size_t from = space; from != text.npos;) {
    const size_t start = from + 1;
    from = text.find(' ', start);
    const std::string_view word = text.substr(start, from == text.npos ? from : from - start);
    if (word.empty()) return "write single spaces between its parameters, and none at the end";
    if (auto wrong = readParameter(word, &parsed)) return wrong;
    const std::string_view key = word.substr(0, word.find('='));
    if (!seen.insert(key).second) return std::string(key) + " is given twice";
  }
  *options = parsed;
  return std::nullopt;
}

std::string measureText(const MeasureOptions& options) {
  const MeasureOptions left_out{.measure = options.measure};
  std::string text(wordOf(options.measure));
  for (const Parameter& parameter : parametersOf(options.measure)) {
    const std::string value = parameter.write(options);
    if (value != parameter.write(left_out)) text += " " + parameter.key + "=" + value;
  }
  return text;
}

MeasureOptions measureOptions(const v1::Evaluation& evaluation, Measure measure) {
  for (const std::string& text : evaluation.measures()) {
    MeasureOptions options;
    if (!parseMeasure(text, &options) && options.measure == measure) return options;
  }
  return {.measure = measure};
}

}  // namespace allot
