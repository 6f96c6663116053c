// allot verify, export, import, acl.
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "aggregator/report/policy_artefact.h"
#include "aggregator/report/report.h"
#include "cli/commands.h"
#include "cli/measure_again.h"
#include "cli/run_folder.h"
#include "cli/run_report.h"
#include "cli/terminal.h"
#include "cli/written_again.h"
#include "core/spec/spec_change.h"
#include "core/ulid.h"
#include "store/archive/archive.h"
#include "store/redis/acl.h"

namespace allot {
namespace {

namespace fs = std::filesystem;

struct VerifyOptions {
  RunChoice choice;
  std::string measure;  // --measure: a number, or all; "": not asked for
  std::optional<uint64_t> seed;
  MeasureAgainOptions measuring;
  OutputFormat format = OutputFormat::kTable;
};

struct ArchiveOptions {
  RunChoice choice;
  std::string out;               // export
  std::optional<double> margin;  // export: of the report
  std::string hub, base_model;   // export
  std::string folder;            // import: what
  std::string dir;               // import: where to
  OutputFormat format = OutputFormat::kTable;
};

Result<MeasureAgainOptions> measuringOf(const RunAccess& access, const VerifyOptions& options) {
  MeasureAgainOptions measuring = options.measuring;
  if (!options.measure.empty() && options.measure != "all") {
    uint64_t answers = 0;
    const char* const end = options.measure.data() + options.measure.size();
    const auto parsed = std::from_chars(options.measure.data(), end, answers);
    if (parsed.ec != std::errc() || parsed.ptr != end || answers == 0) {
      return badInput("--measure=" + options.measure + ": write a number from 1 on, or all");
    }
    measuring.answers = answers;
  }
  measuring.seed = options.seed ? *options.seed : std::random_device{}();
  if (access.folder().empty()) return measuring;
  measuring.beside = access.folder() + "/experiment.yaml";
  if (measuring.model.empty() && holdsRun(access.folder())) {
    ALLOT_ASSIGN(const RunNote note, readRunNote(access.folder()));
    measuring.model = note.model;
  }
  return measuring;
}

Status verify(RunAccess* access, const VerifyOptions& options) {
  ALLOT_ASSIGN(const MeasureAgainOptions measuring, measuringOf(*access, options));
  const bool measure = !options.measure.empty();
  ResultSample sample(measuring.answers, measuring.seed);
  std::optional<WrittenAgain> written;
  if (access->kind() == RunAccess::Kind::kFiles) written.emplace(access->folder());
  ResultWatcher watcher;
  watcher.record = [&](const v1::IterationRecord& record) {
    if (written) written->add(record);
    if (!measure) return;
    for (const v1::EpisodeResult& result : record.results()) sample.add(result);
  };
  watcher.evaluation = [&](const v1::EvaluationResult& result) {
    if (written) written->add(result);
    if (measure) sample.add(result);
  };
  if (measure) access->source().askForAnswers();
  std::optional<VerifySummary> summary;
  {
    LongTask task("verifying update");
    ALLOT_ASSIGN(summary, verifyRun(
                              &access->source(),
                              [&](uint64_t done, uint64_t all) { task.show(done, all); }, watcher));
  }
  nlohmann::json fields = verificationJson(*summary);
  std::string text = verificationText(*summary);
  fields["files"] = nlohmann::json::array();
  if (written) {
    ALLOT_ASSIGN(const auto equal, written->end(summary->head));
    fields["files"] = equal;
    text += "\nfiles equal to what the records give: " + (equal.empty() ? "none" : joined(equal)) +
            "; report.html is not compared";
  } else if (!access->folder().empty()) {
    text += "\nreport and tables in the folder are not compared: `allot export` writes them anew";
  }
  Status outcome;
  if (measure) {
    ALLOT_ASSIGN(const MeasureSummary again, measureAgain(summary->head, &sample, measuring));
    fields["measured_again"] = measureJson(again);
    outcome = measureOutcome(again);
    text += "\n" + measureText(again);
  } else if (summary->head.image.state) {
    text +=
        "\nnot measured again: the updates follow from the recorded results; --measure answers "
        "results again";
  }
  if (outcome || options.format != OutputFormat::kTable) {
    printAs(options.format, "Verification", std::move(fields), text + "\n");
  }
  return outcome;
}

constexpr std::string_view kRunHere = "{run}";

// Replaces {run} by the run id, for people who export several runs without knowing their ids.
Result<std::string> withRunId(std::string folder, const RunAccess& access) {
  if (folder.find(kRunHere) == std::string::npos) return folder;
  std::string run_id = access.runId();
  if (access.kind() == RunAccess::Kind::kFiles) {
    ALLOT_ASSIGN(const auto files, ArchiveReader::open(access.folder()));
    ALLOT_ASSIGN(const RunHead head, files->readHead());
    run_id = head.run_id;
  }
  if (!isUlid(run_id)) return badInput("run " + run_id + " cannot name a folder: leave {run} out");
  for (size_t at = folder.find(kRunHere); at != std::string::npos; at = folder.find(kRunHere)) {
    folder.replace(at, kRunHere.size(), run_id);
  }
  return folder;
}

// Refuses a folder of runs, as of `--out runs`: a folder with an export counts as one run, and the
// runs in it as none.
Status checkIsForOneRun(const std::string& folder) {
  std::error_code ignored;
  if (holdsExport(folder)) return {};
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (!holdsRun(entry.path().string()) && !holdsExport(entry.path().string())) continue;
    return badInput(folder + " holds runs: name a folder of its own, as " + folder + "/copy");
  }
  return {};
}

// Adds what a run's own folder has beside the export: the report and, unless the folder has a run,
// the experiment file.
Status addReport(const std::string& folder, std::optional<double> margin) {
  ALLOT_ASSIGN(const auto files, ArchiveReader::open(folder));
  ALLOT_ASSIGN(const ReadRun read, readRun(files.get()));
  RunView view = runView(read.snapshot, read.last_unix_ms, read.snapshot.run_id);
  view.margin = margin.value_or(view.margin);
  ALLOT_TRY(writeReport(folder, view));
  // `allot run --resume` reads the one in the folder of a run.
  if (holdsRun(folder)) return {};
  return writeWholeFile(folder + "/experiment.yaml", experimentYaml(read.snapshot.run.experiment));
}

// Writes the policy's folder for a hub.
Status exportPolicy(RunSource* source, const ArchiveOptions& options) {
  ALLOT_ASSIGN(const ReadRun read, readRun(source));
  RunView view = runView(read.snapshot, read.last_unix_ms, read.snapshot.run_id);
  view.margin = options.margin.value_or(view.margin);
  ALLOT_TRY(writeHubFolder(options.hub, view, options.base_model));
  std::fprintf(stderr, "policy: %s/README.md and policy.json\n", options.hub.c_str());
  return {};
}

Status exportFiles(RunAccess* access, const ArchiveOptions& options) {
  if (options.out.empty()) return exportPolicy(&access->source(), options);
  ALLOT_ASSIGN(const std::string folder, withRunId(options.out, *access));
  ALLOT_TRY(checkIsForOneRun(folder));
  LongTask task("exporting update");
  ALLOT_ASSIGN(const ExportSummary summary,
               exportRun(&access->source(), folder,
                         [&](uint64_t done, uint64_t all) { task.show(done, all); }));
  ALLOT_TRY(addReport(folder, options.margin));
  if (!options.hub.empty()) {
    ALLOT_ASSIGN(const auto files, ArchiveReader::open(folder));
    ALLOT_TRY(exportPolicy(files.get(), options));
  }
  printAs(options.format, "Export", exportJson(summary, folder),
          exportText(summary, folder) + "\n");
  return {};
}

// A folder that is empty at first; unless kept, it is emptied again, and removed if it was new.
class FreshFolder {
 public:
  static Result<FreshFolder> make(const std::string& path) {
    std::error_code error;
    const bool is_new = !fs::exists(path, error);
    if (!is_new && !(fs::is_directory(path, error) && fs::is_empty(path, error))) {
      return badInput(path + " is not empty: name a new folder with --dir");
    }
    fs::create_directories(path, error);
    const fs::path made = error ? fs::path() : fs::canonical(path, error);
    if (error) return badInput("cannot make " + path + ": " + error.message());
    return FreshFolder(made.string(), is_new);
  }
  FreshFolder(FreshFolder&& other) noexcept
      : path_(std::exchange(other.path_, "")), is_new_(other.is_new_) {}
  FreshFolder& operator=(FreshFolder&&) = delete;
  ~FreshFolder() {
    if (path_.empty()) return;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(path_, ignored)) {
      fs::remove_all(entry.path(), ignored);
    }
    if (is_new_) fs::remove(path_, ignored);
  }
  const std::string& path() const { return path_; }
  void keep() { path_.clear(); }

 private:
  FreshFolder(std::string path, bool is_new) : path_(std::move(path)), is_new_(is_new) {}
  std::string path_;
  bool is_new_;
};

Result<VerifySummary> importInto(RunSource* source, const std::string& url,
                                 const std::string& run_id) {
  ALLOT_ASSIGN(const auto store, openRedisStore(url, run_id));
  LongTask task("importing update");
  return importRun(source, store.get(), [&](uint64_t done, uint64_t all) { task.show(done, all); });
}

// Imports into a folder like that of `allot run`. run.json comes last: without it there is no run.
Result<VerifySummary> importIntoFolder(RunSource* source, const RunHead& head,
                                       const ArchiveOptions& options) {
  if (!isUlid(head.run_id)) {
    return badInput("run " + head.run_id +
                    " was no local run, its id is no ULID: import it with "
                    "--redis");
  }
  ALLOT_TRY(checkRedisProgram(options.choice.redis_server));
  ALLOT_ASSIGN(FreshFolder folder, FreshFolder::make(options.dir));
  ALLOT_ASSIGN(const auto lock, FolderLock::tryLock(folder.path(), FolderLock::Holder::kCommand));
  if (!lock) return badInput(folder.path() + " is in use by another allot command");
  const auto import = [&]() -> Result<VerifySummary> {
    ALLOT_ASSIGN(const LocalRedis redis,
                 LocalRedis::start(options.choice.redis_server, folder.path(), head.run_id));
    return importInto(source, "unix:" + redis.socket(), head.run_id);
  };
  auto summary = import();
  if (!summary) return summary;
  const std::string experiment = folder.path() + "/experiment.yaml";
  ALLOT_TRY(writeWholeFile(experiment, experimentYaml(head.image.control.file)));
  ALLOT_TRY(writeRunNote(folder.path(), {head.run_id, experiment, {}, "", true}));
  folder.keep();
  return summary;
}

// Imports into the store of an experiment in a cluster.
Result<VerifySummary> importIntoCluster(RunSource* source, const RunHead& head,
                                        const RunChoice& choice) {
  const std::string& experiment = head.image.spec.experiment.name();
  ALLOT_ASSIGN(ClusterStore cluster,
               ClusterStore::open({choice.context, choice.name_space,
                                   choice.experiment.empty() ? experiment : choice.experiment},
                                  StoreAccount::kAggregator));
  auto summary = importInto(source, cluster.url(), head.run_id);
  if (summary) return summary;
  return tl::unexpected(cluster.explained(tl::unexpected(summary.error())).error());
}

Status import(const ArchiveOptions& options) {
  const RunChoice& choice = options.choice;
  if (int{!options.dir.empty()} + int{!choice.redis.empty()} + int{!choice.context.empty()} != 1) {
    return badInput("say where to: either --dir NEWDIR, --redis URL or --context CTX");
  }
  if (choice.context.empty() && !(choice.name_space + choice.experiment).empty()) {
    return badInput("--namespace and --experiment are a cluster's: add --context CTX");
  }
  ALLOT_ASSIGN(const std::string folder, existingFolder(options.folder));
  ALLOT_ASSIGN(const auto source, ArchiveReader::open(folder));
  ALLOT_ASSIGN(const RunHead head, source->readHead());
  auto summary = !choice.context.empty() ? importIntoCluster(source.get(), head, choice)
                 : !choice.redis.empty() ? importInto(source.get(), choice.redis, head.run_id)
                                         : importIntoFolder(source.get(), head, options);
  if (!summary) return tl::unexpected(summary.error());
  std::printf("imported: run %s of %s, %s, %s, %s; every policy equal bit for bit\n",
              head.run_id.c_str(), head.image.spec.experiment.name().c_str(),
              counted(summary->updates, "update").c_str(),
              counted(summary->results, "result").c_str(),
              counted(summary->evaluations, "evaluation unit").c_str());
  if (!options.dir.empty()) {
    const std::string model = head.image.control.file.spec().model().path();
    std::printf("go on with (--model FOLDER if %s is not there):\n  allot run --resume --dir %s\n",
                printable(model).c_str(), shellWord(options.dir).c_str());
  }
  return {};
}

template <typename Options>
int onRun(const Options& options, Status (*work)(RunAccess*, const Options&)) {
  return exitCodeOf(withRun(options.choice, StoreAccount::kReader,
                            [&](RunAccess* access) { return work(access, options); }));
}

Status acl(const ArchiveOptions& options) {
  ALLOT_TRY(writeAcl(options.out));
  std::printf("wrote %s/users.acl (redis-server --aclfile) and a password file for each of %s\n",
              options.out.c_str(), "worker, aggregator, admin, reader");
  return {};
}

void addExport(CLI::App* app, Action* action, const std::shared_ptr<ArchiveOptions>& options) {
  auto* write = app->add_subcommand(
      "export", "Write a run as files: JSON to import and verify elsewhere, CSV for people");
  write->group(kKeepGroup);
  addRunChoice(write, &options->choice);
  addOutput(write, &options->format);
  write->add_option("--out", options->out,
                    "Folder; an earlier export is brought up to date. {run} in it is the run's id");
  write->add_option("--hub", options->hub,
                    "Folder for a model hub: policy.json, and a README.md with the measurements");
  write->add_option("--base-model", options->base_model,
                    "With --hub: the model's name on that hub, as ORGANISATION/NAME");
  addMargin(write, &options->margin, "dense, in the report,");
  write->footer(
      "The report's margin is 0.02 unless --margin says another.\n\n"
      "Examples:\n"
      "  allot export --out backup/recall\n"
      "  allot export --hub policy --base-model Qwen/Qwen2.5-Coder-1.5B\n"
      "  allot export --redis redis://redis:6379 --out backup/recall\n"
      "  allot export --context current --experiment recall-layer-budget --out backup/recall");
  write->callback([=] {
    *action = [options] {
      // Checked before a run is looked for.
      if (options->out.empty() && options->hub.empty()) {
        return exitCodeOf(badInput("say where to: --out FOLDER, or --hub FOLDER"));
      }
      return onRun(*options, exportFiles);
    };
  });
}

}  // namespace

void addArchiveCommands(CLI::App* app, Action* action) {
  auto options = std::make_shared<ArchiveOptions>();
  auto* check = app->add_subcommand(
      "verify", "Compute every update of a run again and compare each policy, bit for bit");
  check->group(kKeepGroup);
  auto verifying = std::make_shared<VerifyOptions>();
  auto* measure = check->add_flag(
      "--measure{2000}", verifying->measure,
      "Also answer 2000 of the recorded answers again, or N with --measure=N, or all "
      "with --measure=all, and compare the scores");
  check->add_option("--seed", verifying->seed, "With --measure: chooses the answers [at random]")
      ->needs(measure);
  check
      ->add_option("--model", verifying->measuring.model,
                   "With --measure: model folder [the run's]")
      ->needs(measure);
  check
      ->add_option("--workers", verifying->measuring.workers,
                   "With --measure: processes [one a core, or one with a GPU]")
      ->check(CLI::Range(1, 512))
      ->needs(measure);
  check
      ->add_flag("--allow-code-execution", verifying->measuring.allow_code_execution,
                 "With --measure: as of `allot run`")
      ->needs(measure);
  addOutput(check, &verifying->format);
  addRunChoice(check, &verifying->choice);
  check->footer(
      "DIR may also hold an export. Exit code 65: something differs, or is not what it should "
      "be.\n\n"
      "The sample of --measure has at least 64 answers of each evaluated cell, or all that there "
      "are. Scores must be equal where the recorded build and arithmetic are those of this "
      "machine. Elsewhere two tests hold for each cell, for each worker and for all: at most 0.5 % "
      "of the scores may differ for each token of an answer (5 % of answers of ten tokens, and "
      "never more than half); and answers with a higher recorded score may exceed those with a "
      "lower one, or the other way round, by at most 1 % of the answers. Honest results fail one "
      "of these tests once in 1,000 runs.\n\n"
      "Examples:\n"
      "  allot verify\n"
      "  allot verify --measure\n"
      "  allot verify --measure=all runs/a\n"
      "  allot verify backup/recall\n"
      "  allot verify --redis redis://redis:6379 --experiment recall-layer-budget");
  check->callback([=] { *action = [verifying] { return onRun(*verifying, verify); }; });

  addExport(app, action, options);
  auto* read = app->add_subcommand("import", "Make a run of exported files, once they verify");
  read->group(kKeepGroup);
  read->add_option("FOLDER", options->folder, "What `allot export` wrote")->required();
  read->add_option("--dir", options->dir, "New folder for the run");
  read->add_option("--redis", options->choice.redis,
                   "Or a store: unix:/path/redis.sock or redis://host:port");
  read->add_option("--context", options->choice.context,
                   "Or a cluster: this context of kubectl (current: the one it is set to)");
  read->add_option("--namespace", options->choice.name_space,
                   "With --context: the experiment's namespace [named as the experiment]");
  read->add_option("--experiment", options->choice.experiment,
                   "With --context: the experiment whose store it is [the export's]");
  read->add_option("--redis-server", options->choice.redis_server,
                   "redis-server to use with --dir [from PATH]");
  read->footer(
      "Examples:\n"
      "  allot import backup/recall --dir runs/recall\n"
      "  allot import backup/recall --redis redis://redis:6379\n"
      "  allot import backup/recall --context current");
  read->callback([=] { *action = [options] { return exitCodeOf(import(*options)); }; });

  auto* accounts = app->add_subcommand(
      "acl", "Make the Redis accounts of a cluster: users, passwords, what each may do");
  accounts->group(kKeepGroup);
  accounts
      ->add_option("--out", options->out,
                   "New folder, or one whose accounts are to get the rights of this build")
      ->required();
  accounts->footer("Example:\n  allot acl --out secrets/redis");
  accounts->callback([=] { *action = [options] { return exitCodeOf(acl(*options)); }; });
}

}  // namespace allot
