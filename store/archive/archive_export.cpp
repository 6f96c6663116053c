#include <filesystem>
#include <system_error>
#include <unordered_set>

#include "allot/v1/archive.pb.h"
#include "store/archive/archive.h"
#include "store/archive/archive_csv.h"
#include "store/archive/archive_files.h"
#include "store/archive/exact_json.h"

namespace allot {
namespace {

namespace fs = std::filesystem;

// Bytes of lines that are appended at once, about.
constexpr size_t kAppendBytes = 4 << 20;

// Returns true if the records are equal as JSON, which has no unknown fields.
bool sameRecord(v1::IterationRecord a, v1::IterationRecord b) {
  a.DiscardUnknownFields();
  b.DiscardUnknownFields();
  return a.SerializeAsString() == b.SerializeAsString();
}

// history.jsonl, which only grows.
class HistoryFile {
 public:
  // Opens or creates it; an unfinished last line is dropped.
  static Result<HistoryFile> open(const std::string& path);

  uint64_t lastVersion() const { return last_ ? last_->version() : 0; }
  // Appends those records that are newer than lastVersion(). kUsage if the record of lastVersion()
  // differs from the file's, or an update would be missing in between.
  Status append(const std::vector<v1::IterationRecord>& records);
  Status sync() { return file_.sync(); }

 private:
  explicit HistoryFile(LineFile file) : file_(std::move(file)) {}
  tl::unexpected<Error> otherRun(uint64_t version) const;

  LineFile file_;
  std::optional<v1::IterationRecord> last_;
};

Result<HistoryFile> HistoryFile::open(const std::string& path) {
  ALLOT_ASSIGN(LineFile lines, LineFile::open(path));
  HistoryFile file(std::move(lines));
  ALLOT_ASSIGN(const auto line, file.file_.lastLine());
  if (!line) return file;
  v1::IterationRecord record;
  const Status parsed = parseExactJson(*line, &record);
  if (!parsed || record.version() == 0) {
    return fail(ErrorCode::kData,
                path + ": the last line " + (parsed ? "names no update" : parsed.error().message));
  }
  file.last_ = std::move(record);
  return file;
}

tl::unexpected<Error> HistoryFile::otherRun(uint64_t version) const {
  return badInput(file_.path() + " holds another update " + std::to_string(version) +
                  ": it is of another run, or the run was set back; move it away");
}

Status HistoryFile::append(const std::vector<v1::IterationRecord>& records) {
  std::string lines;
  const v1::IterationRecord* last = nullptr;
  const auto write = [&]() -> Status {
    if (!last) return {};
    ALLOT_TRY(file_.append(lines));
    last_ = *last;
    lines.clear();
    last = nullptr;
    return {};
  };
  for (const v1::IterationRecord& record : records) {
    const uint64_t have = last ? last->version() : lastVersion();
    if (record.version() == lastVersion() && last_ && !sameRecord(*last_, record))
      return otherRun(have);
    if (record.version() <= have) continue;
    if (record.version() != have + 1) {
      return badInput(file_.path() + " ends with update " + std::to_string(have) + ", and update " +
                      std::to_string(record.version()) + " cannot follow it: move it away");
    }
    ALLOT_ASSIGN(const std::string line, exactJson(record));
    if (line.size() > archive::kLongestRecord) {
      return badInput(file_.path() + ": update " + std::to_string(record.version()) + " has " +
                      std::to_string(line.size()) + " bytes as JSON, more than the " +
                      std::to_string(archive::kLongestRecord) +
                      " that are read: let an update have fewer episodes or questions");
    }
    lines += line + "\n";
    last = &record;
    if (lines.size() > kAppendBytes) ALLOT_TRY(write());
  }
  return write();
}

// Checks that the folder has no export, or one of this run.
Status checkFolder(const std::string& folder, const std::string& run_id) {
  const std::string path = folder + "/" + archive::kExportFile;
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  ALLOT_ASSIGN(const std::string text, readWholeFile(path, archive::kLargestExportFile));
  v1::RunExport earlier;
  const bool known = parseExactJson(text, &earlier).has_value();
  if (known && earlier.run_id() == run_id) return {};
  return badInput(folder + " holds the export of " +
                  (known ? "run " + earlier.run_id() : std::string("something else")) +
                  ": choose another folder");
}

v1::RunExport exportOf(const RunHead& head) {
  v1::RunExport exported;
  exported.set_format(archive::kFormat);
  exported.set_run_id(head.run_id);
  const RunSpec& spec = head.image.spec;
  *exported.mutable_experiment() = spec.experiment;
  exported.set_experiment_sha256(spec.sha256);
  exported.set_synchronous(spec.synchronous);
  exported.set_started_unix_ms(spec.started_unix_ms);
  if (spec.origin) *exported.mutable_origin() = *spec.origin;
  exported.set_arithmetic(spec.arithmetic);
  const Control& control = head.image.control;
  exported.set_desired(std::string(wordOf(control.desired)));
  *exported.mutable_experiment_in_force() = control.experiment;
  *exported.mutable_experiment_file() = control.file;
  exported.set_control_revision(control.revision);
  if (head.image.model) *exported.mutable_model() = *head.image.model;
  if (head.image.state) *exported.mutable_state() = *head.image.state;
  exported.set_policy_sha256(head.policy_sha256);
  exported.set_next_ticket(head.image.next_ticket);
  for (const auto& unit : head.image.open_units) *exported.add_open_units() = unit;
  for (const auto& [kind, count] : head.refused) {
    auto* refused = exported.add_refused();
    refused->set_kind(kind);
    refused->set_count(count);
  }
  exported.set_waiting_results(head.waiting_results);
  exported.set_schema(spec.schema);
  exported.set_build(spec.build);
  return exported;
}

Status exportHistory(RunSource* source, const RunHead& head, const std::string& folder,
                     HistoryFile* history, const ArchiveProgress& progress, ExportSummary* summary,
                     archive::ChainDigest* digest) {
  ALLOT_ASSIGN(WholeFile updates, WholeFile::create(folder + "/updates.csv"));
  ALLOT_ASSIGN(WholeFile episodes, WholeFile::create(folder + "/episodes.csv"));
  const int layers = head.image.state ? head.image.state->policy().logits_size() : 0;
  ALLOT_TRY(updates.write(archive::updatesHeader(layers)));
  ALLOT_TRY(episodes.write(archive::episodesHeader()));
  const uint64_t had = history->lastVersion();
  while (true) {
    ALLOT_ASSIGN(const auto records, source->nextRecords());
    if (records.empty()) break;
    ALLOT_TRY(history->append(records));
    for (const v1::IterationRecord& record : records) {
      ++summary->updates;
      digest->add(record);
      summary->results += static_cast<uint64_t>(record.results_size());
      ALLOT_TRY(updates.write(archive::updatesRow(record)));
      ALLOT_TRY(episodes.write(archive::episodesRows(record)));
    }
    if (progress) progress(records.back().version(), head.version());
  }
  if (history->lastVersion() > head.version()) {
    return badInput(folder + "/" + archive::kHistoryFile + " holds update " +
                    std::to_string(history->lastVersion()) + ", the run only " +
                    std::to_string(head.version()) +
                    ": it is of another run, or the run was set back; choose another folder");
  }
  ALLOT_TRY(history->sync());  // before export.json, which names the last update
  summary->new_updates = head.version() - had;
  ALLOT_TRY(updates.commit());
  return episodes.commit();
}

// Writes the evaluations. Removes recorded units from the head's open ones.
Status exportEvaluations(RunSource* source, const std::string& folder, RunHead* head,
                         ExportSummary* summary, archive::ChainDigest* digest) {
  ALLOT_ASSIGN(WholeFile lines, WholeFile::create(folder + "/" + archive::kEvaluationsFile));
  ALLOT_ASSIGN(WholeFile table, WholeFile::create(folder + "/evaluations.csv"));
  ALLOT_TRY(table.write(archive::evaluationsHeader()));
  std::unordered_set<std::string> open;
  for (const auto& unit : head->image.open_units) open.insert(unit.unit_id());
  while (true) {
    ALLOT_ASSIGN(const auto results, source->nextEvaluations());
    if (results.empty()) break;
    for (const v1::EvaluationResult& result : results) {
      ++summary->evaluations;
      digest->add(result);
      open.erase(result.unit().unit_id());
      ALLOT_ASSIGN(const std::string line, exactJson(result));
      ALLOT_TRY(lines.write(line + "\n"));
      ALLOT_TRY(table.write(archive::evaluationsRow(result)));
    }
  }
  std::erase_if(head->image.open_units,
                [&](const v1::EvaluationUnit& unit) { return !open.contains(unit.unit_id()); });
  ALLOT_TRY(lines.commit());
  return table.commit();
}

}  // namespace

Result<ExportSummary> exportRun(RunSource* source, const std::string& folder,
                                const ArchiveProgress& progress) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return fail(ErrorCode::kIo, "cannot make " + folder + ": " + error.message());
  // Opened first: the open file locks out other exports into the folder.
  ALLOT_ASSIGN(HistoryFile history, HistoryFile::open(folder + "/" + archive::kHistoryFile));
  ALLOT_ASSIGN(RunHead head, source->readHead());
  ALLOT_TRY(checkFolder(folder, head.run_id));
  source->askForAnswers();
  ExportSummary summary;
  summary.waiting_results = head.waiting_results;
  archive::ChainDigest records, evaluations;
  ALLOT_TRY(exportHistory(source, head, folder, &history, progress, &summary, &records));
  ALLOT_TRY(exportEvaluations(source, folder, &head, &summary, &evaluations));
  v1::RunExport exported = exportOf(head);
  exported.set_history_sha256(records.hex());
  exported.set_evaluations_sha256(evaluations.hex());
  exported.set_evaluations(summary.evaluations);
  ALLOT_ASSIGN(const std::string text, exactJson(exported));
  ALLOT_TRY(writeWholeFile(folder + "/" + archive::kExportFile, text + "\n"));
  return summary;
}

}  // namespace allot
