#include "cli/methods_text.h"

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
};

// With its default parameters.
std::string onGpu(std::string_view name) {
  kernels::MethodOptions options;
  return kernels::parseMethod(name, &options) || kernels::gpuUnsupported(options) ? "" : "yes";
}

}  // namespace

std::string_view methodMeaning(std::string_view name) {
  for (const auto& [method, meaning] : kMeanings) {
    if (method == name) return meaning;
  }
  return "";
}

std::string methodsText() {
  TextTable table({"method", "GPU", "what it reads"});
  for (const std::string_view name : kernels::methodNames()) {
    table.add({std::string(name), onGpu(name), std::string(methodMeaning(name))});
  }
  return table.text(usesColour()) +
         "\nParameters follow the name, as in `vattention epsilon=0.1 delta=0.1`:\n\n" +
         kernels::methodParametersMarkdown();
}

std::string methodsMarkdown() {
  std::string table = "| method | what it reads | GPU |\n| --- | --- | --- |\n";
  for (const std::string_view name : kernels::methodNames()) {
    table.append("| `").append(name).append("` | ").append(methodMeaning(name));
    table.append(" | ").append(onGpu(name)).append(" |\n");
  }
  return table;
}

}  // namespace allot
