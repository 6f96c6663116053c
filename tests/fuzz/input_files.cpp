#include "tests/fuzz/input_files.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/run_folder.h"
#include "core/spec/prefill_profile.h"
#include "core/spec/spec.h"
#include "core/spec/spec_change.h"
#include "core/spec/task_catalogue.h"
#include "store/archive/archive.h"
#include "tests/fuzz/prepared_run.h"
#include "tests/temp_folder.h"
#include "worker/tasks/graders.h"
#include "worker/tasks/task.h"

namespace allot::fuzz {
namespace {

constexpr const char* kExported[] = {"export.json", "history.jsonl", "evaluations.jsonl"};

// A refusal is always the same; returns false.
bool refused(const Error& error) {
  const int code = error.exitCode();
  require(code == 64 || code == 65, "another exit code: " + error.message);
  require(!error.message.empty() && error.message.size() < 8000, "no sentence: " + error.message);
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  require(std::none_of(error.message.begin(), error.message.end(), control),
          "a terminal would obey: " + error.message);
  return false;
}

bool feedExperiment(const std::string& yaml) {
  const auto experiment = parseExperiment(yaml, "x.yaml");
  if (!experiment) return refused(experiment.error());
  const auto again = withSettings(*experiment, {});
  require(again.has_value() && canonicalBytes(*again) == canonicalBytes(*experiment),
          "an experiment that is taken is not taken again");
  require(parseStoredExperiment(yaml, "x.yaml").has_value(), "not taken as a stored one");
  require(specDigest(*experiment).size() == 64, "no digest");
  for (const uint32_t layers : {1U, 8U}) {
    if (const Status fits = checkAgainstModel(*experiment, layers); !fits) refused(fits.error());
  }
  return true;
}

bool feedProfile(const std::string& json) {
  const auto profile = parseProfile(json, "p.json");
  if (!profile) return refused(profile.error());
  const std::string text = profileText(*profile);
  const auto again = parseProfile(text, "again");
  require(again.has_value() && *again == *profile, "a profile that is taken is not taken again");
  require(isProfileText(text) && text.size() <= kMostProfileText, "no profile to be stored");
  require(std::none_of(text.begin(), text.end(), [](char c) { return c < 0x20 || c == 0x7f; }),
          "a profile that is no line");
  size_t heads = 0;
  for (const auto& layer : profile->tau) {
    heads += layer.size();
    for (const double tau : layer) require(tau >= 0 && tau < 1, "a threshold out of range");
  }
  require(heads > 0 && heads <= kMostProfileHeads, "too many heads, or none");
  if (const Status fits = checkProfile(*profile, 8, 8); !fits) refused(fits.error());
  return true;
}

bool useRecords(const Suite& suite, const std::string& path, const v1::Task& spec) {
  const auto records = suite.read(path, spec);
  if (!records) return refused(records.error());
  for (const Record& record : *records) {
    const Draft& draft = record.draft;
    require(!draft.prompt.empty() && !draft.answers.empty(), "a question without text or answer");
    require(draft.question_start <= draft.prompt.size() && draft.cut_begin <= draft.cut_end &&
                draft.cut_end <= draft.prompt.size(),
            "a question's parts lie outside it");
    for (const std::string& name : implementedGraders()) {
      const Grader grader = findGrader(name);
      if (grader == nullptr) continue;  // what it would run is for the sandbox's tests
      const double score = grader({draft.answers, draft.classes}, draft.prompt);
      require(score >= 0 && score <= 1, "a score outside 0..1");
    }
  }
  return true;
}

bool feedQuestions(const TempFolder& folder, std::string_view bytes) {
  v1::Task spec;
  spec.set_prompt_field("prompt");
  spec.set_answers_field("answers");
  bool accepted = false;
  const std::string path = folder.write("q.jsonl", bytes);
  for (const std::string& name : suiteNames()) {
    const Suite& suite = *findSuite(name);
    if (suite.read != nullptr) accepted |= useRecords(suite, path, spec);
  }
  std::filesystem::create_directories(folder.path() + "/ruler/qa_1");
  folder.write("ruler/qa_1/validation.jsonl", bytes);
  spec.add_tasks("qa_1");
  return accepted | useRecords(*findSuite("ruler"), folder.path() + "/ruler", spec);
}

bool feedBenchmarks(const TempFolder& folder, std::string_view bytes) {
  bool accepted = false;
  for (const auto& [suite, task] :
       std::vector<std::pair<const char*, const char*>>{{"longbench-v1", "qasper"},
                                                        {"longbench-v1", "lcc"},
                                                        {"longbench-v1", "trec"},
                                                        {"infinitebench", "passkey"},
                                                        {"infinitebench", "longbook_choice_eng"},
                                                        {"infinitebench", "math_find"},
                                                        {"infinitebench", "code_run"}}) {
    v1::Task spec;
    spec.add_tasks(task);
    std::filesystem::create_directories(folder.path() + "/benchmarks");
    folder.write("benchmarks/" + std::string(task) + ".jsonl", bytes);
    accepted |= useRecords(*findSuite(suite), folder.path() + "/benchmarks", spec);
  }
  return accepted;
}

// A sound export, made once.
const std::map<std::string, std::string>& soundExport() {
  static const std::map<std::string, std::string> files = [] {
    const TempFolder folder;
    const PreparedRun& run = preparedRun(0);
    const auto store = openMemoryStore(std::make_shared<MemoryServer>(*run.server));
    const auto pushed = store->pushEvaluation(goodEvaluation(run));
    require(pushed && *pushed == PushOutcome::kAccepted, "a genuine evaluation is not taken in");
    const Leadership leader(*store, valueOf(store->readLease()).epoch);
    require(leader.acceptEvaluations(valueOf(store->readRecorded(10))).has_value(),
            "a genuine evaluation is not accepted");
    StoreSource source(store.get(), "01M7YCD2AZVZVPGCPCSFDWQWNZ");
    valueOf(exportRun(&source, folder.path()));
    std::map<std::string, std::string> made;
    for (const char* name : kExported) made[name] = readFile(folder.path() + "/" + name);
    return made;
  }();
  return files;
}

std::string edited(std::string text, std::string_view edits) {
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(edits[i])); };
  while (edits.size() >= 6) {
    const size_t at = (byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24) % (text.size() + 1);
    const size_t gone = byte(4), come = std::min(byte(5), edits.size() - 6);
    text.replace(at, gone, edits.substr(6, come));
    edits.remove_prefix(6 + come);
  }
  return text;
}

bool feedExport(const std::string& changed, std::string_view edits) {
  static const TempFolder folder;
  for (const auto& [name, text] : soundExport()) {
    folder.write(name, name == changed ? edited(text, edits) : text);
  }
  auto reader = ArchiveReader::open(folder.path());
  if (!reader) return refused(reader.error());
  const auto verified = verifyRun(reader->get());
  if (!verified) return refused(verified.error());
  require(verified->updates <= 2 && verified->evaluations <= 2, "more is verified than there was");
  return true;
}

bool feedRunNote(const TempFolder& folder, std::string_view bytes) {
  folder.write("run.json", bytes);
  const auto note = readRunNote(folder.path());
  return note ? true : refused(note.error());
}

}  // namespace

bool feedInputFile(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  if (size == 0) return false;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'e':
      return feedExperiment(std::string(bytes));
    case 'p':
      return feedProfile(std::string(bytes));
    case 'q':
      return feedQuestions(folder, bytes);
    case 'm':
      return useRecords(*findSuite("mmlu"), folder.write("q.csv", bytes), v1::Task());
    case 'b':
      return feedBenchmarks(folder, bytes);
    case 'r':
      return feedRunNote(folder, bytes);
    case 'x':
      return feedExport(kExported[0], bytes);
    case 'h':
      return feedExport(kExported[1], bytes);
    case 'v':
      return feedExport(kExported[2], bytes);
    default:
      return false;
  }
}

}  // namespace allot::fuzz
