#include "cli/methods_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "allot/kernels/method.h"
#include "cli/terminal.h"

namespace allot {
namespace {

const std::vector<std::pair<std::string_view, std::string_view>> kMeanings = {
    {"dense", "reads every key and value; exact, the baseline"},
    {"santa", "draws value rows independently by their attention weight; unbiased"},
    {"s2anta-strat", "one draw in each of S strata of equal weight; unbiased, never noisier"},
    {"s2anta-sys", "one random offset, thresholds evenly apart; unbiased, the least noisy of them"},
    {"s2anta-prop", "the draws of s2anta-sys, computed from the weights of tiles"},
    {"s2anta-flash", "an equal number of draws in every tile, weighted afterwards; unbiased"},
    {"s2anta-q4", "draws by low-bit copies of the keys, then weighs the drawn rows exactly"},
    {"top-k", "the S heaviest rows, renormalised; biased"},
    {"bernoulli", "scores from a few random query features, in front of a value stage"},
    {"vattention",
     "first, last and heaviest rows, and as many random others as (epsilon, delta) asks"},
    {"adaptive-denominator", "vattention with a budget for the denominator alone; for comparison"},
    {"quest", "the pages of keys whose bounds promise the largest scores; biased"},
    {"sample-attention",
     "the fewest columns and slashes of blocks that hold alpha of the last queries' mass"},
    {"sale",
     "blocks of keys with a weight of tau, by 4-bit scores relative to first and last blocks"},
    {"sampled-blocks",
     "all scores; draws S blocks of 64 values by the mass that they give it; unbiased"},
    {"skip-softmax", "all scores; values of blocks with a weight of threshold or more"},
};

// With its default parameters: the phases in which a GPU has it.
std::string onGpu(std::string_view name) {
  std::string phases;
  for (const auto& [phase, word] :
       {std::pair{kernels::Phase::kPrefill, "prefill"}, {kernels::Phase::kDecode, "decode"}}) {
    kernels::MethodOptions options;
    if (kernels::parseMethod(name, &options, kernels::MethodDefaults::kSecond, phase)) continue;
    if (kernels::gpuUnsupported(options, phase)) continue;
    phases += (phases.empty() ? "" : ", ") + std::string(word);
  }
  return phases;
}

bool reads(std::string_view name, kernels::Phase phase) {
  const auto& names = kernels::methodNames(phase);
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Those of decode, then those of prefill alone.
std::vector<std::string_view> allNames() {
  std::vector<std::string_view> names = kernels::methodNames(kernels::Phase::kDecode);
  for (const std::string_view name : kernels::methodNames(kernels::Phase::kPrefill)) {
    if (!reads(name, kernels::Phase::kDecode)) names.push_back(name);
  }
  return names;
}

std::string phasesOf(std::string_view name) {
  if (!reads(name, kernels::Phase::kDecode)) return "prefill";
  return reads(name, kernels::Phase::kPrefill) ? "prefill, decode" : "decode";
}

}  // namespace

std::string_view methodMeaning(std::string_view name) {
  for (const auto& [method, meaning] : kMeanings) {
    if (method == name) return meaning;
  }
  return "";
}

std::string methodsText() {
  TextTable table({"method", "phases", "on a GPU", "what it reads"});
  for (const std::string_view name : allNames()) {
    table.add({std::string(name), phasesOf(name), onGpu(name), std::string(methodMeaning(name))});
  }
  return table.text(usesColour()) +
         "\nParameters follow the name, as in `vattention epsilon=0.1 delta=0.1`:\n\n" +
         kernels::methodParametersMarkdown();
}

std::string methodsMarkdown() {
  std::string table = "| method | what it reads | phases | on a GPU |\n| --- | --- | --- | --- |\n";
  for (const std::string_view name : allNames()) {
    table.append("| `").append(name).append("` | ").append(methodMeaning(name));
    table.append(" | ").append(phasesOf(name)).append(" | ").append(onGpu(name)).append(" |\n");
  }
  return table;
}

}  // namespace allot
