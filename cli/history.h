#pragma once
// RunHistory: the runs that a folder holds as files, over HTTP: a list, a comparison of their
// curves, and each run's page and report. Neither Redis nor a cluster is needed. One thread.
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/telemetry/http_server.h"

namespace allot {

// A folder below the one served that holds a run or an export.
struct StoredRun {
  std::string id;      // of its path: letters and digits, for addresses
  std::string folder;  // absolute
  std::string name;    // below the one served; may hold anything
  bool exported = false;
  bool has_report = false;
};

class RunHistory {
 public:
  // What it looks at: so deep, and at most so many folders and runs.
  static constexpr int kDepth = 3;
  static constexpr size_t kMostFolders = 20'000;
  static constexpr size_t kMostRuns = 1'000;

  // folder: absolute.
  explicit RunHistory(std::string folder) : folder_(std::move(folder)) {}

  // Looks at the folder again. Links are not followed: `latest` is one of the others.
  const std::vector<StoredRun>& find();

  // /, its parts, /api/runs, and below /run/ID/ what a run's aggregator serves: page, /api/run,
  // /api/status, /report/.
  HttpReply answer(const HttpRequest& request);

 private:
  // What a run came to, as read from its files.
  struct Document {
    std::string stamp;  // of the files: another one, and they are read again
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
