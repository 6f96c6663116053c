#pragma once
// What a run view says about evaluations, read back with care: numbers that workers' words have
// gone into. Pure functions, any thread.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace allot {

// The field of an object, or null.
const nlohmann::json& viewField(const nlohmann::json& object, const char* key);
// "" if it is no text.
std::string viewText(const nlohmann::json& object, const char* key);

// Graded questions of one task.
struct TaskScore {
  std::string task;
  uint64_t n = 0;
  double accuracy = 0;  // 0..1
  double low = 0;       // 95 % interval
  double high = 0;
};

// One cell of an evaluation grid, graded with the schedules of one policy version.
struct CurvePoint {
  std::string method;
  std::string schedule;       // "dense" is drawn as one dashed level, whatever its budget
  uint64_t version = 0;       // policy version
  uint64_t total_budget = 0;  // draws per head and decode step, summed over the layers
  uint64_t n = 0;             // questions graded
  double accuracy = 0;        // share of n, 0..1
  double low = 0;             // 95 % interval
  double high = 0;
  std::vector<TaskScore> tasks = {};
  // Read, of what dense attention would have read; none where it was not counted.
  std::optional<double> kv_bytes_share = {};
  std::optional<double> key_share = {};
  std::optional<double> value_rows_share = {};
};

// The well-formed rows of view["evaluations"]; others are left out. No interval: low = high =
// accuracy.
std::vector<CurvePoint> evaluationPoints(const nlohmann::json& view);

// A row is complete when it graded as many questions as any row did: all rows of a run share the
// held-out questions, and chunks of them come in one by one.

// For each method and schedule the newest version whose budgets are all complete (while there is
// none: the version with the most): one line of the curve is always one policy.
std::vector<CurvePoint> newestCompletePerSchedule(const std::vector<CurvePoint>& points);

// For each method, schedule and budget the newest complete row, or the newest one if none is.
std::vector<CurvePoint> newestCompletePerCell(const std::vector<CurvePoint>& points);

// Same-state fidelity of one cell, or of the part of it that `name` says (a layer, a number of
// tiles, a task).
struct FidelityNumbers {
  std::string name;
  uint64_t states = 0;
  double relative_error = 0;
  double rms_relative_error = 0;
  double cosine = 0;
  std::optional<double> agreement;
  double trace_covariance = 0;
  std::optional<double> estimated_error;
  double exceed_rate = 0;
  double draws = 0;
  double unique_rows = 0;
  double density = 0;
  double effective_sample_size = 0;
};

struct FidelityPoint {
  std::string method;
  std::string schedule;
  uint64_t version = 0;
  uint64_t total_budget = 0;
  double samples_per_layer = 0;  // 0: the method reads what it needs
  FidelityNumbers all;
  std::vector<FidelityNumbers> layers;
  std::vector<FidelityNumbers> supports;
  std::vector<FidelityNumbers> tasks;
};

// The newest well-formed row of view["fidelity"] for each method, schedule and budget.
std::vector<FidelityPoint> fidelityPoints(const nlohmann::json& view);

}  // namespace allot
