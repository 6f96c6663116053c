#include "cli/run_list.h"

#include <algorithm>
#include <filesystem>

#include "cli/run_status.h"
#include "cli/terminal.h"
#include "core/ulid.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kRunsFolder[] = "runs";

bool holdsSomething(const std::string& folder) { return holdsRun(folder) || holdsExport(folder); }

std::string updatesText(const RunRow& row) {
  if (row.max_updates == 0) return "-";
  return std::to_string(row.updates) + "/" + std::to_string(row.max_updates);
}

std::string ageText(const RunRow& row, uint64_t now) {
  if (row.started_unix_ms == 0) return "-";
  const uint64_t minutes = (now - std::min(now, row.started_unix_ms)) / 60'000;
  if (minutes < 60) return std::to_string(minutes) + " min";
  if (minutes < 48 * 60) return std::to_string(minutes / 60) + " h";
  return std::to_string(minutes / 60 / 24) + " d";
}

}  // namespace

Result<std::vector<std::string>> runFolders(const std::vector<std::string>& folders) {
  std::vector<std::string> named = folders;
  std::error_code ignored;
  if (named.empty() && fs::is_directory(kRunsFolder, ignored)) named = {kRunsFolder};
  std::vector<std::string> found;
  for (const std::string& folder : named) {
    ALLOT_TRY(existingFolder(folder));
    if (holdsSomething(folder)) {
      found.push_back(folder);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      // runs/latest is a link to another of these folders.
      if (entry.is_symlink(ignored) || !entry.is_directory(ignored)) continue;
      if (holdsSomething(entry.path().string())) found.push_back(entry.path().string());
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

Result<RunRow> readRunRow(RunAccess* access) {
  RunRow row;
  row.where = access->folder();
  row.run_id = access->runId();
  ALLOT_ASSIGN(const bool begun, hasBegun(access));
  if (!begun) {
    row.state = "starting";
  } else {
    ALLOT_ASSIGN(const RunStatus status, readRunState(access));
    row.run_id = status.head.run_id;
    row.experiment = status.head.image.spec.experiment.name();
    row.state = stateOf(status);
    row.updates = status.head.version();
    row.max_updates = status.maxUpdates();
    ALLOT_ASSIGN(row.accuracy, learnedAccuracy(&access->source(), status.head));
  }
  row.started_unix_ms = ulidUnixMs(row.run_id);
  return row;
}

uint64_t bytesBelow(const std::string& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored) && !it->is_symlink(ignored)) {
      const auto size = it->file_size(ignored);
      if (!ignored) bytes += size;
    }
  }
  return bytes;
}

void sortRows(std::vector<RunRow>* rows) {
  std::stable_sort(rows->begin(), rows->end(), [](const RunRow& a, const RunRow& b) {
    return a.started_unix_ms > b.started_unix_ms;
  });
}

json runListJson(const std::vector<RunRow>& rows, uint64_t now_unix_ms) {
  json runs = json::array();
  for (const RunRow& row : rows) {
    runs.push_back(
        {{"where", row.where},
         {"experiment", row.experiment},
         {"run_id", row.run_id},
         {"state", row.state},
         {"version", row.updates},
         {"max_updates", row.max_updates},
         {"accuracy", row.accuracy ? json(*row.accuracy) : json()},
         {"started_unix_ms", row.started_unix_ms > 0 ? json(row.started_unix_ms) : json()},
         {"bytes", row.bytes ? json(*row.bytes) : json()}});
  }
  return {{"runs", runs}, {"now_unix_ms", now_unix_ms}};
}

std::string runListText(const std::vector<RunRow>& rows, uint64_t now_unix_ms, bool colour) {
  TextTable table({"experiment", "run", "state", "updates", "accuracy", "age", "size", "where"});
  for (const RunRow& row : rows) {
    table.add({row.experiment.empty() ? "-" : printable(row.experiment, 40),
               printable(row.run_id, 40), printable(row.state, 20), updatesText(row),
               row.accuracy ? formatted("%.3f", *row.accuracy) : "-", ageText(row, now_unix_ms),
               row.bytes ? formatted("%.1f MiB", static_cast<double>(*row.bytes) / (1 << 20)) : "-",
               printable(row.where, 200)});
  }
  return table.text(colour);
}

}  // namespace allot
