#include "cli/history.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "aggregator/page/page.h"
#include "aggregator/page/run_view.h"
#include "aggregator/page/status_document.h"
#include "aggregator/report/report.h"
#include "cli/run_access.h"
#include "cli/run_folder.h"
#include "core/digest.h"
#include "core/printable.h"
#include "store/archive/archive.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kRuns[] = "/api/runs";
constexpr char kRun[] = "/run/";
constexpr size_t kMostDocuments = 50;  // kept; then all are dropped
constexpr size_t kIdLength = 16;

// Names come from strangers: bytes that are not UTF-8 are replaced.
std::string bytesOf(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Returns a text that changes with the export: export.json is written last, as a new file.
std::string stampOf(const std::string& folder) {
  struct stat about {};
  if (stat((folder + "/export.json").c_str(), &about) != 0) return "";
  return std::to_string(about.st_ino) + " " + std::to_string(about.st_size) + " " +
         std::to_string(about.st_mtim.tv_sec) + "." + std::to_string(about.st_mtim.tv_nsec);
}

json headFacts(const RunHead& head) {
  RunSnapshot snapshot;
  snapshot.desired = head.image.control.desired;
  snapshot.experiment = head.image.control.experiment;
  if (head.image.state) snapshot.state = *head.image.state;
  return {{"experiment", head.image.spec.experiment.name()},
          {"run_id", head.run_id},
          {"state", stateWord(snapshot, {.from = StatusReading::From::kFiles})},
          {"version", head.version()},
          {"max_updates", maxUpdatesOf(snapshot)},
          {"started_unix_ms", head.image.spec.started_unix_ms}};
}

json rowOf(const StoredRun& run) {
  json row = {{"id", run.id}, {"folder", run.name}, {"report", run.has_report}, {"problem", ""}};
  if (!run.exported) {
    row["problem"] =
        "no files of it are written yet: they come with its first evaluation and at its "
        "end, or by `allot export`";
    return row;
  }
  const auto source = ArchiveReader::open(run.folder);
  const auto head = source ? (*source)->readHead() : tl::unexpected(source.error());
  if (head) {
    row.update(headFacts(*head));
  } else {
    row["problem"] = printable(head.error().message, 500);
  }
  return row;
}

HttpReply jsonReply(std::string body) { return {200, "application/json", std::move(body)}; }

}  // namespace

const std::vector<StoredRun>& RunHistory::find() {
  runs_.clear();
  size_t folders = 0;
  findBelow(folder_, "", 0, &folders);
  return runs_;
}

void RunHistory::findBelow(const std::string& folder, const std::string& name, int depth,
                           size_t* folders) {
  if (++*folders > kMostFolders || runs_.size() >= kMostRuns) return;
  if (holdsExport(folder) || holdsRun(folder)) {
    noteRun(folder, name.empty() ? "." : name);
    return;
  }
  if (depth == kDepth) return;
  std::vector<std::string> inside;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    const bool plain = !entry->is_symlink(ignored) && entry->is_directory(ignored);
    if (plain) inside.push_back(entry->path().filename().string());
    if (inside.size() > kMostFolders) break;
  }
  std::sort(inside.begin(), inside.end());
  for (const std::string& one : inside) {
    findBelow(folder + "/" + one, name.empty() ? one : name + "/" + one, depth + 1, folders);
  }
}

void RunHistory::noteRun(const std::string& folder, const std::string& name) {
  std::error_code ignored;
  runs_.push_back({sha256Hex(folder).substr(0, kIdLength), folder, name, holdsExport(folder),
                   fs::exists(folder + "/report.html", ignored)});
}

std::string RunHistory::runsJson() {
  json rows = json::array();
  for (const StoredRun& run : find()) rows.push_back(rowOf(run));
  return bytesOf({{"folder", folder_}, {"runs", rows}, {"more", runs_.size() >= kMostRuns}});
}

Result<const RunHistory::Document*> RunHistory::read(const StoredRun& run) {
  const std::string stamp = stampOf(run.folder);
  const auto known = documents_.find(run.id);
  if (known != documents_.end() && known->second.stamp == stamp) return &known->second;
  ALLOT_ASSIGN(const auto source, ArchiveReader::open(run.folder));
  ALLOT_ASSIGN(const ReadRun made, readRun(source.get()));
  RunView view =
      runView(made.snapshot, std::max(made.last_unix_ms, made.snapshot.run.started_unix_ms),
              made.snapshot.run_id);
  const StatusReading reading{.from = StatusReading::From::kFiles,
                              .now_unix_ms = made.last_unix_ms};
  view.facts["state"] = stateWord(made.snapshot, reading);
  if (documents_.size() >= kMostDocuments) documents_.clear();
  Document& document = documents_[run.id];
  document = {stamp, bytesOf(viewJson(view)), bytesOf(statusDocument(made.snapshot, reading))};
  return &document;
}

HttpReply RunHistory::answerRun(const std::string& id, const std::string& path) {
  const auto find_run = [&] {
    return std::find_if(runs_.begin(), runs_.end(),
                        [&](const StoredRun& run) { return run.id == id; });
  };
  auto run = find_run();
  if (run == runs_.end()) {
    find();
    run = find_run();
  }
  if (run == runs_.end()) return plainText(404, "There is no such run here: the list is at /.");
  if (isReportPath(path)) return serveReport(path, run->folder);
  if (path != kViewPath && path != kStatusPath) return servePage(path, "");
  const auto document = read(*run);
  if (!document) return plainText(500, printable(document.error().message, 1000));
  return jsonReply(path == kViewPath ? (*document)->view : (*document)->status);
}

HttpReply RunHistory::answer(const HttpRequest& request) {
  const std::string& path = request.path;
  if (path == kRuns) return jsonReply(runsJson());
  if (!path.starts_with(kRun)) return serveHistoryPage(path);
  const size_t begin = std::string(kRun).size();
  const size_t end = path.find('/', begin);
  if (end == std::string::npos) return plainText(404, "A run's page is at /run/ID/.");
  return answerRun(path.substr(begin, end - begin), path.substr(end));
}

}  // namespace allot
