#include "cli/measure_again.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>
#include <tuple>

#include "cli/child_process.h"
#include "cli/preflight.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/files/files.h"
#include "core/spec/task_catalogue.h"
#include "store/archive/exact_json.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Item = ResultSample::Item;

constexpr uint64_t kLongestLine = uint64_t{64} << 20;

// A folder that is removed with its files.
class Scratch {
 public:
  static Result<Scratch> make() {
    std::error_code ignored;
    std::string name = (fs::temp_directory_path(ignored) / "allot-measure-XXXXXX").string();
    if (!mkdtemp(name.data()))
      return fail(ErrorCode::kIo,
                  name + " cannot be made: set TMPDIR to a folder that can be written to");
    return Scratch(name);
  }
  Scratch(Scratch&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit Scratch(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// The results that one worker process answers again, and its files.
struct Part {
  std::string asked;  // file
  std::vector<const Item*> items;
  std::optional<ChildProcess> process;
  std::string answers() const { return asked + ".answers"; }
  std::string log() const { return asked + ".log"; }
};

Result<std::string> lineOf(const Item& item) {
  v1::EpisodeResult episode;
  if (!item.episode) {
    ALLOT_ASSIGN(const std::string unit, exactJson(item.evaluation->unit()));
    return "{\"unit\": " + unit + "}\n";
  }
  // The worker needs only these.
  episode.set_ticket(item.episode->ticket());
  *episode.mutable_schedule() = item.episode->schedule();
  for (const v1::QuestionScore& score : item.episode->scores()) {
    episode.add_scores()->set_question(score.question());
  }
  ALLOT_ASSIGN(const std::string text, exactJson(episode));
  return "{\"episode\": " + text + "}\n";
}

Status writeAsked(const Part& part, const v1::Experiment& experiment) {
  ALLOT_ASSIGN(const std::string text, exactJson(experiment));
  std::ofstream file(part.asked);
  file << "{\"experiment\": " << text << "}\n";
  for (const Item* item : part.items) {
    ALLOT_ASSIGN(const std::string line, lineOf(*item));
    file << line;
  }
  if (file.flush()) return {};
  return fail(ErrorCode::kIo, part.asked + " cannot be written: is the disk full?");
}

// Returns true if workers may take a GPU; they find out which.
bool mayUseGpu(const v1::Experiment& experiment) {
  return experiment.spec().model().device() != "cpu" && fs::exists("/dev/nvidiactl");
}

unsigned workersFor(const v1::Experiment& experiment, unsigned wished) {
  if (wished > 0) return wished;
  return mayUseGpu(experiment) ? 1 : std::max(1U, std::thread::hardware_concurrency());
}

// Divides the sample into neighbouring parts of about the same number of answers.
std::vector<Part> partsOf(const std::vector<Item>& items, unsigned workers,
                          const std::string& folder) {
  uint64_t all = 0, before = 0;
  for (const Item& item : items) all += static_cast<uint64_t>(item.answers());
  std::vector<Part> parts;
  for (const Item& item : items) {
    if (parts.empty() || before * workers >= all * parts.size()) {
      parts.push_back({folder + "/" + std::to_string(parts.size()) + ".jsonl", {}, {}});
    }
    parts.back().items.push_back(&item);
    before += static_cast<uint64_t>(item.answers());
  }
  return parts;
}

// kv_mib: memory for keys and values; 0: the worker decides.
Status start(Part* part, uint64_t kv_mib, const MeasureAgainOptions& options) {
  Command command{siblingProgram("allot-worker"),
                  {"--measure", part->asked, "--beside", options.beside},
                  {{"OPENBLAS_NUM_THREADS", "1"}, {"OMP_NUM_THREADS", "1"}}};
  if (kv_mib > 0) {
    command.arguments.insert(command.arguments.end(), {"--kv-memory", std::to_string(kv_mib)});
  }
  if (!options.model.empty()) {
    command.arguments.insert(command.arguments.end(), {"--model", options.model});
  }
  if (options.allow_code_execution) command.arguments.emplace_back("--allow-code-execution");
  ALLOT_ASSIGN(part->process, ChildProcess::start(command, part->log()));
  return {};
}

size_t linesOf(const std::string& path) {
  std::ifstream file(path);
  return static_cast<size_t>(
      std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n'));
}

Status awaitAll(std::vector<Part>* parts) {
  size_t results = 0;
  for (const Part& part : *parts) results += part.items.size();
  LongTask task("measuring result");
  for (bool running = true; running;) {
    running = false;
    size_t done = 0;
    for (Part& part : *parts) {
      const auto status = part.process->waitFor(std::chrono::milliseconds(200 / parts->size()));
      if (status && *status != 0) {
        std::string line = lastLineOfFile(part.log());
        if (line.starts_with("allot-worker: ")) line = line.substr(14);
        const bool known = *status == 64 || *status == 65 || *status == 74;
        return fail(
            known ? static_cast<ErrorCode>(*status) : ErrorCode::kInternal,
            line.empty() ? "allot-worker ended with status " + std::to_string(*status) : line);
      }
      running = running || !status;
      const size_t lines = linesOf(part.answers());
      done += lines > 0 ? lines - 1 : 0;
    }
    task.show(done, results);
  }
  return {};
}

// What the first line of the answers says of the program that answered.
struct Answering {
  std::string build;
  std::string arithmetic;
};

Result<Answering> readFacts(const std::string& text, const v1::ModelFacts& expected) {
  const json line = json::parse(text, nullptr, false);
  v1::ModelFacts facts;
  if (!line.is_object() || !line.contains("facts")) {
    return fail(ErrorCode::kInternal, "allot-worker --measure named no model");
  }
  ALLOT_TRY(parseExactJson(line["facts"].dump(), &facts));
  // A run of an earlier build does not name it.
  const std::string& model =
      expected.model_sha256().empty() ? facts.model_sha256() : expected.model_sha256();
  for (const auto& [what, here, run, mend] :
       {std::tuple{"model weights", facts.weights_sha256(), expected.weights_sha256(),
                   "name the run's model folder with --model"},
        std::tuple{"model's config.json, generation_config.json or tokenizer", facts.model_sha256(),
                   model, "name the run's model folder with --model"},
        std::tuple{"questions", facts.dataset_sha256(), expected.dataset_sha256(),
                   "run this where spec.task.path of the run leads to its file"}}) {
    if (here == run) continue;
    return badInput(std::string("the ") + what + " here (" + here.substr(0, 12) +
                    ") are not those of the run (" + run.substr(0, 12) + "): " + mend);
  }
  return Answering{line.value("build", ""), line.value("arithmetic", "")};
}

// Returns the questions of which the recorded answer is not the one that was given again.
std::set<uint32_t> otherAnswers(const v1::EvaluationAnswers& recorded,
                                const v1::EvaluationAnswers& again) {
  std::set<uint32_t> questions;
  std::map<uint32_t, std::string> given;
  for (const v1::Answer& answer : again.answers()) {
    given[answer.question()] = answer.SerializeAsString();
  }
  for (v1::Answer answer : recorded.answers()) {
    answer.DiscardUnknownFields();
    const auto found = given.find(answer.question());
    if (found == given.end() || found->second != answer.SerializeAsString()) {
      questions.insert(answer.question());
    }
  }
  return questions;
}

Status compare(const Part& part, const RunHead& head, MeasureSummary* summary) {
  ALLOT_ASSIGN(LineReader answers, LineReader::open(part.answers(), kLongestLine));
  ALLOT_ASSIGN(const auto first, answers.next());
  ALLOT_ASSIGN(const Answering here, readFacts(first.value_or(""), *head.image.model));
  summary->arithmetic = here.arithmetic;
  // A program that the model wrote may run out of time once and not again.
  const bool repeats = !runsCode(head.image.spec.experiment.spec().task());
  const auto add = [&](const auto& result, const std::string& cell,
                       const v1::EvaluationResult& again,
                       const v1::EvaluationAnswers* kept) -> Status {
    if (again.scores_size() != result.scores_size()) {
      return fail(ErrorCode::kInternal, "allot-worker --measure answered other questions");
    }
    // A worker of this build always names its arithmetic.
    const bool same = result.arithmetic().empty() || result.arithmetic() == here.arithmetic;
    const bool exact = repeats && result.build() == here.build && same && !here.arithmetic.empty();
    summary->exact = summary->exact && exact;
    const std::set<uint32_t> other_texts =
        exact && kept != nullptr ? otherAnswers(*kept, again.answers()) : std::set<uint32_t>();
    for (int i = 0; i < result.scores_size(); ++i) {
      const v1::QuestionScore &was = result.scores(i), &is = again.scores(i);
      if (was.question() != is.question()) {
        return fail(ErrorCode::kInternal, "allot-worker --measure answered other questions");
      }
      const AgainLabels differing{
          .task = was.task() != is.task(),
          .other_score = exact && (was.has_other_score() != is.has_other_score() ||
                                   was.other_score() != is.other_score()),
          .length = exact && was.tokens() != is.tokens(),
          .text = other_texts.contains(was.question())};
      summary->compared.add(result.worker(), cell, exact, was.score(), is.score(), is.tokens(),
                            differing);
    }
    return {};
  };
  for (const Item* item : part.items) {
    ALLOT_ASSIGN(const auto text, answers.next());
    v1::EvaluationResult again;
    ALLOT_TRY(parseExactJson(text.value_or(""), &again));
    ALLOT_TRY(item->episode
                  ? add(*item->episode, "", again, nullptr)
                  : add(*item->evaluation, item->cell(), again, &item->evaluation->answers()));
  }
  return {};
}

// Returns what differs beside scores, with `before` in front, as in "; differing tasks: 12, texts:
// 3"; "" if nothing does.
std::string labelsText(const AgainCounts& counts, const std::string& before) {
  std::string text;
  for (const auto& [what, count] :
       {std::pair{"tasks", counts.tasks}, std::pair{"other scores", counts.other_scores},
        std::pair{"lengths", counts.lengths}, std::pair{"texts", counts.texts}}) {
    if (count == 0) continue;
    text += (text.empty() ? before : ", ") + std::string(what) + ": " + std::to_string(count);
  }
  return text;
}

}  // namespace

void ResultSample::add(const v1::EpisodeResult& result) {
  Item item;
  item.episode = result;
  keep(std::move(item));
}

void ResultSample::add(const v1::EvaluationResult& result) {
  if (measureOf(result.unit()) != Measure::kAccuracy) {
    ++passed_over_;
    return;
  }
  Item item;
  item.evaluation = result;
  keep(std::move(item));
}

std::string ResultSample::Item::cell() const {
  if (!evaluation) return "";
  const v1::EvaluationUnit& unit = evaluation->unit();
  return "version " + std::to_string(unit.policy_version()) + ", " + cellOf(unit);
}

void ResultSample::Smallest::keep(const Shared& item, std::optional<uint64_t> least) {
  if (!items.emplace(item->key, item).second) return;
  answers += static_cast<uint64_t>(item->answers());
  // The result with the largest key goes, as long as the others have enough answers.
  while (least && !items.empty()) {
    const auto last = std::prev(items.end());
    const auto of_last = static_cast<uint64_t>(last->second->answers());
    if (answers - of_last < *least) break;
    answers -= of_last;
    items.erase(last);
  }
}

void ResultSample::keep(Item item) {
  item.key = random_();
  const auto kept = std::make_shared<const Item>(std::move(item));
  seen_answers_ += static_cast<uint64_t>(kept->answers());
  of_all_.keep(kept, answers_);
  if (answers_ && kept->evaluation) of_cells_[kept->cell()].keep(kept, kAgainFloor);
}

std::vector<Item> ResultSample::take() {
  for (const auto& [cell, kept] : of_cells_) {
    of_all_.items.insert(kept.items.begin(), kept.items.end());
  }
  std::vector<Item> items;
  for (const auto& [key, item] : of_all_.items) items.push_back(*item);
  of_all_ = {};
  of_cells_.clear();
  const auto order = [](const Item& item) {
    if (item.episode)
      return std::tuple<int, std::string, uint64_t, std::string>{0, "", item.episode->ticket(), ""};
    const v1::EvaluationUnit& unit = item.evaluation->unit();
    return std::tuple<int, std::string, uint64_t, std::string>{
        1, std::string(prefillOf(unit)), unit.first_question(), unit.method()};
  };
  std::stable_sort(items.begin(), items.end(),
                   [&](const Item& a, const Item& b) { return order(a) < order(b); });
  return items;
}

Result<MeasureSummary> measureAgain(const RunHead& head, ResultSample* sample,
                                    const MeasureAgainOptions& options) {
  MeasureSummary summary;
  summary.seen_answers = sample->seenAnswers();
  summary.passed_over = sample->passedOver();
  summary.seed = options.seed;
  const std::vector<Item> items = sample->take();
  if (items.empty()) return summary;
  if (!head.image.model) return fail(ErrorCode::kData, "the run has results but no model");
  const v1::Experiment& experiment = head.image.spec.experiment;
  ALLOT_ASSIGN(const Scratch scratch, Scratch::make());
  auto parts = partsOf(items, workersFor(experiment, options.workers), scratch.path());
  // Workers on a CPU share half of the free memory, and have 64 MiB at least.
  const uint64_t kv_mib =
      mayUseGpu(experiment) ? 0 : std::max<uint64_t>(64, availableMib() / 2 / parts.size());
  for (Part& part : parts) {
    ALLOT_TRY(writeAsked(part, experiment));
    ALLOT_TRY(start(&part, kv_mib, options));
  }
  ALLOT_TRY(awaitAll(&parts));
  for (const Part& part : parts) ALLOT_TRY(compare(part, head, &summary));
  return summary;
}

std::string measureText(const MeasureSummary& summary) {
  const AgainCounts& all = summary.compared.all();
  if (all.answers == 0) return "measured again: nothing, the run has no answers yet";
  std::string text = "measured again: " + std::to_string(all.answers) + " of " +
                     counted(summary.seen_answers, "answer") + " (seed " +
                     std::to_string(summary.seed) + "), ";
  if (all.differing() == 0) {
    text += "every score equal";
  } else {
    text += "differing scores: " + std::to_string(all.differing()) + ", recorded higher in " +
            std::to_string(all.higher) + " and lower in " + std::to_string(all.lower);
  }
  text += labelsText(all, "; differing ");
  if (summary.passed_over > 0) {
    text += "; " + counted(summary.passed_over, "evaluation") +
            " of fidelity, variance or layer losses not measured again";
  }
  return text;
}

json measureJson(const MeasureSummary& summary) {
  const MeasuredAgain& compared = summary.compared;
  const AgainCounts& all = compared.all();
  const auto countsJson = [](const AgainCounts& counts, bool suspect) -> json {
    return {{"answers", counts.answers},
            {"recorded_higher", counts.higher},
            {"recorded_lower", counts.lower},
            {"differing_tasks", counts.tasks},
            {"differing_other_scores", counts.other_scores},
            {"differing_lengths", counts.lengths},
            {"differing_texts", counts.texts},
            {"suspect", suspect}};
  };
  json workers = json::object(), cells = json::object();
  for (const auto& [name, counts] : compared.byWorker()) {
    workers[name] = countsJson(counts, compared.isSuspect(name));
  }
  for (const auto& [name, counts] : compared.byCell()) {
    cells[name] = countsJson(counts, compared.isSuspectCell(name));
  }
  const char* const words[] = {"equal", "agrees", "disagrees"};
  return {{"result", words[static_cast<size_t>(compared.verdict())]},
          {"answers", all.answers},
          {"of_answers", summary.seen_answers},
          {"recorded_higher", all.higher},
          {"recorded_lower", all.lower},
          {"differing_tasks", all.tasks},
          {"differing_other_scores", all.other_scores},
          {"differing_lengths", all.lengths},
          {"differing_texts", all.texts},
          {"same_arithmetic", summary.exact},
          {"arithmetic", summary.arithmetic},
          {"seed", summary.seed},
          {"evaluations_passed_over", summary.passed_over},
          {"workers", std::move(workers)},
          {"cells", std::move(cells)}};
}

Status measureOutcome(const MeasureSummary& summary) {
  const MeasuredAgain& compared = summary.compared;
  if (compared.verdict() != AgainVerdict::kDisagrees) return {};
  std::string names;
  const auto add = [&](const std::string& name, const AgainCounts& counts) {
    names += "; " + name + ": " + std::to_string(counts.differing()) + " of " +
             std::to_string(counts.answers) + labelsText(counts, ", ");
  };
  for (const auto& [name, counts] : compared.byWorker()) {
    // The end of a name is its key's fingerprint.
    if (compared.isSuspect(name)) add("worker " + withoutMiddle(name, 60), counts);
  }
  for (const auto& [name, counts] : compared.byCell()) {
    if (compared.isSuspectCell(name)) add(printable(name, 100), counts);
  }
  return fail(ErrorCode::kData, "the recorded answers are not what is measured here: " +
                                    measureText(summary) + names);
}

}  // namespace allot
