#pragma once
// A run view with known numbers for the page's tests: a run in its 137th update, with hostile
// names among its workers. Pure, any thread.
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "aggregator/page/run_view.h"

namespace allot {

inline nlohmann::json sampleHistory(int updates) {
  nlohmann::json history = nlohmann::json::array();
  for (int v = 1; v <= updates; ++v) {
    const double noise = std::sin(v * 12.9898) * 0.5 + std::sin(v * 3.71) * 0.5;
    const double reward = 0.44 + 0.2 * (1 - std::exp(-v / 45.0)) + 0.025 * noise;
    history.push_back({{"version", v},
                       {"mean_reward", reward},
                       {"mean_baseline", reward - 0.003},
                       {"gradient_norm", 0.1},
                       {"step_kl", 0.0004 * std::exp(-v / 60.0) * (1 + 0.3 * noise)},
                       {"entropy", 2.07 - v * 0.003},
                       {"ess", 0.985 - 0.02 * std::abs(noise)},
                       {"lag", 0.5 + 0.4 * std::abs(std::sin(v * 1.7))}});
  }
  return history;
}

inline CurvePoint sampleCell(const std::string& method, const std::string& schedule,
                             uint64_t version, uint64_t budget, double accuracy, uint64_t n = 480) {
  const double half = 1.96 * std::sqrt(accuracy * (1 - accuracy) / static_cast<double>(n));
  CurvePoint point{method, schedule, version,         budget,
                   n,      accuracy, accuracy - half, accuracy + half};
  point.answer_tokens = 6.5;
  point.prompt_tokens = 511.5;
  point.interval = "wilson";
  return point;
}

// Of a run with repeats: what is known on the same questions.
inline void compareSample(CurvePoint* point, double uniform, double dense) {
  const auto over = [&](double other) {
    const double mean = point->accuracy - other;
    return PairedDifference{mean,
                            {mean - 0.0313, mean + 0.0313, "bootstrap"},
                            point->n,
                            0.001,
                            mean > 0.1 ? 0.04 : 0.06,
                            11};
  };
  point->repeats = 3;
  point->repeat_sd = 0.0125;
  point->over_dense = over(dense);
  if (point->schedule == "learned") point->over_uniform = over(uniform);
}

inline std::vector<CurvePoint> sampleEvaluations() {
  std::vector<CurvePoint> rows;
  rows.push_back(sampleCell("dense", "dense", 0, 0, 0.91));
  const uint64_t budgets[] = {8, 16, 32, 64, 128};
  const double uniform[] = {0.46, 0.581, 0.714, 0.803, 0.866};
  const double learned[] = {0.632, 0.727, 0.806, 0.858, 0.891};
  for (int i = 0; i < 5; ++i) {
    rows.push_back(sampleCell("s2anta-sys", "uniform", 0, budgets[i], uniform[i]));
    compareSample(&rows.back(), uniform[i], rows.front().accuracy);
    for (uint64_t version = 25; version <= 125; version += 25) {
      const double share = 1 - std::exp(-static_cast<double>(version) / 50.0);
      const double accuracy = uniform[i] + share * (learned[i] - uniform[i]);
      // The newest version is still being graded: the page must not show it yet.
      const uint64_t n = version == 125 && i > 1 ? 96 : 480;
      rows.push_back(sampleCell("s2anta-sys", "learned", version, budgets[i], accuracy, n));
      compareSample(&rows.back(), uniform[i], rows.front().accuracy);
    }
  }
  return rows;
}

// What one read in each layer is worth at the first total budget.
inline nlohmann::json sampleEvidence(double mean, double low, double high) {
  return {{"confirmation", 2}, {"version", 30}, {"questions", 152}, {"lost", 0},
          {"mean", mean},      {"low", low},    {"high", high},     {"error", 0.0083}};
}

inline nlohmann::json sampleWorths() {
  nlohmann::json worths;
  for (const double mean : {0.01, 0.31, -0.02, 0.0, 0.27, 0.2, 0.06, -0.04}) {
    worths.push_back({{"reads", 1}, {"mean", mean}, {"low", mean - 0.07}, {"high", mean + 0.07}});
  }
  return worths;
}

inline RunView sampleView() {
  const int64_t now = 1735689600000;
  nlohmann::json workers = nlohmann::json::array();
  const char* names[] = {"recall-layer-budget-worker-6d9f8c7b5-2xkqp",
                         "recall-layer-budget-worker-6d9f8c7b5-9lmzt",
                         "<img src=x onerror=alert(1)></script><!--<script>alert(2)</script>"};
  for (int i = 0; i < 3; ++i) {
    workers.push_back({{"worker", names[i]},
                       {"state", i == 1 ? "evaluation" : "rollout"},
                       {"last_error", ""},
                       {"device", i == 0 ? "NVIDIA H200" : "cpu"},
                       {"policy_version", 136 - i},
                       {"episodes", 480 - 7 * i},
                       {"seen_unix_ms", now - 1200 - (i == 2 ? 45000 : 0)}});
  }
  for (const char* state : {"loading 3.1 of 16.1 GB", "failed"}) {
    workers.push_back(workers[0]);
    workers.back()["worker"] = "recall-layer-budget-worker-6d9f8c7b5-" + std::string(state, 5);
    workers.back()["state"] = state;
    workers.back()["last_error"] = "spec.model.path: there is no folder <b>x</b>";
    workers.back()["seen_unix_ms"] = now - (state[0] == 'f' ? 140'000 : 900);
  }
  nlohmann::json facts = {
      {"run_id", "01JGFJJZ005QXH2M4N6P7R8S9T"},
      {"experiment", "recall-layer-budget"},
      {"state", "running"},
      {"started_unix_ms", now - 743000},
      {"now_unix_ms", now},
      {"wall_seconds", 743.2},
      {"synchronous", false},
      {"updates", 137},
      {"max_updates", 150},
      {"open_units", 1},
      {"episodes", 1370},
      {"episodes_per_second", 12.34},
      {"waiting", ""},
      {"last_error", "refused result w-9: there are 3 scores instead of 16 <b>bold</b>"},
      {"audits", "41 of 2,013 answers, all equal"},
      {"edit_refused", "spec.policy.totalBudget cannot change from 8 to 16 <i>in</i> a run"},
      {"refused", {{"undecodable", 1}, {"oversized", 0}, {"invalid", 12}, {"stale", 1048}}},
      {"lag_histogram",
       {{{"lag", "0"}, {"results", 611}},
        {{"lag", "1"}, {"results", 702}},
        {{"lag", "2"}, {"results", 51}},
        {{"lag", "3-4"}, {"results", 6}}}},
      {"total_budget", 8},
      {"layers", 8},
      {"history", sampleHistory(137)},
      {"policy_probabilities", {0.02, 0.31, 0.06, 0.04, 0.27, 0.22, 0.05, 0.03}},
      {"learner", "additive"},
      {"granularity", "layer"},
      {"learned_schedule", {0, 3, 0, 0, 2, 2, 1, 0}},
      {"layer_reads", {0, 3, 0, 0, 2, 2, 1, 0}},
      {"frontier",
       {{{"total_budget", 8},
         {"learned_schedule", {0, 3, 0, 0, 2, 2, 1, 0}},
         {"layer_reads", {0, 3, 0, 0, 2, 2, 1, 0}},
         {"worth", sampleWorths()},
         {"beats_uniform", true},
         {"claim", sampleEvidence(0.314, 0.121, 0.487)},
         {"candidate", nullptr}},
        {{"total_budget", 32},
         {"learned_schedule", {4, 4, 4, 4, 4, 4, 4, 4}},
         {"layer_reads", {4, 4, 4, 4, 4, 4, 4, 4}},
         {"beats_uniform", false},
         {"claim", nullptr},
         {"candidate", sampleEvidence(-0.012, -0.205, 0.183)}},
        {{"total_budget", 128},
         {"learned_schedule", {7, 24, 16, 6, 32, 21, 14, 8}},
         {"layer_reads", {7, 24, 16, 6, 32, 21, 14, 8}},
         {"rival", "uniform"},
         {"published", "measured"},
         {"beats_uniform", false},
         {"claim", nullptr},
         {"candidate", nullptr}}}},
      {"workers", workers},
      {"model",
       {{"architecture", "LlamaForCausalLM"},
        {"layers", 8},
        {"heads", 8},
        {"kv_heads", 2},
        {"head_dim", 64},
        {"parameters", 6800000}}},
      {"settings",
       nlohmann::json::array(
           {nlohmann::json::array({"spec.seed", "7"}),
            nlohmann::json::array({"spec.model.path", "experiments/models/recall-7m"}),
            nlohmann::json::array({"spec.task.tasks", "[\"niah\",\"multi\",\"track\",\"freq\"]"}),
            nlohmann::json::array({"spec.attention.decode", "s2anta-sys"}),
            nlohmann::json::array({"spec.policy.totalBudget", "8"})})}};
  return {facts, sampleEvaluations(), {}, {}, {}, 8, "s2anta-sys"};
}

// The same run before anything has happened.
inline RunView emptyView() {
  RunView view = sampleView();
  nlohmann::json& facts = view.facts;
  facts["state"] = "starting";
  for (const char* key : {"updates", "episodes", "episodes_per_second", "layers", "open_units"})
    facts[key] = 0;
  for (const char* key : {"history", "policy_probabilities", "learned_schedule", "layer_reads",
                          "frontier", "workers"}) {
    facts[key] = nlohmann::json::array();
  }
  facts["waiting"] = "no worker has loaded the model yet (no worker is alive)";
  facts["edit_refused"] = facts["audits"] = "";
  facts["refused"] = nlohmann::json::object();
  facts["lag_histogram"] = nlohmann::json::array();
  facts["model"] = nullptr;
  view.points.clear();
  return view;
}

// The run finished, or after somebody has extended it.
inline RunView extendedView(bool extended) {
  RunView view = sampleView();
  view.facts["state"] = extended ? "running" : "finished";
  view.facts["max_updates"] = extended ? 150 : 137;
  return view;
}

// A grid of several methods and schedules, without updates.
inline RunView sweepView() {
  RunView view = emptyView();
  view.facts["state"] = "finished";
  view.facts["waiting"] = "";
  view.facts["max_updates"] = 0;
  view.points.push_back(sampleCell("dense", "dense", 0, 0, 0.91));
  const char* methods[] = {"s2anta-sys", "santa", "top-k"};
  for (int m = 0; m < 3; ++m) {
    for (int budget = 16; budget <= 4096; budget *= 4) {
      const double accuracy = 0.9 - (0.3 + 0.1 * m) * std::sqrt(16.0 / budget);
      view.points.push_back(
          sampleCell(methods[m], "uniform", 0, static_cast<uint64_t>(budget), accuracy));
      compareSample(&view.points.back(), 0, 0.91);
    }
  }
  return view;
}

// A grid whose prompts are read in four ways, one of which draws.
inline RunView prefillsView() {
  RunView view = sweepView();
  view.facts["experiment"] = "recall-prefills";
  view.points.clear();
  const std::pair<std::string, double> ways[] = {
      {"dense", 1.0}, {"sale denseKeys=0 tau=0.1", 0.62}, {"sampled-blocks", 0.4}};
  for (const auto& one : ways) {
    const std::string& way = one.first;
    const double density = one.second;
    const bool dense = way == "dense", draws = way == "sampled-blocks";
    const auto add = [&](const std::string& method, uint64_t budget, double accuracy) {
      const std::string name = dense ? method : way + (" + " + method);
      const char* schedule = budget > 0 ? "uniform" : dense ? "dense" : "adaptive";
      CurvePoint point = sampleCell(name, schedule, 0, budget, accuracy);
      point.prefill = way;
      point.prefill_density = draws ? density + static_cast<double>(budget) / 1000 : density;
      point.prefill_bytes_share = (1 + *point.prefill_density) / 2;
      point.prefill_seconds = 0.3;
      point.prefill_selection_seconds = dense ? 0 : 0.05;
      if (!dense && !draws) point.prefill_kept_mass = 0.84;
      view.points.push_back(point);
    };
    for (int budget = 16; budget <= 256; budget *= 4) {
      const double accuracy = 0.6 + 0.2 * density + budget / 4096.0;
      add("s2anta-sys", static_cast<uint64_t>(budget), accuracy);
      if (draws) add("dense", static_cast<uint64_t>(budget), accuracy + 0.02);
    }
    if (!draws) add("dense", 0, 0.7 + 0.21 * density);
  }
  return view;
}

inline FidelityNumbers sampleNumbers(const std::string& name, double samples, double error,
                                     double density, double factor) {
  FidelityNumbers numbers;
  numbers.name = name;
  numbers.states = 4800;
  numbers.relative_error = error * factor;
  numbers.rms_relative_error = error * factor * 1.2;
  numbers.cosine = 1 - error * error * factor / 2;
  numbers.agreement = 1 - error * factor / 4;
  numbers.trace_covariance = error * error * factor;
  numbers.exceed_rate = 0.021;
  numbers.draws = samples;
  numbers.unique_rows = 512 * density;
  numbers.density = density;
  numbers.effective_sample_size = samples * 0.9;
  return numbers;
}

inline FidelityPoint sampleFidelity(const std::string& method, double samples, double error,
                                    double density) {
  const auto numbers = [&](const std::string& name, double factor) {
    return sampleNumbers(name, samples, error, density, factor);
  };
  FidelityPoint point;
  point.method = method;
  point.schedule = samples > 0 ? "uniform" : "adaptive";
  point.total_budget = static_cast<uint64_t>(8 * samples);
  point.reads_per_layer = samples;
  point.questions = 64;
  point.all = numbers("", 1);
  for (int layer = 0; layer < 8; ++layer) {
    point.layers.push_back(numbers(std::to_string(layer), 0.4 + 0.2 * layer));
  }
  for (const char* tiles : {"1", "2", "3-4", "5-8", "9+"}) {
    point.supports.push_back(
        numbers(tiles, 0.5 + 0.2 * static_cast<double>(point.supports.size())));
  }
  return point;
}

// Many methods with parameters, by task, with what they read, one-hot schedules and fidelity.
inline RunView methodsView() {
  RunView view = sweepView();
  view.facts["experiment"] = "recall-methods";
  view.points.clear();
  const auto add = [&](const std::string& method, const std::string& schedule, int budget,
                       double accuracy, double share) {
    CurvePoint point = sampleCell(method, schedule, 0, static_cast<uint64_t>(budget), accuracy);
    point.kv_bytes_share = share;
    point.key_share = 2 * share - share * share;
    point.value_rows_share = share * share;
    double task_accuracy = accuracy;
    for (const char* task : {"freq", "multi", "niah", "track"}) {
      const CurvePoint score = sampleCell(method, schedule, 0, 0, task_accuracy, 120);
      point.tasks.push_back({task, score.n, score.accuracy, score.low, score.high});
      task_accuracy += (1 - task_accuracy) / 4;
    }
    view.points.push_back(point);
  };
  add("dense", "dense", 0, 0.91, 1);
  const char* const methods[] = {"bernoulli featureSamples=4 meanGroupQuery=true values=s2anta-sys",
                                 "quest",
                                 "s2anta-flash tileSize=64",
                                 "s2anta-prop",
                                 "s2anta-q4",
                                 "s2anta-strat",
                                 "s2anta-sys",
                                 "santa",
                                 "top-k"};
  for (size_t m = 0; m < std::size(methods); ++m) {
    const auto place = static_cast<double>(m);
    for (int budget = 8; budget <= 2048; budget *= 2) {
      const double error = (0.3 + 0.05 * place) * std::sqrt(16.0 / (8 + budget));
      add(methods[m], "uniform", budget, 0.9 - error, 0.5 + 0.02 * place + budget / 8192.0);
      view.fidelity.push_back(
          sampleFidelity(methods[m], budget / 8.0, error, 1 - std::exp(-budget / 1024.0)));
    }
  }
  const std::pair<const char*, double> epsilons[] = {
      {" epsilon=0.025", 0.025}, {"", 0.05}, {" epsilon=0.1", 0.1}, {" epsilon=0.2", 0.2}};
  for (const auto& [text, epsilon] : epsilons) {
    const std::string method = "vattention heavy=0.025" + std::string(text) + " delta=0.1";
    add(method, "adaptive", 0, 0.91 - epsilon / 3, 0.6 - epsilon);
    view.fidelity.push_back(sampleFidelity(method, 0, epsilon * 0.7, 0.4 - epsilon));
  }
  for (int layer = 0; layer < 8; ++layer) {
    add("s2anta-sys", "oneHot-0" + std::to_string(layer), 512, 0.6 + 0.03 * layer, 0.6);
  }
  view.slopes = {{"santa", -1.0, 8}, {"s2anta-sys", -1.41, 8}};
  return view;
}

}  // namespace allot
