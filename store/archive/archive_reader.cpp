#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <filesystem>

#include "allot/v1/archive.pb.h"
#include "core/json_text.h"
#include "core/spec/spec.h"
#include "core/spec/spec_change.h"
#include "core/spec/spec_rules.h"
#include "store/archive/archive.h"
#include "store/archive/archive_files.h"
#include "store/archive/exact_json.h"
#include "store/checks.h"

namespace allot {
namespace {

namespace fs = std::filesystem;

// Bytes of lines that are read at once, about.
constexpr size_t kBytesInSlice = 2 << 20;

Status wrong(const std::string& what) { return fail(ErrorCode::kData, what); }

tl::unexpected<Error> changed(const std::string& path) {
  return fail(ErrorCode::kData,
              path + " is not the file that " + archive::kExportFile +
                  " was written with: it was changed since; export the run again");
}

// Checks a stored experiment as an experiment file.
Status checkExperiment(const v1::Experiment& experiment, const std::string& name) {
  const auto checked = withSettings(experiment, {});
  if (!checked) return wrong(name + " is no experiment: " + checked.error().message);
  if (canonicalBytes(*checked) != canonicalBytes(experiment)) {
    return wrong(name + " is no experiment that a file could hold");
  }
  return {};
}

Status checkState(const v1::RunExport& exported) {
  if (!exported.has_state()) return {};
  const v1::AggregatorState& state = exported.state();
  if (!exported.has_model()) return wrong("there is a state but no model");
  const auto layers = static_cast<int>(exported.model().layers());
  if (layers < 1 || state.policy().logits_size() != layers || state.first_moment_size() != layers ||
      state.second_moment_size() != layers) {
    return wrong("the state is not one of the model's " + std::to_string(layers) + " layers");
  }
  if (!store::isFinite(state)) {
    return wrong("the state holds a number that is not finite");
  }
  return {};
}

Status checkExport(const v1::RunExport& exported, bool digest_right) {
  if (exported.format() != archive::kFormat) {
    return wrong("its format is " + std::to_string(exported.format()) +
                 ", this allot reads format " + std::to_string(archive::kFormat));
  }
  if (exported.schema() == 0) return wrong("it does not say the schema of its experiment");
  ALLOT_TRY(store::checkRunId(exported.run_id()));
  ALLOT_TRY(checkExperiment(exported.experiment(), "experiment"));
  if (!digest_right) return wrong("experiment_sha256 is not the experiment's");
  ALLOT_TRY(checkExperiment(exported.experiment_in_force(), "experiment_in_force"));
  ALLOT_TRY(checkExperiment(exported.experiment_file(), "experiment_file"));
  if (const Status live = checkLiveChanges(exported.experiment(), exported.experiment_in_force(),
                                           exported.synchronous());
      !live) {
    return wrong("experiment_in_force is another experiment: " + live.error().message);
  }
  if (!fromWord<Desired>(exported.desired())) {
    return wrong("desired is none of " + joined(wordsOf<Desired>()));
  }
  return checkState(exported);
}

// Completes the experiments of a run of an older build. Returns true if the digest is right. It is
// that of the stored experiment, which may lack keys of later schemas.
bool completeExport(v1::RunExport* exported) {
  v1::Experiment* experiment = exported->mutable_experiment();
  const std::string& digest = exported->experiment_sha256();
  const bool right = specDigest(*experiment) == digest ||
                     specDigest(asOfSchema(*experiment, exported->schema())) == digest;
  complete(experiment);
  complete(exported->mutable_experiment_in_force());
  complete(exported->mutable_experiment_file());
  return right;
}

// Checks the schema before anything else: the run of another build may have unknown fields.
Status checkReadable(const std::string& text, const std::string& path) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  if (tooDeep(text)) return {};  // parseExactJson refuses it
  v1::RunExport exported;
  if (!google::protobuf::util::JsonStringToMessage(text, &exported, options).ok()) return {};
  // A build that stored no schema stored no name of the build either.
  const bool damaged = exported.schema() == 0 && !exported.build().empty();
  if (damaged || exported.format() != archive::kFormat) return {};
  return checkSchema(exported.schema(), exported.build(), path + ": the run");
}

RunHead headOf(const v1::RunExport& exported) {
  RunHead head;
  head.run_id = exported.run_id();
  RunSpec& spec = head.image.spec;
  spec.experiment = exported.experiment();
  spec.sha256 = exported.experiment_sha256();
  spec.synchronous = exported.synchronous();
  spec.started_unix_ms = exported.started_unix_ms();
  if (exported.has_origin()) spec.origin = exported.origin();
  spec.arithmetic = exported.arithmetic();
  spec.schema = exported.schema();
  spec.build = exported.build();
  head.image.control = {*fromWord<Desired>(exported.desired()), exported.experiment_in_force(),
                        exported.experiment_file(), exported.control_revision()};
  if (exported.has_model()) head.image.model = exported.model();
  if (exported.has_state()) head.image.state = exported.state();
  head.image.next_ticket = exported.next_ticket();
  head.image.open_units = {exported.open_units().begin(), exported.open_units().end()};
  head.policy_sha256 = exported.policy_sha256();
  for (const auto& refused : exported.refused()) head.refused[refused.kind()] = refused.count();
  head.waiting_results = exported.waiting_results();
  return head;
}

}  // namespace

Result<std::unique_ptr<ArchiveReader>> ArchiveReader::open(const std::string& folder) {
  std::error_code ignored;
  if (!fs::exists(fs::path(folder) / archive::kExportFile, ignored)) {
    return badInput(folder + " holds no exported run: name a folder that `allot export` has made");
  }
  ALLOT_ASSIGN(auto history,
               LineReader::open(folder + "/" + archive::kHistoryFile, archive::kLongestRecord));
  ALLOT_ASSIGN(auto evaluations, LineReader::open(folder + "/" + archive::kEvaluationsFile,
                                                  archive::kLongestEvaluation));
  return std::unique_ptr<ArchiveReader>(
      new ArchiveReader(folder, std::move(history), std::move(evaluations)));
}

Result<RunHead> ArchiveReader::readHead() {
  const std::string path = folder_ + "/" + archive::kExportFile;
  ALLOT_ASSIGN(const std::string text, readWholeFile(path, archive::kLargestExportFile));
  ALLOT_TRY(checkReadable(text, path));
  v1::RunExport exported;
  Status checked = parseExactJson(text, &exported);
  const bool digest_right = checked && completeExport(&exported);
  if (checked) checked = checkExport(exported, digest_right);
  if (!checked) return fail(ErrorCode::kData, path + ": " + checked.error().message);
  RunHead head = headOf(exported);
  version_ = head.version();
  bounds_ = head.bounds();
  evaluations_left_ = exported.evaluations();
  history_sha256_ = exported.history_sha256();
  evaluations_sha256_ = exported.evaluations_sha256();
  return head;
}

Result<std::vector<v1::IterationRecord>> ArchiveReader::nextRecords() {
  std::vector<v1::IterationRecord> records;
  for (size_t bytes = 0; bytes < kBytesInSlice && read_ < version_;) {
    ALLOT_ASSIGN(const auto line, history_.next());
    if (!line) {
      return fail(ErrorCode::kData, history_.path() + " ends with update " + std::to_string(read_) +
                                        ", " + archive::kExportFile + " is of version " +
                                        std::to_string(version_));
    }
    bytes += line->size();
    v1::IterationRecord record;
    if (const Status parsed = parseExactJson(*line, &record); !parsed) {
      return archive::wrongLine(history_.path(), history_.number(), parsed.error().message);
    }
    if (record.version() != read_ + 1) {
      return archive::wrongLine(history_.path(), history_.number(),
                                "holds update " + std::to_string(record.version()) +
                                    " where update " + std::to_string(read_ + 1) + " belongs");
    }
    ++read_;
    records_digest_.add(record);
    records.push_back(std::move(record));
  }
  return records;
}

Result<std::vector<v1::EvaluationResult>> ArchiveReader::nextEvaluations() {
  std::vector<v1::EvaluationResult> results;
  // Lines beyond are of an export that was interrupted.
  while (results.empty() && evaluations_left_ > 0) {
    ALLOT_ASSIGN(const auto line, evaluations_.next());
    if (!line) {
      return fail(ErrorCode::kData, evaluations_.path() + " lacks " +
                                        std::to_string(evaluations_left_) + " evaluations that " +
                                        archive::kExportFile + " counts");
    }
    v1::EvaluationResult result;
    Status checked = parseExactJson(*line, &result);
    if (checked && result.unit().unit_id().empty()) checked = wrong("names no unit");
    if (checked && result.ByteSizeLong() > kLargestResult + result.answers().ByteSizeLong()) {
      checked = wrong("is too large");
    }
    if (checked) {
      if (const auto why = whyImpossible(result, bounds_)) checked = wrong(*why);
    }
    if (!checked) {
      return archive::wrongLine(evaluations_.path(), evaluations_.number(),
                                checked.error().message);
    }
    if (result.unit().policy_version() > version_) continue;
    --evaluations_left_;
    evaluations_digest_.add(result);
    results.push_back(std::move(result));
  }
  if (results.empty() && evaluations_digest_.hex() != evaluations_sha256_) {
    return changed(evaluations_.path());
  }
  return results;
}

Status ArchiveReader::checkEnd() {
  if (records_digest_.hex() != history_sha256_) return changed(history_.path());
  for (LineReader* lines : {&history_, &evaluations_}) {
    ALLOT_ASSIGN(const bool ends, lines->endsHere());
    if (ends) continue;
    return fail(ErrorCode::kData,
                lines->path() + " goes on behind line " + std::to_string(lines->number()) +
                    ", the last that " + archive::kExportFile +
                    " counts: an export was interrupted, or somebody added to it; "
                    "export the run again, or this folder into a new one");
  }
  return {};
}

}  // namespace allot
