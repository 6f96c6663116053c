#pragma once
// RunView: the run in the form that page, report and terminal show. Pure, any thread.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "aggregator/page/measurements.h"
#include "aggregator/snapshot.h"
#include "core/evaluation/margin.h"

namespace allot {

struct RunView {
  // An object of the values that are shown directly: names, counts, curves, workers.
  nlohmann::json facts = nlohmann::json::object();
  std::vector<CurvePoint> points;  // all points; the page draws some of them
  std::vector<FidelityPoint> fidelity;
  std::vector<FidelityPoint> variance;  // of the measure variance
  std::vector<VarianceSlope> slopes;
  uint64_t total_budget = 0;  // the policy's; selects the headline
  std::string decode = {};    // the method that the run decodes with; selects the headline
  nlohmann::json made_for = nlohmann::json::object();  // {model, method, task}: of policy.json
  double margin = kUsualMargin;  // of the report's list of what is as good as dense
};

// Builds the view. The history in it is thinned evenly to at most 1000 points and the last one.
RunView runView(const RunSnapshot& snapshot, uint64_t now_unix_ms, const std::string& run_id);

// Returns what follows a total budget in texts of these facts, or of a summary with their "price":
// nothing, " %" or " % of time".
std::string budgetUnit(const nlohmann::json& facts);

// Returns the view as one JSON document, which page.js draws. "evaluations" has every point once;
// selections ("lines", "learning", "headline") are indices into "evaluations".
nlohmann::json viewJson(const RunView& view);

// Returns a row for each total budget: the published schedule with its claim, how another candidate
// fares against uniform, and what reads are worth. "published" names the schedule: learned if it is
// confirmed, else uniform or measured. It is null if the learner claims nothing, and if the
// schedule is none of these: a price that buys no uniform schedule, before layers are measured.
nlohmann::json frontierView(const v1::Spec& spec, const v1::AggregatorState& state);

// Return parts of that document, which the report's summary uses as well.
nlohmann::json cellView(const CurvePoint& point);
// {mean, ci95, interval, questions, lower95, p, test, holm}: an accuracy minus another's on the
// same questions.
nlohmann::json differenceView(const std::optional<PairedDifference>& paired);
// {p, family, differs}: the same by Holm's rule; null without a family.
nlohmann::json holmView(const PairedDifference& paired);
// [{method, schedule, total_budget, stopped_at, compared}]: the smallest budgets that are as good
// as dense (SmallestAsGood).
nlohmann::json asGoodView(const std::vector<AsGoodLine>& lines);
nlohmann::json fidelityView(const FidelityPoint& point);
nlohmann::json varianceView(const FidelityPoint& point);
nlohmann::json slopesView(const std::vector<VarianceSlope>& slopes);

}  // namespace allot
