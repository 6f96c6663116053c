#include "cli/mlflow.h"

#include <yaml-cpp/yaml.h>

#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>

#include "aggregator/page/run_view.h"
#include "aggregator/page/status_document.h"
#include "aggregator/report/report.h"
#include "cli/run_snapshot.h"
#include "core/digest.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/files/files.h"
#include "core/printable.h"
#include "core/spec/spec_change.h"
#include "core/ulid.h"

namespace allot {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestPart = 100;
constexpr size_t kLongestParam = 5000;  // MLflow refuses params of more than 6000
constexpr char kOurTag[] = "allot.run_id";

// Of the file store's enums.
constexpr int kRunning = 1, kFinished = 3, kKilled = 5;
constexpr int kLocalSource = 4;

// Every line of a metric's file: time stamp, value, step.
using Metrics = std::map<std::string, std::string>;

void note(Metrics* metrics, const std::string& name, uint64_t unix_ms, double value,
          uint64_t step) {
  if (!std::isfinite(value)) return;
  char line[120];
  std::snprintf(line, sizeof line, "%llu %.17g %llu\n", static_cast<unsigned long long>(unix_ms),
                value, static_cast<unsigned long long>(step));
  (*metrics)[name] += line;
}

void noteUpdate(Metrics* metrics, const v1::IterationRecord& record) {
  const std::pair<const char*, double> values[] = {
      {"reward", record.mean_reward()},
      {"lag_updates", record.mean_lag_updates()},
      {"effective_sample_size_ratio", record.effective_sample_size_ratio()},
      {"step_kl_nats", record.step_kl_nats()},
      {"gradient_norm", record.gradient_norm()},
      {"entropy_nats", record.entropy_nats()}};
  for (const auto& [name, value] : values) {
    note(metrics, name, record.committed_unix_ms(), value, record.version());
  }
}

// By version, when the update was made; version 0 is the run's start.
using Times = std::map<uint64_t, uint64_t>;

void noteEvaluations(Metrics* metrics, const RunSnapshot& snapshot, const Times& times) {
  for (const CurvePoint& point : evaluationPoints(snapshot)) {
    const std::string cell = mlflowName(point.schedule) + "." + mlflowName(point.method) + ".B" +
                             std::to_string(point.total_budget);
    const auto at = times.find(point.version);
    const uint64_t when = at == times.end() ? snapshot.run.started_unix_ms : at->second;
    note(metrics, "accuracy." + cell, when, point.accuracy, point.version);
    note(metrics, "accuracy_low." + cell, when, point.low, point.version);
    note(metrics, "accuracy_high." + cell, when, point.high, point.version);
    if (point.kv_bytes_share) {
      note(metrics, "kv_bytes_share." + cell, when, *point.kv_bytes_share, point.version);
    }
  }
}

// One line, for MLflow reads values by lines.
std::string valueOf(const std::string& text) { return printable(text, kLongestParam); }

Status writeAll(const std::string& folder, const std::map<std::string, std::string>& files) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return fail(ErrorCode::kIo, "cannot make " + folder + ": " + error.message());
  for (const auto& [name, text] : files) ALLOT_TRY(writeWholeFile(folder + "/" + name, text));
  return {};
}

// What has to be escaped in a file's URI.
std::string fileUri(const std::string& path) {
  std::string uri = "file://";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::string("/-_.~").find(c) != std::string::npos) {
      uri += c;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "%%%02X", byte);
      uri += escaped;
    }
  }
  return uri;
}

// Keys in MLflow's order; every text in quotes.
class Meta {
 public:
  Meta() { out_ << YAML::BeginMap; }
  Meta& text(const char* key, const std::string& value) {
    out_ << YAML::Key << key << YAML::Value << YAML::DoubleQuoted << value;
    return *this;
  }
  template <typename Number>
  Meta& number(const char* key, Number value) {
    out_ << YAML::Key << key << YAML::Value << value;
    return *this;
  }
  std::string yaml() {
    out_ << YAML::EndMap;
    return std::string(out_.c_str()) + "\n";
  }

 private:
  YAML::Emitter out_;
};

// As MLflow numbers them: digits alone, and the same for the same name.
std::string experimentId(const std::string& name) {
  const uint64_t number = std::stoull(sha256Hex(name).substr(0, 15), nullptr, 16);
  return std::to_string(100'000'000'000'000'000 + number % 800'000'000'000'000'000);
}

std::string runName(const std::string& run_id) {
  return isUlid(run_id) ? run_id : sha256Hex(run_id).substr(0, 32);
}

int statusOf(const RunSnapshot& snapshot) {
  if (snapshot.desired == Desired::kFinished) return kFinished;
  return snapshot.desired == Desired::kStopped ? kKilled : kRunning;
}

Status writeExperiment(const std::string& folder, const std::string& id,
                       const RunSnapshot& snapshot) {
  std::error_code error;
  if (fs::exists(folder + "/meta.yaml", error)) return {};
  const uint64_t begun = snapshot.run.started_unix_ms;
  Meta meta;
  meta.text("artifact_location", fileUri(folder))
      .number("creation_time", begun)
      .text("experiment_id", id)
      .number("last_update_time", begun)
      .text("lifecycle_stage", "active")
      .text("name", printable(snapshot.run.experiment.name(), kLongestPart));
  return writeAll(folder, {{"meta.yaml", meta.yaml()}});
}

Status writeRunMeta(const std::string& folder, const std::string& experiment_id,
                    const std::string& id, const ReadRun& read) {
  Meta meta;
  meta.text("artifact_uri", fileUri(folder + "/artifacts"));
  const bool over = statusOf(read.snapshot) != kRunning && read.last_unix_ms > 0;
  if (over) meta.number("end_time", read.last_unix_ms);
  meta.text("entry_point_name", "")
      .text("experiment_id", experiment_id)
      .text("lifecycle_stage", "active")
      .text("run_id", id)
      .text("run_name", printable(read.snapshot.run_id, kLongestPart))
      .text("run_uuid", id)
      .text("source_name", "")
      .number("source_type", kLocalSource)
      .text("source_version", "")
      .number("start_time", read.snapshot.run.started_unix_ms)
      .number("status", statusOf(read.snapshot))
      .text("user_id", "allot");
  return writeAll(folder, {{"meta.yaml", meta.yaml()}});
}

Status writeTags(const std::string& folder, const RunSnapshot& snapshot) {
  const StatusReading reading{.from = StatusReading::From::kFiles};
  return writeAll(folder, {{kOurTag, valueOf(snapshot.run_id)},
                           {"allot.experiment", valueOf(snapshot.run.experiment.name())},
                           {"allot.state", stateWord(snapshot, reading)},
                           {"allot.build", valueOf(snapshot.run.build)},
                           {"allot.episodes", std::to_string(snapshot.state.episodes())},
                           {"mlflow.runName", valueOf(snapshot.run_id)},
                           {"mlflow.source.name", "allot"},
                           {"mlflow.source.type", "LOCAL"},
                           {"mlflow.user", "allot"}});
}

// The folder of the run, empty; what an earlier export left there is gone.
Status clearRun(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return {};
  if (!fs::exists(folder + "/tags/" + kOurTag, error)) {
    return badInput(folder + " holds a run that `allot export` did not write: name another folder");
  }
  fs::remove_all(folder, error);
  if (error) return fail(ErrorCode::kIo, "cannot replace " + folder + ": " + error.message());
  return {};
}

std::map<std::string, std::string> paramsOf(const nlohmann::json& facts) {
  std::map<std::string, std::string> params;
  for (const auto& row : facts["settings"]) {
    params[mlflowName(row[0].get<std::string>())] = valueOf(row[1].get<std::string>());
  }
  return params;
}

}  // namespace

std::string mlflowName(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' ||
                       (c == '.' && !name.empty() && name.back() != '.');
    name += plain ? c : '_';
  }
  if (name == text && !text.empty() && text.size() <= kLongestPart) return name;
  // What was replaced or cut may have been all that told two of them apart.
  const std::string tail = "_" + sha256Hex(text).substr(0, 6);
  return name.substr(0, kLongestPart - tail.size()) + tail;
}

Result<MlflowSummary> exportMlflow(RunSource* source, const std::string& dir) {
  Metrics metrics;
  Times times;
  ALLOT_ASSIGN(const ReadRun read, readRun(source, [&](const v1::IterationRecord& record) {
                 noteUpdate(&metrics, record);
                 times[record.version()] = record.committed_unix_ms();
               }));
  const RunSnapshot& snapshot = read.snapshot;
  noteEvaluations(&metrics, snapshot, times);
  std::error_code error;
  fs::create_directories(dir, error);
  const fs::path root = error ? fs::path() : fs::canonical(dir, error);
  if (error) return fail(ErrorCode::kIo, "cannot make " + dir + ": " + error.message());
  const std::string id = runName(snapshot.run_id);
  const std::string experiment_id = experimentId(snapshot.run.experiment.name());
  const std::string experiment = root.string() + "/" + experiment_id;
  MlflowSummary summary{.folder = experiment + "/" + id, .metrics = metrics.size()};
  ALLOT_TRY(writeExperiment(experiment, experiment_id, snapshot));
  ALLOT_TRY(clearRun(summary.folder));
  // The mark of ours comes first, so that an export that was cut short can be replaced.
  ALLOT_TRY(writeTags(summary.folder + "/tags", snapshot));
  const RunView view = runView(snapshot, read.last_unix_ms, snapshot.run_id);
  const auto params = paramsOf(view.facts);
  summary.params = params.size();
  ALLOT_TRY(writeAll(summary.folder + "/params", params));
  ALLOT_TRY(writeAll(summary.folder + "/metrics", metrics));
  ALLOT_TRY(writeReport(summary.folder + "/artifacts", view));
  ALLOT_TRY(writeAll(summary.folder + "/artifacts",
                     {{"experiment.yaml", experimentYaml(snapshot.run.experiment)}}));
  // Without it there is no run.
  ALLOT_TRY(writeRunMeta(summary.folder, experiment_id, id, read));
  return summary;
}

}  // namespace allot
