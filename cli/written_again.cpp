#include "cli/written_again.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "aggregator/page/run_view.h"
#include "aggregator/report/report.h"
#include "cli/run_access.h"
#include "cli/terminal.h"
#include "core/files/files.h"
#include "store/archive/archive.h"
#include "store/archive/archive_csv.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr uint64_t kLargestReportFile = uint64_t{64} << 20;

// Returns a document of the report without what depends on the time of writing and on the build.
json timeless(const std::string& document) {
  json fields = json::parse(document, nullptr, false);
  if (!fields.is_object()) return nullptr;
  for (const char* key : {"state", "wall_seconds", "written_by"}) fields.erase(key);
  return fields;
}

bool isEqual(const std::string& name, const std::string& there, const std::string& again) {
  const bool document = name == "summary.json" || name == "policy.json";
  return there == again || (document && timeless(there) == timeless(again));
}

}  // namespace

WrittenAgain::Table::Table(const std::string& folder, const std::string& file_name)
    : name(file_name), file(folder + "/" + file_name, std::ios::binary), is_there(file.is_open()) {}

void WrittenAgain::Table::expect(const std::string& text) {
  if (!is_there || !equal) return;
  std::string there(text.size(), '\0');
  file.read(there.data(), static_cast<std::streamsize>(there.size()));
  equal = file.gcount() == static_cast<std::streamsize>(text.size()) && there == text;
}

bool WrittenAgain::Table::isEqual() {
  return equal && file.peek() == std::ifstream::traits_type::eof();
}

WrittenAgain::WrittenAgain(std::string folder)
    : folder_(std::move(folder)),
      updates_(folder_, "updates.csv"),
      episodes_(folder_, "episodes.csv"),
      evaluations_(folder_, "evaluations.csv") {
  episodes_.expect(archive::episodesHeader());
  evaluations_.expect(archive::evaluationsHeader());
}

void WrittenAgain::add(const v1::IterationRecord& record) {
  if (!std::exchange(updates_.begun, true)) {
    updates_.expect(archive::updatesHeader(record.policy().logits_size()));
  }
  updates_.expect(archive::updatesRow(record));
  episodes_.expect(archive::episodesRows(record));
}

void WrittenAgain::add(const v1::EvaluationResult& result) {
  evaluations_.expect(archive::evaluationsRow(result));
}

Result<std::vector<std::string>> WrittenAgain::end(const RunHead& head) {
  if (!updates_.begun) {
    const auto& state = head.image.state;
    updates_.expect(archive::updatesHeader(state ? state->policy().logits_size() : 0));
  }
  std::vector<std::string> equal;
  std::string differing;
  const auto note = [&](const std::string& name, bool is_equal) {
    if (is_equal) {
      equal.push_back(name);
    } else {
      differing += (differing.empty() ? "" : ", ") + name;
    }
  };
  for (Table* table : {&updates_, &episodes_, &evaluations_}) {
    if (table->is_there) note(table->name, table->isEqual());
  }
  ALLOT_ASSIGN(const auto files, ArchiveReader::open(folder_));
  ALLOT_ASSIGN(const ReadRun read, readRun(files.get()));
  RunView view = runView(read.snapshot, read.last_unix_ms, read.snapshot.run_id);
  if (const auto summary = readWholeFile(folder_ + "/summary.json", kLargestReportFile)) {
    const json fields = json::parse(*summary, nullptr, false);
    if (fields.is_object() && fields.contains("margin") && fields["margin"].is_number()) {
      view.margin = fields["margin"].get<double>();
    }
  }
  for (const auto& [name, again] : reportFiles(view)) {
    const std::string path = folder_ + "/" + name;
    if (!std::ifstream(path)) continue;
    ALLOT_ASSIGN(const std::string there, readWholeFile(path, kLargestReportFile));
    note(name, isEqual(name, there, again));
  }
  if (differing.empty()) return equal;
  return fail(ErrorCode::kData, "in " + folder_ + " not what the records give: " + differing +
                                    "; changed since, or written at another time: `allot export " +
                                    shellWord(folder_) +
                                    " --out NEWFOLDER` writes them from the "
                                    "records");
}

}  // namespace allot
