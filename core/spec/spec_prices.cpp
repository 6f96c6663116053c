#include "core/spec/spec_prices.h"

#include <algorithm>

#include "allot/kernels/method.h"
#include "core/spec/choices.h"
#include "core/spec/prices.h"
#include "core/spec/spec_values.h"

namespace allot {
namespace {

using kernels::Phase;

Status checkShare(const YamlValue& value, bool wants_share, const Site& site) {
  if (value.kind != YamlValue::Kind::kScalar || isShare(value) == wants_share) return {};
  if (wants_share) {
    return site.refuse(described(value) +
                       " is no share, and spec.policy.price is bytes: write a per cent of what "
                       "dense attention reads, as in 15 %");
  }
  return site.refuse(described(value) +
                     " is a share, and spec.policy.price is reads: write a number of reads, or "
                     "set spec.policy.price to bytes");
}

kernels::MethodOptions methodOf(const std::string& text, Phase phase) {
  kernels::MethodOptions options;
  // Parsing succeeds: readMethod has parsed the text before.
  kernels::parseMethod(text, &options, phase);
  return options;
}

// Returns true if the bytes of the method's decode steps follow from its budget.
bool hasPrice(const std::string& method) {
  return kernels::mostBytes(methodOf(method, Phase::kDecode), {}, 1).has_value();
}

Status checkPricedMethods(const v1::Spec& spec, const std::string& place) {
  const v1::Attention& attention = spec.attention();
  if (!hasPrice(attention.decode())) {
    return Site{place, "spec.attention.decode"}.refuse(
        doubleQuoted(attention.decode()) +
        " has no price: spec.policy.price bytes needs a method that scores every key and reads as "
        "many rows as its budget says, such as s2anta-q4 or s2anta-sys");
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
    return site.refuse(doubleQuoted(prefill) +
                       " reads prompts by the schedule, and spec.policy.price bytes is of decode "
                       "steps alone: choose a prefill without a budget, such as dense");
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
                " counts reads, and spec.policy.price is bytes: remove it, or leave the price out");
  }
  const std::vector<Measure> measures = measuresOf(evaluation);
  for (size_t i = 0; i < measures.size(); ++i) {
    if (measures[i] == Measure::kAccuracy) continue;
    return Site{place, "spec.evaluation.measures"}.at(i).refuse(
        std::string(wordOf(measures[i])) +
        " is tabled by reads a layer, and spec.policy.price is bytes: measure it in an experiment "
        "whose budgets are reads");
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
  const bool wants_share = hasPrices(spec.policy());
  for (const char* path :
       {"spec.policy.totalBudget", "spec.policy.totalBudgets", "spec.evaluation.budgets"}) {
    const YamlValue* value = findPath(root, path);
    if (value == nullptr) continue;
    const Site site{place, path};
    ALLOT_TRY(checkShare(*value, wants_share, site));
    if (value->kind != YamlValue::Kind::kList) continue;
    for (size_t i = 0; i < value->items.size(); ++i) {
      ALLOT_TRY(checkShare(value->items[i], wants_share, site.at(i)));
    }
  }
  return {};
}

Status checkPrices(const v1::Spec& spec, const std::string& place) {
  if (!hasPrices(spec.policy())) return {};
  if (granularityOf(spec.policy()) != Granularity::kLayer) {
    return Site{place, "spec.policy.granularity"}.refuse(
        spec.policy().granularity() +
        " has no prices: heads of a KV head read their keys together; leave it out, or set "
        "spec.policy.price to reads");
  }
  if (spec.has_update() && learnerOf(spec.update()) != Learner::kAdditive) {
    return Site{place, "spec.update.learner"}.refuse(
        std::string(wordOf(learnerOf(spec.update()))) +
        " spreads reads, and spec.policy.price is bytes: choose learner additive");
  }
  if (spec.has_update() && spec.policy().measure_questions() == 0) {
    return Site{place, "spec.policy.measureQuestions"}.refuse(
        "0 measures no layer, and with spec.policy.price bytes a price below that of any uniform "
        "schedule is compared with the measured one: raise it, or leave it out");
  }
  if (spec.task().context_tokens() > kAllRows) {
    return Site{place, "spec.task.contextTokens"}.refuse(
        std::to_string(spec.task().context_tokens()) + " is beyond " + std::to_string(kAllRows) +
        ", the reads that stand for all rows under spec.policy.price bytes: lower it");
  }
  ALLOT_TRY(checkPricedMethods(spec, place));
  return checkPricedGrid(spec, place);
}

}  // namespace allot
