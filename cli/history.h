#pragma once
// RunHistory: the replies of `allot serve`, for the runs in a folder: a list, a comparison of their
// curves, and each run's page and report. Needs neither Redis nor a cluster. One thread.
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/telemetry/http_server.h"

namespace allot {

// A folder with a run or an export: the served folder, or one below it.
struct StoredRun {
  std::string id;      // 16 hex digits of the SHA-256 of `folder`, for addresses
  std::string folder;  // absolute
  std::string name;    // path below the served folder, or "."; any bytes
  bool exported = false;
  bool has_report = false;
};

class RunHistory {
 public:
  // Limits of the scan: depth, folders, runs.
  static constexpr int kDepth = 3;
  static constexpr size_t kMostFolders = 20'000;
  static constexpr size_t kMostRuns = 1'000;

  // folder: absolute.
  explicit RunHistory(std::string folder) : folder_(std::move(folder)) {}

  // Scans the folder again, but nothing below a run. Links are not followed: `latest` leads to a
  // run that is found anyway.
  const std::vector<StoredRun>& find();

  // Serves / with its scripts and styles, /api/runs, and below /run/ID/ what the run's aggregator
  // would serve: page, api/run, api/status, report/.
  HttpReply answer(const HttpRequest& request);

 private:
  // The results of a run, as read from its files.
  struct Document {
    std::string stamp;  // of export.json; a new stamp makes read() read the files again
    std::string view;
    std::string status;
  };

  void findBelow(const std::string& folder, const std::string& name, int depth, size_t* folders);
  void noteRun(const std::string& folder, const std::string& name);
  std::string runsJson();
  HttpReply answerRun(const std::string& id, const std::string& path);
  Result<const Document*> read(const StoredRun& run);

  const std::string folder_;
  std::vector<StoredRun> runs_;
  std::map<std::string, Document> documents_;  // by id
};

}  // namespace allot
