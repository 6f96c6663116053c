#include "worker/engine.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <set>
#include <thread>

#include "core/digest.h"
#include "core/evaluation/answers.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/learning/budget_update.h"
#include "core/learning/policy.h"
#include "core/learning/questions.h"
#include "core/learning/schedule.h"
#include "core/spec/choices.h"
#include "core/spec/prefill_profile.h"
#include "core/spec/spec.h"
#include "model/weights.h"
#include "worker/device_choice.h"
#include "worker/engine_settings.h"
#include "worker/fidelity.h"
#include "worker/read_counts.h"

namespace allot {
namespace {

using Clock = std::chrono::steady_clock;

// Questions that may be shuffled to see which of them come next.
constexpr uint64_t kShuffledAhead = uint64_t{1} << 20;
// Weights are read once a step, whatever its rows. On a CPU 64 rows take .6 of the time a row that
// 16 take, and more gain little; a GPU's products of 256 rows cost as much as their weights' bytes.
constexpr uint32_t kRowsOfCpuStep = 64;
constexpr uint32_t kRowsOfGpuStep = 256;
// Answers that wait for the places of those that have ended, for each place: of GSM8K the longest
// one takes several times as long as the mean.
constexpr uint32_t kAnswersOfGpuPlace = 2;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Engine::Engine(const v1::Experiment& experiment, Tokenizer tokenizer, WorkerEvents* events)
    : events_(events != nullptr ? *events : nobody_),
      experiment_(experiment),
      tokenizer_(std::move(tokenizer)) {}

Result<std::unique_ptr<Engine>> Engine::load(const v1::Experiment& experiment,
                                             const EngineOptions& options) {
  const v1::Spec& spec = experiment.spec();
  const auto read = ModelConfig::load(options.model_folder);
  if (!read) return fail(read.error().code, "spec.model.path: " + read.error().message);
  const ModelConfig& config = *read;
  ALLOT_ASSIGN(const Device device, chooseDevice(spec, config));
  ALLOT_ASSIGN(KvPoolOptions pool, poolFor(spec));
  pool.kv_bytes = options.kv_bytes;
  const WeightType type = weightTypeOf(dtypeOf(spec.model()));
  Methods rollout_methods;
  ALLOT_ASSIGN(rollout_methods.decode,
               methodOf(spec, "spec.attention.decode", spec.attention().decode()));
  ALLOT_ASSIGN(rollout_methods.prefill,
               prefillMethodOf(spec, "spec.attention.prefill", spec.attention().prefill()));
  const v1::Task& task = spec.task();
  if (const uint64_t longest = longestRow(task);
      longest > static_cast<uint64_t>(config.max_positions)) {
    return badInput("spec.task.contextTokens: prompt and answer take up to " +
                    std::to_string(longest) + " tokens, which is more than the " +
                    std::to_string(config.max_positions) + " positions of the model");
  }
  ALLOT_TRY(checkAgainstModel(experiment, shapeOf(config)));
  ALLOT_ASSIGN(const PrefillProfile profile, profileOf(spec));
  ALLOT_TRY(checkProfile(profile, config.layers, config.heads));
  ALLOT_ASSIGN(Tokenizer tokenizer, Tokenizer::load(tokenizerPath(options.model_folder)));
  std::optional<ChatTemplate> chat;
  if (task.suite() != "recall") {
    ALLOT_ASSIGN(
        chat, ChatTemplate::choose(spec.model().chat_template(), options.model_folder, tokenizer));
  }
  const auto render = [&](const Draft& draft) {
    Rendered rendered{chat->render(draft.system, draft.prompt, draft.answer_prefix),
                      chat->encode(tokenizer, draft.system, draft.prompt, draft.answer_prefix)};
    if (const auto bos = chat->bosToken()) rendered.ids.insert(rendered.ids.begin(), *bos);
    return rendered;
  };
  ALLOT_ASSIGN(Dataset dataset, makeDataset(task, spec.seed(), tokenizer,
                                            {.bos_token = tokenizer.bosToken().value_or(-1),
                                             .render = render,
                                             .path = options.task_path,
                                             .held_out_path = options.held_out_path}));
  if (!profile.tau.empty()) {
    ALLOT_ASSIGN(const std::string digest, Weights::digestOf(options.model_folder));
    ALLOT_TRY(checkProfile(profile, digest));
  }
  // Last: a large model takes minutes, and whatever else is wrong has been said by now.
  ALLOT_ASSIGN(auto decoder, Decoder::load(options.model_folder, pool, device, type));

  auto engine =
      std::unique_ptr<Engine>(new Engine(experiment, std::move(tokenizer), options.events));
  engine->device_ = device;
  engine->allow_code_execution_ = options.allow_code_execution;
  const bool on_gpu = device == Device::kCuda;
  engine->rows_of_step_ = on_gpu ? kRowsOfGpuStep : kRowsOfCpuStep;
  engine->rows_at_once_ = options.rows_at_once > 0 ? options.rows_at_once
                          : on_gpu                 ? kRowsOfGpuStep * kAnswersOfGpuPlace
                                                   : kRowsOfCpuStep;
  engine->decoder_ = std::move(decoder);
  engine->chat_ = std::move(chat);
  engine->dataset_ = std::move(dataset);
  engine->rollout_methods_ = rollout_methods;
  engine->takeProfile(profile);
  // A CPU's prompts are in the host's memory as they are. Several workers may share it.
  const size_t share = device == Device::kCuda ? freeMemory(Device::kCpu) / 4 : 0;
  engine->prompts_ =
      std::make_unique<PromptCache>(engine->decoder_.get(), options.host_bytes.value_or(share));
  v1::ModelFacts& facts = engine->facts_;
  facts.set_architecture(config.architecture);
  facts.set_layers(static_cast<uint32_t>(config.layers));
  facts.set_heads(static_cast<uint32_t>(config.heads));
  facts.set_kv_heads(static_cast<uint32_t>(config.kv_heads));
  facts.set_head_dim(static_cast<uint32_t>(config.head_dim));
  facts.set_parameters(engine->decoder_->parameters());
  facts.set_weights_sha256(engine->decoder_->weightsDigest());
  facts.set_dataset_sha256(datasetDigest(engine->dataset_));
  for (const auto* split : {&engine->dataset_.train, &engine->dataset_.held_out}) {
    for (const Question& question : *split) {
      facts.set_longest_prompt(std::max<uint32_t>(
          facts.longest_prompt(), static_cast<uint32_t>(question.prompt_ids.size())));
    }
  }
  engine->answers_room_ = roomForAnswers(experiment, facts.layers());
  engine->tellMemory();
  return engine;
}

void Engine::takeProfile(const PrefillProfile& profile) {
  tau_.clear();
  for (const auto& layer : profile.tau) {
    for (const double tau : layer) tau_.push_back(static_cast<float>(tau));
  }
  profile_digest_ = profile.tau.empty() ? "" : sha256Hex(profileText(profile)).substr(0, 16);
}

Status Engine::takeUp(const v1::Experiment& next) {
  const v1::Spec &now = experiment_.spec(), &then = next.spec();
  const auto differs = [](const google::protobuf::Message& a, const google::protobuf::Message& b) {
    return a.SerializeAsString() != b.SerializeAsString();
  };
  const auto other = [](const std::string& what) {
    return fail(ErrorCode::kFenced, "the newest run has another " + what +
                                        " than the one loaded here: this worker must be started "
                                        "again to work on it");
  };
  if (differs(now.model(), then.model())) return other("spec.model");
  if (differs(now.task(), then.task())) return other("spec.task");
  if (now.seed() != then.seed()) return other("spec.seed");
  if (now.attention().protocol() != then.attention().protocol()) {
    return other("spec.attention.protocol");
  }
  ALLOT_ASSIGN(const KvPoolOptions kept, poolFor(now));
  ALLOT_ASSIGN(const KvPoolOptions wanted, poolFor(then));
  for (const int bits : wanted.shadow_bits) {
    if (!holds(kept.shadow_bits, bits)) return other("method (its key shadows are not kept)");
  }
  if (wanted.bounds && !kept.bounds) return other("method (its key bounds are not kept)");
  if (wanted.zero_reads != kept.zero_reads) return other("spec.policy.zeroReads");
  ALLOT_ASSIGN(const Device device, chooseDevice(then, decoder_->config()));
  if (device != device_) return other("method (it is not for the device in use here)");
  ALLOT_TRY(checkAgainstModel(next, shapeOf(facts_)));
  ALLOT_ASSIGN(const PrefillProfile profile, profileOf(then));
  ALLOT_TRY(checkProfile(profile, facts_.layers(), facts_.heads()));
  ALLOT_TRY(checkProfile(profile, facts_.weights_sha256()));
  Methods methods;
  ALLOT_ASSIGN(methods.decode, methodOf(then, "spec.attention.decode", then.attention().decode()));
  ALLOT_ASSIGN(methods.prefill,
               prefillMethodOf(then, "spec.attention.prefill", then.attention().prefill()));
  rollout_methods_ = methods;
  takeProfile(profile);
  experiment_ = next;
  answers_room_ = roomForAnswers(next, facts_.layers());
  chunks_.clear();  // may be cut in another way
  return {};
}

size_t Engine::leastKvBytes() const {
  const KvPool& pool = decoder_->pool();
  const auto pagesOf = [&](bool held_out, uint32_t index) {
    const Question& asked = question(held_out, index);
    const Read reading = readingOf(asked);
    return pool.pagesFor(reading.context.size()) +
           pagesForRow(pool, reading.context.size(),
                       reading.question.size() + longestAnswer({held_out, index, {}, 0}));
  };
  size_t most = 0;
  for (const bool held_out : {false, true}) {
    const auto count = (held_out ? dataset_.held_out : dataset_.train).size();
    for (uint32_t i = 0; i < count; ++i) most = std::max(most, pagesOf(held_out, i));
  }
  const auto measures = measuresOf(experiment_.spec().evaluation());
  const bool compares = std::any_of(measures.begin(), measures.end(),
                                    [](Measure m) { return m != Measure::kAccuracy; });
  if (compares) {
    // A chunk's questions are compared side by side.
    const uint32_t end = fidelityQuestions(experiment_.spec());
    const uint32_t each = chunkQuestions(experiment_.spec().evaluation());
    size_t chunk = 0;
    for (uint32_t i = 0; i < end; ++i) {
      if (i % each == 0) chunk = 0;
      chunk += pagesOf(true, i) + kFidelityPages;
      most = std::max(most, chunk);
    }
  }
  return most * pool.bytesPerPage();
}

const Question& Engine::question(bool held_out, uint32_t index) const {
  return held_out ? dataset_.held_out[index] : dataset_.train[index];
}

uint32_t Engine::taskOf(const Question& question) const {
  const auto& tasks = experiment_.spec().task().tasks();
  return static_cast<uint32_t>(std::find(tasks.begin(), tasks.end(), question.task) -
                               tasks.begin());
}

Engine::Read Engine::readingOf(const Question& asked) const {
  const auto& ids = asked.prompt_ids;
  if (protocolOf(experiment_.spec().attention()) == Protocol::kA) return {ids, {}};
  // Something has to be prefilled, if it is the first token alone.
  const size_t cut = std::clamp<size_t>(asked.context_tokens, 1, ids.size());
  const auto middle = ids.begin() + static_cast<std::ptrdiff_t>(cut);
  return {{ids.begin(), middle}, {middle, ids.end()}};
}

uint32_t Engine::longestAnswer(const Row& row) const {
  const Question& asked = question(row.held_out, row.question);
  return asked.own_answer_tokens > 0 ? asked.own_answer_tokens
                                     : experiment_.spec().task().max_new_tokens();
}

PromptReading Engine::promptReading(const Row& row, const Methods& methods) const {
  PromptReading reading{
      .method = methods.prefill,
      .tau = tau_.empty() ? nullptr : &tau_,
      .measures_kept_mass = methods.measures_kept_mass && kernels::choosesBlocks(methods.prefill)};
  if (kernels::usesBudget(methods.prefill)) reading.schedule = row.schedule;
  if (methods.prefill.method == kernels::Method::kDense ||
      kernels::choosesBlocks(methods.prefill)) {
    return reading;
  }
  reading.seed = runStreams(experiment_.spec()).key;
  reading.sequence = row.sequence;
  return reading;
}

// All that decides what is in memory. Where something is drawn each row has a prompt of its own.
std::string Engine::promptKey(const Row& row, const PromptReading& reading) const {
  std::string key = (row.held_out ? "h" : "t") + std::to_string(row.question) + " " +
                    kernels::methodText(reading.method);
  if (reading.method.profile_tau) key += " " + profile_digest_;
  if (reading.measures_kept_mass) key += " measured";
  if (reading.method.method == kernels::Method::kDense || kernels::choosesBlocks(reading.method)) {
    return key;
  }
  key += " " + std::to_string(reading.sequence) + ":";
  for (const uint32_t draws : reading.schedule) key += " " + std::to_string(draws);
  return key;
}

std::unordered_map<std::string, uint64_t> Engine::comingPrompts(const Row& row,
                                                                const Methods& methods) const {
  std::unordered_map<std::string, uint64_t> coming;
  const auto comes = [&](bool held_out, uint32_t index) {
    const Row next{held_out, index, row.schedule, row.sequence};
    const Methods& of = held_out ? methods : rollout_methods_;
    coming.try_emplace(promptKey(next, promptReading(next, of)), coming.size());
  };
  if (row.held_out && ahead_.count > 0) {
    for (uint32_t i = 1; i <= ahead_.count; ++i) {
      comes(true, ahead_.first + (row.question - ahead_.first + i) % ahead_.count);
    }
  }
  if (ahead_.ticket) {
    const v1::Spec& spec = experiment_.spec();
    const uint32_t all = spec.task().train_questions();
    // One set after the other, until each question has come; a shuffle takes time by their number.
    const uint64_t step = std::max<uint32_t>(1, spec.rollout().episodes_per_question_set());
    uint64_t sets = std::max<uint64_t>(1, kShuffledAhead / all);
    const size_t enough = coming.size() + all;
    for (uint64_t t = *ahead_.ticket; coming.size() < enough && sets > 0; t += step, --sets) {
      for (const uint32_t asked : questionsOf(spec, t)) comes(false, asked);
    }
  }
  return coming;
}

Result<std::vector<GenerationRow>> Engine::prompted(std::span<const Row> rows,
                                                    const Methods& methods, size_t spare) {
  std::vector<std::string> keys;
  std::vector<PromptReading> ways;
  std::vector<Read> readings;
  for (const Row& row : rows) {
    ways.push_back(promptReading(row, methods));
    keys.push_back(promptKey(row, ways.back()));
    readings.push_back(readingOf(question(row.held_out, row.question)));
  }
  // Looked up only if something has to make room.
  std::optional<std::unordered_map<std::string, uint64_t>> coming;
  const auto next_use = [&](const std::string& key) {
    if (!coming) coming = comingPrompts(rows.back(), methods);
    const auto found = coming->find(key);
    return found == coming->end() ? PromptCache::kUnknownUse : found->second;
  };
  ALLOT_ASSIGN(const auto prompts,
               prompts_->get(
                   keys, ways,
                   [&](size_t i) -> Result<const std::vector<int32_t>*> {
                     ALLOT_TRY(goOn());
                     events_.prefill(readings[i].context.size());
                     return &readings[i].context;
                   },
                   [&](size_t i) {
                     // Rows beyond a step's wait for the pages of those before them.
                     if (i >= rows_of_step_) return spare;
                     return pagesForRow(decoder_->pool(), readings[i].context.size(),
                                        readings[i].question.size() + longestAnswer(rows[i])) +
                            spare;
                   },
                   next_use));
  std::vector<GenerationRow> batch;
  for (size_t i = 0; i < rows.size(); ++i) {
    batch.push_back({prompts[i], rows[i].schedule, rows[i].sequence,
                     std::move(readings[i].question), static_cast<int>(longestAnswer(rows[i]))});
  }
  tellMemory();
  return batch;
}

// Rows do not depend on each other, so a batch too large for the pool is answered in parts.
size_t Engine::rowsThatFit(std::span<const Row> rows, const Methods& methods) const {
  const KvPool& pool = decoder_->pool();
  std::set<std::string> prompts;
  size_t pages = 0, most_own = 0;  // of prompts; of a row beside them
  for (size_t i = 0; i < rows.size(); ++i) {
    const Question& asked = question(rows[i].held_out, rows[i].question);
    const Read reading = readingOf(asked);
    if (prompts.insert(promptKey(rows[i], promptReading(rows[i], methods))).second) {
      pages += pool.pagesFor(reading.context.size());
    }
    most_own = std::max(most_own, pagesForRow(pool, reading.context.size(),
                                              reading.question.size() + longestAnswer(rows[i])));
    const size_t at_once = std::min<size_t>(i + 1, rows_of_step_);
    if (pages + at_once * most_own > pool.totalPages()) return std::max<size_t>(i, 1);
  }
  return rows.size();
}

GenerationOptions Engine::generationOptions(const kernels::MethodOptions& method) const {
  return {
      .method = method,
      .seed = runStreams(experiment_.spec()).key,
      .max_new_tokens = static_cast<int>(experiment_.spec().task().max_new_tokens()),
      .most_rows = rows_of_step_,
      .choice = {.repetition_penalty = experiment_.spec().generation().repetition_penalty(),
                 .temperature = experiment_.spec().generation().temperature(),
                 .top_k = static_cast<int>(experiment_.spec().generation().top_k()),
                 .top_p = experiment_.spec().generation().top_p()},
      // A worker on the CPU is one core's worth of work.
      .choosing_threads =
          decoder_->deviceName() == "cpu"
              ? 1
              : static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 64U)),
      .more_eos =
          chat_ && chat_->endOfTurn() ? std::vector{*chat_->endOfTurn()} : std::vector<int32_t>{},
      .is_complete =
          [this](const std::string& text) { return isComplete(experiment_.spec().task(), text); },
      .before_step = [this](const StepBatch&, const std::vector<size_t>&) { return goOn(); },
      .after_step = [this, name = kernels::methodName(method.method)](
                        size_t rows, double seconds) { events_.decoded(name, rows, seconds); }};
}

void Engine::tellMemory() {
  const KvPool& pool = decoder_->pool();
  events_.memory(decoder_->weightBytes(),
                 (pool.totalPages() - pool.freePages()) * pool.bytesPerPage());
}

Result<Engine::Answered> Engine::answer(const std::vector<Row>& rows, const Methods& methods) {
  // Rows of one question beside each other, so that its prompt is needed once.
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rows[a].question < rows[b].question; });
  std::vector<Row> sorted;
  for (const size_t i : order) sorted.push_back(rows[i]);
  Answered answered;
  for (std::span<const Row> left = sorted; !left.empty();) {
    const auto batch = left.first(rowsThatFit(left, methods));
    ALLOT_TRY(answerBatch(batch, methods, &answered));
    left = left.subspan(batch.size());
  }
  // As they were asked.
  Answered placed = answered;
  for (size_t i = 0; i < order.size(); ++i) {
    placed.scores[order[i]] = std::move(answered.scores[i]);
    placed.steps[order[i]] = answered.steps[i];
    placed.statistics[order[i]] = answered.statistics[i];
    placed.answers[order[i]] = std::move(answered.answers[i]);
    placed.prompts[order[i]] = std::move(answered.prompts[i]);
  }
  return placed;
}

Status Engine::answerBatch(std::span<const Row> rows, const Methods& methods, Answered* answered) {
  ALLOT_TRY(mayRunCode(experiment_.spec().task(), allow_code_execution_));
  const double prompts_before = secondsForPrompts();
  ALLOT_ASSIGN(const auto batch, prompted(rows, methods, 0));
  answered->prefill_seconds += secondsForPrompts() - prompts_before;
  for (const GenerationRow& row : batch) {
    addCounts(*row.prompt, &answered->prompts.emplace_back());
  }
  const auto start = Clock::now();
  ALLOT_ASSIGN(const auto generated,
               generate(decoder_.get(), tokenizer_, batch, generationOptions(methods.decode)));
  const double seconds = secondsSince(start);
  answered->decode_seconds += seconds;
  times_.generation += seconds;
  const auto grading = Clock::now();
  std::vector<Completion> completions;
  for (size_t i = 0; i < rows.size(); ++i) {
    completions.push_back({&question(rows[i].held_out, rows[i].question), &generated[i].text});
  }
  ALLOT_ASSIGN(const auto graded,
               gradeAll(experiment_.spec().task(), completions, [this] { return goOn(); }));
  for (size_t i = 0; i < rows.size(); ++i) {
    const Question& asked = *completions[i].question;
    const Grades& grades = graded[i];
    v1::QuestionScore score;
    score.set_question(rows[i].question);
    score.set_score(grades.score);
    if (grades.other) score.set_other_score(*grades.other);
    score.set_tokens(static_cast<uint32_t>(generated[i].tokens.size()));
    score.set_task(taskOf(asked));
    std::optional<v1::Answer>& kept = answered->answers.emplace_back();
    if (rows[i].held_out && isKept(experiment_.spec().evaluation(), score)) {
      kept = answerOf({.question = rows[i].question,
                       .text = generated[i].text,
                       .tokens = generated[i].tokens,
                       .prompt = asked.prompt,
                       .expected = asked.answers,
                       .readings = readings(experiment_.spec().task(), asked, generated[i].text)});
    }
    answered->scores.push_back(score);
    answered->steps.push_back(generated[i].steps);
    answered->statistics.push_back(generated[i].statistics);
  }
  times_.grading += secondsSince(grading);
  return {};
}

Result<std::vector<v1::EpisodeResult>> Engine::rollOut(const v1::PolicySnapshot& policy,
                                                       const std::string& policy_sha256,
                                                       const std::vector<uint64_t>& tickets) {
  const v1::Spec& spec = experiment_.spec();
  if (policy.logits_size() != static_cast<int64_t>(facts_.layers())) {
    return fail(ErrorCode::kData, "the policy has " + std::to_string(policy.logits_size()) +
                                      " layers, the model " + std::to_string(facts_.layers()));
  }
  ALLOT_TRY(checkFrontier(experiment_, shapeOf(facts_), policy));
  std::vector<Episode> episodes;
  std::vector<double> log_probabilities;
  for (const uint64_t ticket : tickets) {
    Proposed proposed = scheduleOf(spec, policy, ticket);
    log_probabilities.push_back(proposed.log_probability);
    episodes.push_back({ticket, std::move(proposed.schedule), questionsOf(spec, ticket)});
  }
  ahead_.ticket = *std::max_element(tickets.begin(), tickets.end()) + 1;
  ALLOT_ASSIGN(auto results, answerUnder(episodes));
  for (size_t t = 0; t < results.size(); ++t) {
    results[t].set_policy_version(policy.version());
    results[t].set_policy_sha256(policy_sha256);
    results[t].set_behaviour_log_prob(log_probabilities[t]);
  }
  return results;
}

Result<std::vector<v1::EpisodeResult>> Engine::answerUnder(const std::vector<Episode>& episodes) {
  const auto start = Clock::now();
  const v1::Spec& spec = experiment_.spec();
  std::vector<Row> rows;
  for (const Episode& episode : episodes) {
    if (entriesPerLayer(episode.schedule.size(), decoder_->config()) == 0) {
      return fail(ErrorCode::kData, "the schedule has " + std::to_string(episode.schedule.size()) +
                                        " layers, the model " + std::to_string(facts_.layers()));
    }
    const auto count = static_cast<uint32_t>(episode.questions.size());
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t asked = episode.questions[i];
      if (asked >= spec.task().train_questions()) {
        return fail(ErrorCode::kData, "there is no question " + std::to_string(asked));
      }
      rows.push_back({false, asked, episode.schedule, rolloutSequence(episode.ticket, count, i)});
    }
  }
  ALLOT_ASSIGN(const Answered answered, answer(rows, rollout_methods_));

  std::vector<v1::EpisodeResult> results;
  // The batch's time, shared equally: its episodes ran side by side.
  const double share = 1.0 / static_cast<double>(episodes.size());
  size_t row = 0;
  for (const Episode& episode : episodes) {
    v1::EpisodeResult result;
    result.set_ticket(episode.ticket);
    *result.mutable_schedule() = {episode.schedule.begin(), episode.schedule.end()};
    double sum = 0;
    for (size_t i = 0; i < episode.questions.size(); ++i, ++row) {
      *result.add_scores() = answered.scores[row];
      sum += answered.scores[row].score();
      addCounts(answered.statistics[row], answered.steps[row], result.mutable_counts());
    }
    result.set_reward(sum / static_cast<double>(episode.questions.size()));
    result.mutable_counts()->set_prefill_seconds(answered.prefill_seconds * share);
    result.mutable_counts()->set_decode_seconds(answered.decode_seconds * share);
    result.set_seconds(secondsSince(start) * share);
    result.set_device(deviceName());
    results.push_back(std::move(result));
  }
  return results;
}

Result<std::vector<Engine::Spelled>> Engine::spell(const std::vector<uint32_t>& questions,
                                                   const std::string& method,
                                                   SampleSchedule schedule) {
  Methods methods;
  ALLOT_ASSIGN(methods.decode, methodOf(experiment_.spec(), "method", method));
  if (schedule.empty()) schedule.assign(facts_.layers(), UINT32_MAX);
  if (entriesPerLayer(schedule.size(), decoder_->config()) == 0) {
    return badInput("a schedule for another number of layers or heads");
  }
  std::vector<Row> rows;
  for (const uint32_t asked : questions) {
    if (asked >= dataset_.held_out.size()) {
      return badInput("there is no held-out question " + std::to_string(asked));
    }
    rows.push_back({true, asked, schedule, evaluationSequence(asked)});
  }
  std::vector<Spelled> answers;
  for (std::span<const Row> left = rows; !left.empty();) {
    const auto part = left.first(rowsThatFit(left, methods));
    ALLOT_ASSIGN(const auto batch, prompted(part, methods, 0));
    ALLOT_ASSIGN(auto generated,
                 generate(decoder_.get(), tokenizer_, batch, generationOptions(methods.decode)));
    std::vector<Completion> completions;
    for (size_t i = 0; i < part.size(); ++i) {
      completions.push_back({&question(true, part[i].question), &generated[i].text});
    }
    ALLOT_ASSIGN(const auto graded,
                 gradeAll(experiment_.spec().task(), completions, [this] { return goOn(); }));
    for (size_t i = 0; i < part.size(); ++i) {
      answers.push_back({part[i].question, completions[i].question->prompt_ids,
                         std::move(generated[i].tokens), graded[i].score});
    }
    left = left.subspan(part.size());
  }
  return answers;
}

Result<std::string> findModelFolder(const std::string& path, const std::string& experiment_file) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const auto isModel = [&](const fs::path& at) {
    return fs::is_directory(at, ignored) ||
           (at.extension() == ".gguf" && fs::is_regular_file(at, ignored));
  };
  if (isModel(path)) return path;
  if (fs::path(path).is_relative() && !experiment_file.empty()) {
    fs::path folder = fs::absolute(experiment_file, ignored).parent_path();
    for (; !folder.empty(); folder = folder.parent_path()) {
      if (isModel(folder / path)) return (folder / path).string();
      if (folder == folder.root_path()) break;
    }
  }
  return badInput(
      "spec.model.path: there is no folder or .gguf file " + path +
      ": name a Hugging Face model folder or a GGUF file, absolute or relative to where you are or "
      "to a folder above the experiment file");
}

}  // namespace allot
