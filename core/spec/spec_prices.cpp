#include "core/spec/spec_prices.h"

#include <algorithm>

#include "allot/kernels/method.h"
#include "core/spec/choices.h"
#include "core/spec/prices.h"
#include "core/spec/spec_values.h"
#include "core/spec/step_times.h"

namespace allot {
namespace {

using kernels::Phase;

// Returns "spec.policy.price bytes".
std::string priceKey(const v1::Spec& spec) { return "spec.policy.price " + spec.policy().price(); }

Status checkShare(const YamlValue& value, const v1::Spec& spec, const Site& site) {
  const bool wants_share = hasPrices(spec.policy());
  if (value.kind != YamlValue::Kind::kScalar || isShare(value) == wants_share) return {};
  if (wants_share) {
    return site.refuse(described(value) + " is no share, as " + priceKey(spec) +
                       " needs: write a per cent of dense attention's, as in 15 %");
  }
  return site.refuse(described(value) +
                     " is a share, and spec.policy.price is reads: write a number of reads, or "
                     "set spec.policy.price to bytes or time");
}

kernels::MethodOptions methodOf(const std::string& text, Phase phase) {
  kernels::MethodOptions options;
  // Parsing succeeds: readMethod has parsed the text before.
  kernels::parseMethod(text, &options, phase);
  return options;
}

// Returns true if the price of the method's decode steps follows from its budget.
bool hasPrice(const std::string& text, Price price) {
  const kernels::MethodOptions method = methodOf(text, Phase::kDecode);
  return price == Price::kTime ? kernels::usesBudget(method)
                               : kernels::mostBytes(method, {}, 1).has_value();
}

// Checks that there are times of steps if and only if prices are such times.
Status checkTimes(const v1::Policy& policy, const std::string& place) {
  const bool timed = priceOf(policy) == Price::kTime;
  if (!timed && policy.step_times().empty()) return {};
  if (!timed) {
    return Site{place, kStepTimesKey}.refuse("has no effect, since spec.policy.price is " +
                                             std::string(wordOf(priceOf(policy))) +
                                             ": set that to time, or remove this");
  }
  if (policy.step_times().empty()) {
    return Site{place, "spec.policy.price"}.refuse(
        "time needs spec.policy.stepTimes, the microseconds of a layer's decode step: `allot bench "
        "kernels --json` on a GPU measures them");
  }
  const auto times = parseStepTimes(policy.step_times(), place + ": " + kStepTimesKey);
  if (!times) return tl::unexpected(times.error());
  if (zeroReadsOf(policy) != ZeroReadsChoice::kWindow) return {};
  return Site{place, "spec.policy.zeroReads"}.refuse(
      "window has no time in spec.policy.stepTimes: choose off or mean-value");
}

Status checkPricedMethods(const v1::Spec& spec, const std::string& place) {
  const v1::Attention& attention = spec.attention();
  if (!hasPrice(attention.decode(), priceOf(spec.policy()))) {
    return Site{place, "spec.attention.decode"}.refuse(
        doubleQuoted(attention.decode()) + " has no price: " + priceKey(spec) +
        " needs a method that reads as many rows as its budget says" +
        (priceOf(spec.policy()) == Price::kBytes ? ", and scores every key," : "") +
        " such as s2anta-q4 or s2anta-sys");
  }
  for (int i = 0; i < spec.evaluation().methods_size(); ++i) {
    const std::string& method = spec.evaluation().methods(i);
    if (method == attention.decode() || !kernels::usesBudget(methodOf(method, Phase::kDecode))) {
      continue;
    }
    return Site{place, "spec.evaluation.methods"}
        .at(static_cast<size_t>(i))
        .refuse(doubleQuoted(method) + " has other prices than spec.attention.decode, " +
                attention.decode() +
                ", whose budgets these are: remove it, or measure it in an "
                "experiment of its own");
  }
  const auto check = [&](const std::string& prefill, const Site& site) -> Status {
    if (!kernels::usesBudget(methodOf(prefill, Phase::kPrefill))) return {};
    return site.refuse(doubleQuoted(prefill) + " reads prompts by the schedule, and " +
                       priceKey(spec) +
                       " is of decode steps alone: choose a prefill without a budget, such as "
                       "dense");
  };
  ALLOT_TRY(check(attention.prefill(), {place, "spec.attention.prefill"}));
  const auto& prefills = spec.evaluation().prefills();
  for (int i = 0; i < prefills.size(); ++i) {
    const Site list{place, "spec.evaluation.prefills"};
    ALLOT_TRY(check(prefills[i], list.at(static_cast<size_t>(i))));
  }
  return {};
}

Status checkPricedGrid(const v1::Spec& spec, const std::string& place) {
  const v1::Evaluation& evaluation = spec.evaluation();
  for (int i = 0; i < evaluation.schedules_size(); ++i) {
    const ScheduleKind kind = kindOf(evaluation.schedules(i));
    if (kind != ScheduleKind::kOneHot && kind != ScheduleKind::kExplicit) continue;
    return Site{place, "spec.evaluation.schedules"}
        .at(static_cast<size_t>(i))
        .refuse(std::string(kind == ScheduleKind::kOneHot ? "oneHot" : "a list") +
                " counts reads, and budgets have " + priceKey(spec) +
                ": remove it, or leave the price out");
  }
  const std::vector<Measure> measures = measuresOf(evaluation);
  for (size_t i = 0; i < measures.size(); ++i) {
    if (measures[i] == Measure::kAccuracy) continue;
    return Site{place, "spec.evaluation.measures"}.at(i).refuse(
        std::string(wordOf(measures[i])) + " is tabled by reads a layer, and budgets have " +
        priceKey(spec) + ": measure it in an experiment whose budgets are reads");
  }
  const std::vector<uint32_t> totals = totalBudgets(spec.policy());
  for (int i = 0; i < evaluation.budgets_size(); ++i) {
    if (std::find(totals.begin(), totals.end(), evaluation.budgets(i)) != totals.end()) continue;
    return Site{place, "spec.evaluation.budgets"}
        .at(static_cast<size_t>(i))
        .refuse(budgetText(spec.policy(), evaluation.budgets(i)) +
                " is not one of spec.policy.totalBudgets: a schedule is learned for its own price "
                "and not "
                "scaled to another; add it there, or remove it here");
  }
  return {};
}

}  // namespace

Status checkShares(const YamlValue& root, const std::string& place, const v1::Spec& spec) {
  for (const char* path :
       {"spec.policy.totalBudget", "spec.policy.totalBudgets", "spec.evaluation.budgets"}) {
    const YamlValue* value = findPath(root, path);
    if (value == nullptr) continue;
    const Site site{place, path};
    ALLOT_TRY(checkShare(*value, spec, site));
    if (value->kind != YamlValue::Kind::kList) continue;
    for (size_t i = 0; i < value->items.size(); ++i) {
      ALLOT_TRY(checkShare(value->items[i], spec, site.at(i)));
    }
  }
  return {};
}

Status checkPrices(const v1::Spec& spec, const std::string& place) {
  ALLOT_TRY(checkTimes(spec.policy(), place));
  if (!hasPrices(spec.policy())) return {};
  if (granularityOf(spec.policy()) != Granularity::kLayer) {
    return Site{place, "spec.policy.granularity"}.refuse(
        spec.policy().granularity() +
        " has no prices: heads of a KV head read their keys together; leave it out, or set "
        "spec.policy.price to reads");
  }
  if (spec.has_update() && learnerOf(spec.update()) != Learner::kAdditive) {
    return Site{place, "spec.update.learner"}.refuse(std::string(wordOf(learnerOf(spec.update()))) +
                                                     " spreads reads, and budgets have " +
                                                     priceKey(spec) + ": choose learner additive");
  }
  if (spec.has_update() && spec.policy().measure_questions() == 0) {
    return Site{place, "spec.policy.measureQuestions"}.refuse(
        "0 measures no layer, and with " + priceKey(spec) +
        " a price below that of any uniform schedule is compared with the measured one: raise it, "
        "or leave it out");
  }
  if (spec.task().context_tokens() > kAllRows) {
    return Site{place, "spec.task.contextTokens"}.refuse(
        std::to_string(spec.task().context_tokens()) + " is beyond " + std::to_string(kAllRows) +
        ", the reads that stand for all rows under " + priceKey(spec) + ": lower it");
  }
  ALLOT_TRY(checkPricedMethods(spec, place));
  return checkPricedGrid(spec, place);
}

}  // namespace allot
