#include "aggregator/page/run_view.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "aggregator/page/status_document.h"
#include "core/digest.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/evaluation/score_statistics.h"
#include "core/learning/budget_learning.h"
#include "core/learning/confirmation.h"
#include "core/learning/measured.h"
#include "core/learning/policy.h"
#include "core/learning/priced_schedule.h"
#include "core/spec/choices.h"
#include "core/worker_beats.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr size_t kMaxPoints = 1000;

json historyView(const std::vector<v1::IterationRecord>& history) {
  json points = json::array();
  const size_t stride = history.size() / kMaxPoints + 1;
  std::vector<double> rewards;
  for (const v1::IterationRecord& record : history) rewards.push_back(record.mean_reward());
  const std::vector<double> baselines = movingAverages(rewards);
  for (size_t i = 0; i < history.size(); ++i) {
    const v1::IterationRecord& record = history[i];
    if (i % stride == 0 || i + 1 == history.size()) {
      points.push_back({{"version", record.version()},
                        {"mean_reward", record.mean_reward()},
                        {"mean_baseline", baselines[i]},
                        {"gradient_norm", record.gradient_norm()},
                        {"step_kl", record.step_kl_nats()},
                        {"entropy", record.entropy_nats()},
                        {"ess", record.effective_sample_size_ratio()},
                        {"lag", record.mean_lag_updates()}});
    }
  }
  return points;
}

json optionalView(const std::optional<double>& value) { return value ? json(*value) : json(); }

// {n, accuracy, ci95, interval}, of a cell or of a task in it.
template <typename Score>
json scoreView(const Score& score) {
  return {{"n", score.n},
          {"accuracy", score.accuracy},
          {"ci95", {score.low, score.high}},
          {"interval", score.interval}};
}

json numbersView(const FidelityNumbers& numbers) {
  return {{"states", numbers.states},
          {"relative_error", numbers.relative_error},
          {"rms_relative_error", numbers.rms_relative_error},
          {"cosine", numbers.cosine},
          {"agreement", optionalView(numbers.agreement)},
          {"divergence", optionalView(numbers.divergence)},
          {"trace_covariance", numbers.trace_covariance},
          {"estimated_error", optionalView(numbers.estimated_error)},
          {"exceed_rate", numbers.exceed_rate},
          {"draws", numbers.draws},
          {"unique_rows", numbers.unique_rows},
          {"density", numbers.density},
          {"effective_sample_size", numbers.effective_sample_size}};
}

json varianceNumbersView(const FidelityNumbers& numbers) {
  return {{"positions", numbers.positions},
          {"replicates", numbers.replicates},
          {"variance", optionalView(numbers.variance)},
          {"closed_form", optionalView(numbers.closed_form)},
          {"squared_error", numbers.trace_covariance},
          {"relative_error", numbers.relative_error},
          {"cosine", numbers.cosine},
          {"draws", numbers.draws},
          {"unique_rows", numbers.unique_rows},
          {"density", numbers.density}};
}

using NumbersView = json (*)(const FidelityNumbers& numbers);

// The parts of one cell, each with its name in the member `key`: "layer", "tiles" or "task".
json partsView(const std::vector<FidelityNumbers>& parts, const char* key, NumbersView view) {
  json rows = json::array();
  for (const FidelityNumbers& part : parts) {
    rows.push_back(view(part));
    rows.back()[key] = part.name;
  }
  return rows;
}

// Returns lines as indices of points, so that each number is in the document once.
json linesView(const std::vector<CurveLine>& lines) {
  json rows = json::array();
  for (const CurveLine& line : lines) {
    rows.push_back({{"method", line.method}, {"schedule", line.schedule}, {"rows", line.points}});
  }
  return rows;
}

json placeView(const std::optional<size_t>& place) { return place ? json(*place) : json(); }

json evaluationsView(const std::vector<CurvePoint>& points) {
  json rows = json::array();
  for (const CurvePoint& point : points) {
    json row = cellView(point);
    row["samples"] = point.samples;
    if (point.other) row["other_grader"] = scoreView(*point.other);
    rows.push_back(std::move(row));
  }
  return rows;
}

json pointView(const FidelityPoint& point, NumbersView view) {
  json row = view(point.all);
  row.update({{"version", point.version},
              {"method", point.method},
              {"schedule", point.schedule},
              {"total_budget", point.total_budget},
              {"reads_per_layer", point.reads_per_layer},
              {"support_tile", point.support_tile},
              {"layers", partsView(point.layers, "layer", view)},
              {"supports", partsView(point.supports, "tiles", view)},
              {"tasks", partsView(point.tasks, "task", view)}});
  return row;
}

json fidelityRows(const std::vector<FidelityPoint>& points,
                  json (*view)(const FidelityPoint& point)) {
  json rows = json::array();
  for (const FidelityPoint& point : points) {
    json row = view(point);
    row["questions"] = point.questions;
    // The page expects a number, readers of summary.json a text.
    for (json& layer : row["layers"]) {
      layer["layer"] = std::stoul(layer["layer"].get<std::string>());
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// Adds the leaves of a JSON value as ["spec.a.b", "value"].
void flatten(const json& node, const std::string& path, json* rows) {
  if (node.is_object()) {
    for (const auto& [key, child] : node.items()) flatten(child, path + "." + key, rows);
  } else {
    rows->push_back({path, node.is_string() ? node.get<std::string>() : node.dump()});
  }
}

json settingsView(const v1::Experiment& experiment) {
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  json rows = json::array();
  if (google::protobuf::util::MessageToJsonString(experiment.spec(), &text, options).ok()) {
    flatten(json::parse(text), "spec", &rows);
  }
  return rows;
}

json workersView(const std::vector<v1::WorkerBeat>& workers) {
  json rows = json::array();
  for (const v1::WorkerBeat& beat : workers) {
    rows.push_back({{"worker", beat.worker()},
                    {"state", stateText(beat)},
                    {"last_error", beat.last_error()},
                    {"device", beat.device()},
                    {"policy_version", beat.policy_version()},
                    {"episodes", beat.episodes()},
                    {"seen_unix_ms", beat.seen_unix_ms()}});
  }
  return rows;
}

// Returns the rollout speed over the last updates, without pauses for evaluation: the few long gaps
// do not move the median time between two updates. Returns nothing below three updates, or if that
// median is 0.
std::optional<double> episodesPerSecond(const RunSnapshot& snapshot) {
  const auto& history = snapshot.history;
  if (history.size() < 3) return std::nullopt;
  std::vector<double> gaps;
  const size_t first = history.size() > 100 ? history.size() - 100 : 1;
  for (size_t i = first; i < history.size(); ++i) {
    gaps.push_back(static_cast<double>(history[i].committed_unix_ms()) -
                   static_cast<double>(history[i - 1].committed_unix_ms()));
  }
  std::nth_element(gaps.begin(), gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2),
                   gaps.end());
  const double gap = gaps[gaps.size() / 2];
  const double episodes = snapshot.experiment.spec().update().episodes_per_update();
  if (gap <= 0) return std::nullopt;
  return 1000.0 * episodes / gap;
}

}  // namespace

json holmView(const PairedDifference& paired) {
  if (paired.family == 0) return nullptr;
  return {{"p", paired.holm_p}, {"family", paired.family}, {"differs", paired.differsByHolm()}};
}

json differenceView(const std::optional<PairedDifference>& paired) {
  if (!paired) return nullptr;
  return {{"mean", paired->mean},
          {"ci95", {paired->interval.low, paired->interval.high}},
          {"interval", paired->interval.name},
          {"questions", paired->questions},
          {"lower95", paired->lower95},
          {"p", paired->p},
          {"test", paired->test},
          {"holm", holmView(*paired)}};
}

json asGoodView(const std::vector<AsGoodLine>& lines) {
  json rows = json::array();
  for (const AsGoodLine& line : lines) {
    const auto& [budget, stopped_at, compared] = line.smallest;
    rows.push_back({{"method", line.method},
                    {"schedule", line.schedule},
                    {"total_budget", budget ? json(*budget) : json()},
                    {"stopped_at", stopped_at ? json(*stopped_at) : json()},
                    {"compared", compared}});
  }
  return rows;
}

json cellView(const CurvePoint& point) {
  json row = scoreView(point);
  row.update({{"version", point.version},
              {"method", point.method},
              {"schedule", point.schedule},
              {"total_budget", point.total_budget},
              {"kv_bytes_share", optionalView(point.kv_bytes_share)},
              {"key_share", optionalView(point.key_share)},
              {"value_rows_share", optionalView(point.value_rows_share)},
              {"prefill", point.prefill},
              {"prefill_seconds", optionalView(point.prefill_seconds)},
              {"prefill_selection_seconds", optionalView(point.prefill_selection_seconds)},
              {"prefill_density", optionalView(point.prefill_density)},
              {"prefill_bytes_share", optionalView(point.prefill_bytes_share)},
              {"prefill_kept_mass", optionalView(point.prefill_kept_mass)},
              {"prefill_least_kept_mass", optionalView(point.prefill_least_kept_mass)},
              {"repeats", point.repeats},
              {"repeat_sd", optionalView(point.repeat_sd)},
              {"answer_tokens", optionalView(point.answer_tokens)},
              {"prompt_tokens", optionalView(point.prompt_tokens)},
              {"over_dense", differenceView(point.over_dense)},
              {"over_uniform", differenceView(point.over_uniform)},
              {"tasks", json::array()}});
  for (const TaskScore& task : point.tasks) {
    json one = scoreView(task);
    one["task"] = task.task;
    row["tasks"].push_back(std::move(one));
  }
  return row;
}

json fidelityView(const FidelityPoint& point) {
  json row = pointView(point, numbersView);
  row["agreement_layers"] = wordOf(point.agreement);
  return row;
}

json varianceView(const FidelityPoint& point) { return pointView(point, varianceNumbersView); }

// Returns the surrogate's estimate of each layer's worth, with its standard deviation.
json worthView(const v1::Spec& spec, const v1::AggregatorState& state, int budget) {
  json rows = json::array();
  for (const LayerWorth& worth : layerWorths(spec, state, budget)) {
    rows.push_back(
        {{"reads", worth.draws}, {"mean", worth.mean}, {"low", worth.low}, {"high", worth.high}});
  }
  return rows;
}

json claimView(const v1::Claim& claim) {
  return {{"confirmation", claim.confirmation()},
          {"version", claim.version()},
          {"questions", claim.questions()},
          {"lost", claim.lost()},
          {"mean", claim.mean()},
          {"low", claim.low()},
          {"high", claim.high()},
          {"error", claim.error()}};
}

json confirmationView(const v1::Confirmation& confirmation) {
  const Evidence evidence = evidenceOf(confirmation);
  return {{"confirmation", confirmation.number()},
          {"questions", evidence.questions},
          {"lost", confirmation.lost()},
          {"mean", evidence.mean},
          {"low", evidence.low},
          {"high", evidence.high},
          {"error", evidence.error}};
}

// Returns the name of a budget's published schedule: learned if it is claimed, uniform or measured
// if it is that schedule, else null.
json publishedName(const v1::Spec& spec, const v1::AggregatorState& state,
                   const v1::BudgetPolicy& budget) {
  if (budget.beats_uniform()) return kLearnedSchedule;
  const uint32_t total = budget.total_budget();
  const SampleSchedule published = publishedSchedule(spec, state.policy(), total);
  if (published == uniformOf(state.policy(), total)) return kUniformSchedule;
  const auto measured = measuredSchedule(state, total, spec.policy().min_per_layer());
  if (!measured || published.size() % measured->size() != 0) return nullptr;
  const size_t per_layer = published.size() / measured->size();
  for (size_t entry = 0; entry < published.size(); ++entry) {
    if (published[entry] != (*measured)[entry / per_layer]) return nullptr;
  }
  return kMeasuredSchedule;
}

json frontierView(const v1::Spec& spec, const v1::AggregatorState& state) {
  json rows = json::array();
  if (!spec.has_update()) return rows;
  const v1::PolicySnapshot& policy = state.policy();
  const auto layers = static_cast<size_t>(policy.logits_size());
  const PriceList prices = pricesOf(policy);
  for (const uint32_t total : totalBudgets(spec.policy())) {
    const SampleSchedule published = publishedSchedule(spec, policy, total);
    const auto uniform = uniformOf(policy, total);
    const auto rival =
        uniform ? uniform : measuredSchedule(state, total, spec.policy().min_per_layer());
    const auto shareOfDense = [&](const SampleSchedule& schedule) {
      const auto price = priceOf(schedule, prices);
      return price ? json(static_cast<double>(*price) / (static_cast<double>(layers) * kPriceUnits))
                   : json();
    };
    rows.push_back({{"total_budget", total},
                    {"rival", uniform ? json(kUniformSchedule)
                              : rival ? json(kMeasuredSchedule)
                                      : json()},
                    {"rival_price_share", rival ? shareOfDense(*rival) : json()},
                    {"price_share", shareOfDense(published)},
                    {"learned_schedule", published},
                    {"layer_reads", layerDraws(published, layers)},
                    {"published", nullptr},
                    {"beats_uniform", nullptr},
                    {"claim", nullptr},
                    {"candidate", nullptr},
                    {"worth", json::array()}});
  }
  for (int b = 0; b < std::min(policy.frontier().budgets_size(), state.learners_size()); ++b) {
    const v1::BudgetPolicy& learned = policy.frontier().budgets(b);
    const v1::Confirmation& confirmation = state.learners(b).confirmation();
    json& row = rows[static_cast<size_t>(b)];
    row["published"] = publishedName(spec, state, learned);
    row["beats_uniform"] = learned.beats_uniform();
    if (learned.has_claim()) row["claim"] = claimView(learned.claim());
    const bool is_claimed =
        learned.has_claim() && learned.claim().confirmation() == confirmation.number();
    if (!confirmation.candidate().empty() && !is_claimed) {
      row["candidate"] = confirmationView(confirmation);
    }
    row["worth"] = worthView(spec, state, b);
  }
  return rows;
}

json slopesView(const std::vector<VarianceSlope>& slopes) {
  json rows = json::array();
  for (const VarianceSlope& slope : slopes) {
    rows.push_back({{"method", slope.method},
                    {"slope", slope.slope},
                    {"budgets", slope.budgets},
                    {"measure", wordOf(slope.measure)}});
  }
  return rows;
}

namespace {

// Returns the name of the model at a path: "organisation/name" in a cache of Hugging Face's hub
// (.../models--organisation--name/snapshots/...), else the name of its folder or file. The path
// itself is nobody's who reads a published policy.
std::string modelName(const std::string& path) {
  constexpr std::string_view kMark = "models--";
  if (const size_t at = path.find(kMark); at != path.npos) {
    const size_t begin = at + kMark.size();
    std::string name = path.substr(begin, path.find('/', begin) - begin);
    if (const size_t between = name.find("--"); between != name.npos) {
      return name.replace(between, 2, "/");
    }
  }
  const size_t end = path.find_last_not_of('/');
  if (end == path.npos) return "";
  const size_t slash = path.find_last_of('/', end);
  const size_t begin = slash == path.npos ? 0 : slash + 1;
  return path.substr(begin, end + 1 - begin);
}

// Returns what a policy was learned for: {model, method, task}.
json madeForView(const RunSnapshot& snapshot) {
  const v1::Spec& spec = snapshot.experiment.spec();
  json model = {{"name", modelName(spec.model().path())},
                {"dtype", spec.model().dtype()},
                {"kv_dtype", spec.model().kv_dtype()}};
  if (const std::string& profile = spec.model().kv_profile(); !profile.empty()) {
    model["kv_profile_sha256"] = sha256Hex(profile);
  }
  const v1::ModelFacts facts = snapshot.model.value_or(v1::ModelFacts());
  // Null in a record of an earlier build, which did not count it.
  const auto known = [](uint64_t count) { return count > 0 ? json(count) : json(); };
  if (snapshot.model) {
    model.update({{"architecture", facts.architecture()},
                  {"layers", known(facts.layers())},
                  {"heads", known(facts.heads())},
                  {"kv_heads", known(facts.kv_heads())},
                  {"head_dim", known(facts.head_dim())},
                  {"parameters", known(facts.parameters())},
                  {"weights_sha256", facts.weights_sha256()},
                  {"model_sha256", facts.model_sha256()}});
  }
  const v1::Task& task = spec.task();
  return {{"model", std::move(model)},
          {"method",
           {{"decode", spec.attention().decode()},
            {"prefill", spec.attention().prefill()},
            {"protocol", spec.attention().protocol()},
            {"zero_reads", wordOf(zeroReadsOf(spec.policy()))}}},
          {"task",
           {{"suite", task.suite()},
            {"tasks", std::vector<std::string>(task.tasks().begin(), task.tasks().end())},
            {"context_tokens", task.context_tokens()},
            {"held_out_questions", task.held_out_questions()},
            {"seed", spec.seed()},
            {"dataset_sha256", facts.dataset_sha256()}}}};
}

}  // namespace

std::string budgetUnit(const json& facts) {
  return unitOf(fromWord<Price>(facts.value("price", std::string())).value_or(Price::kReads));
}

RunView runView(const RunSnapshot& snapshot, uint64_t now_unix_ms, const std::string& run_id) {
  const v1::Spec& spec = snapshot.experiment.spec();
  uint64_t refused = 0;
  for (const auto& [kind, count] : snapshot.refused) refused += count;
  const auto& policy = snapshot.state.policy();
  const auto layers = static_cast<uint32_t>(policy.logits_size());
  json facts = {
      {"run_id", run_id},
      {"experiment", snapshot.run.experiment.name()},
      {"state", wordOf(snapshot.phase)},
      {"started_unix_ms", snapshot.run.started_unix_ms},
      {"now_unix_ms", now_unix_ms},
      // The start was read from the clock of another machine, which may be ahead.
      {"wall_seconds",
       static_cast<double>(now_unix_ms - std::min(now_unix_ms, snapshot.run.started_unix_ms)) /
           1000.0},
      {"synchronous", snapshot.run.synchronous},
      {"updates", policy.version()},
      {"max_updates", maxUpdatesOf(snapshot)},
      {"open_units", snapshot.open_units},
      {"episodes", snapshot.state.episodes()},
      {"episodes_per_second", optionalView(episodesPerSecond(snapshot))},
      {"rejected_results", refused},
      {"refused", snapshot.refused},
      {"waiting", snapshot.waiting},
      {"last_error", snapshot.last_error},
      {"edit_refused", snapshot.edit_refused},
      {"audits", snapshot.told ? snapshot.told->audits().summary() : ""},
      {"lag_histogram", lagHistogram(snapshot.state)},
      {"total_budget", spec.policy().total_budget()},
      {"price", wordOf(priceOf(spec.policy()))},
      {"layers", layers},
      {"history", historyView(snapshot.history)},
      {"workers", workersView(snapshot.workers)},
      {"settings", settingsView(snapshot.experiment)},
      {"policy_probabilities", json::array()},
      {"learned_schedule", json::array()},
      {"layer_reads", json::array()},
      {"learner", spec.has_update() ? std::string(wordOf(learnerOf(spec.update()))) : ""},
      {"granularity", std::string(wordOf(granularityOf(spec.policy())))},
      {"frontier", json::array()},
      {"model", nullptr}};
  if (layers > 0) {
    facts["policy_probabilities"] = layerShares(policy);
    const SampleSchedule published = publishedSchedule(spec, policy, spec.policy().total_budget());
    facts["learned_schedule"] = published;
    facts["layer_reads"] = layerDraws(published, layers);
    facts["frontier"] = frontierView(spec, snapshot.state);
  }
  if (snapshot.model) {
    facts["model"] = {{"architecture", snapshot.model->architecture()},
                      {"layers", snapshot.model->layers()},
                      {"heads", snapshot.model->heads()},
                      {"kv_heads", snapshot.model->kv_heads()},
                      {"head_dim", snapshot.model->head_dim()},
                      {"parameters", snapshot.model->parameters()}};
  }
  return {std::move(facts),
          evaluationPoints(snapshot),
          fidelityPoints(snapshot, Measure::kFidelity),
          fidelityPoints(snapshot, Measure::kVariance),
          varianceSlopes(snapshot.fidelity),
          spec.policy().total_budget(),
          methodsName(spec.attention()),
          madeForView(snapshot)};
}

json viewJson(const RunView& view) {
  json document = view.facts;
  const std::vector<CurveLine> lines = newestCompleteLines(view.points);
  const LearningCurve learning = learningCurve(view.points, lines, view.total_budget);
  const HeadlinePoints headline =
      headlinePoints(view.points, lines, view.total_budget, view.decode);
  document["evaluations"] = evaluationsView(view.points);
  document["lines"] = linesView(lines);
  document["learning"] = {{"lines", linesView(learning.lines)},
                          {"uniform", placeView(learning.uniform)}};
  document["headline"] = {{"learned", placeView(headline.learned)},
                          {"uniform", placeView(headline.uniform)},
                          {"dense", placeView(headline.dense)}};
  document["fidelity"] = fidelityRows(view.fidelity, fidelityView);
  document["variance"] = fidelityRows(view.variance, varianceView);
  document["variance_slopes"] = slopesView(view.slopes);
  return document;
}

}  // namespace allot
