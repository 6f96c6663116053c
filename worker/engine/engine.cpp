#include "worker/engine/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <set>
#include <thread>

#include "core/evaluation/answers.h"
#include "core/learning/learning_checks.h"
#include "core/learning/policy.h"
#include "core/learning/questions.h"
#include "core/learning/schedule.h"
#include "core/spec/choices.h"
#include "worker/engine/engine_settings.h"

namespace allot {
namespace {

using Clock = std::chrono::steady_clock;

// Most questions that are shuffled to predict the next prompts.
constexpr uint64_t kShuffledAhead = uint64_t{1} << 20;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns the first place to answer, and the place after the last one.
std::pair<uint32_t, uint32_t> rangeOf(const Engine::Episode& episode) {
  const auto all = static_cast<uint32_t>(episode.questions.size());
  const uint32_t first = std::min(episode.first, all);
  return {first, episode.count == 0 ? all : first + std::min(episode.count, all - first)};
}

}  // namespace

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
  // The prefill needs at least one token.
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
  if (kernels::readsByBlocks(methods.prefill)) return reading;
  reading.seed = runStreams(experiment_.spec()).key;
  reading.sequence = row.sequence;
  return reading;
}

// Everything that determines the prompt in memory. If the prefill draws, each row has its own
// prompt.
std::string Engine::promptKey(const Row& row, const PromptReading& reading) const {
  std::string key = (row.held_out ? "h" : "t") + std::to_string(row.question) + " " +
                    kernels::methodText(reading.method);
  if (reading.method.profile_tau) key += " " + profile_digest_;
  if (reading.measures_kept_mass) key += " measured";
  if (kernels::readsByBlocks(reading.method)) return key;
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
    // Set after set, until each question has come. The time of a shuffle grows with their number.
    const uint64_t step = std::max<uint32_t>(1, spec.rollout().episodes_per_question_set());
    uint64_t sets = std::max<uint64_t>(1, kShuffledAhead / all);
    const size_t enough = coming.size() + all;
    for (uint64_t t = *ahead_.ticket; coming.size() < enough && sets > 0; t += step, --sets) {
      // Questions of fresh pairs come twice and are not announced.
      for (const uint32_t asked : episodeQuestions(runStreams(spec), placeOf(spec, t).set,
                                                   spec.rollout().questions_per_episode(), all)) {
        comes(false, asked);
      }
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
  // Computed only if prompts have to be evicted.
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
                     ALLOT_TRY(checkInterrupted());
                     events_.prefill(readings[i].context.size());
                     return &readings[i].context;
                   },
                   [&](size_t i) {
                     // Rows beyond a step's bound wait for the pages of earlier rows.
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
  reportMemory();
  return batch;
}

// Rows do not depend on each other, so a batch too large for the pool is answered in parts.
size_t Engine::rowsThatFit(std::span<const Row> rows, const Methods& methods) const {
  const KvPool& pool = decoder_->pool();
  std::set<std::string> prompts;
  size_t pages = 0, most_own = 0;  // of prompts; of a row beside its prompt
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
      .before_step = [this](const StepBatch&,
                            const std::vector<size_t>&) { return checkInterrupted(); },
      .after_step = [this, name = kernels::methodName(method.method)](
                        size_t rows, double seconds) { events_.decoded(name, rows, seconds); }};
}

std::vector<int32_t> Engine::endTokens() const {
  std::vector<int32_t> tokens = decoder_->config().eos_tokens;
  const auto end = chat_ ? chat_->endOfTurn() : std::nullopt;
  if (end && std::find(tokens.begin(), tokens.end(), *end) == tokens.end()) tokens.push_back(*end);
  return tokens;
}

void Engine::reportMemory() {
  const KvPool& pool = decoder_->pool();
  events_.memory(decoder_->weightBytes(),
                 (pool.totalPages() - pool.freePages()) * pool.bytesPerPage());
  const uint64_t saturated = decoder_->saturatedNumbers();
  events_.saturated(saturated);
  if (saturated == 0 || has_warned_of_saturation_) return;
  has_warned_of_saturation_ = true;
  spdlog::warn(
      "spec.model.kvDtype: fp8: keys or values of the model are beyond what codes reach by their "
      "scales, and are cut off ({} so far): `allot calibrate kv` finds scales, for "
      "spec.model.kvProfile",
      saturated);
}

Result<Engine::Answered> Engine::answer(const std::vector<Row>& rows, const Methods& methods) {
  // Rows of one question are neighbours, so that its prompt is needed once.
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
    reportMemory();
    left = left.subspan(batch.size());
  }
  // In the order of the request.
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

Result<std::vector<Grades>> Engine::gradesOf(std::span<const Row> rows,
                                             const std::vector<Generated>& generated) const {
  std::vector<Completion> completions;
  for (size_t i = 0; i < rows.size(); ++i) {
    completions.push_back({&question(rows[i].held_out, rows[i].question), &generated[i].text});
  }
  return gradeAll(experiment_.spec().task(), completions, [this] { return checkInterrupted(); });
}

Status Engine::answerBatch(std::span<const Row> rows, const Methods& methods, Answered* answered) {
  ALLOT_TRY(mayRunCode(experiment_.spec().task(), allow_code_execution_));
  const double prompts_before = secondsForPrompts();
  ALLOT_ASSIGN(const auto batch, prompted(rows, methods, 0));
  answered->prefill_seconds += secondsForPrompts() - prompts_before;
  for (const GenerationRow& row : batch) answered->prompts.push_back(countsOf(*row.prompt));
  const auto start = Clock::now();
  ALLOT_ASSIGN(const auto generated,
               generate(decoder_.get(), tokenizer_, batch, generationOptions(methods.decode)));
  const double seconds = secondsSince(start);
  answered->decode_seconds += seconds;
  times_.generation += seconds;
  const auto grading = Clock::now();
  ALLOT_ASSIGN(const auto graded, gradesOf(rows, generated));
  for (size_t i = 0; i < rows.size(); ++i) {
    const Question& asked = question(rows[i].held_out, rows[i].question);
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
    episodes.push_back({ticket, std::move(proposed.schedule), questionsOf(spec, policy, ticket)});
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
    const auto [first, end] = rangeOf(episode);
    for (uint32_t i = first; i < end; ++i) {
      const uint32_t asked = episode.questions[i];
      if (asked >= trainingQuestions(spec.task())) {
        return fail(ErrorCode::kData, "there is no question " + std::to_string(asked));
      }
      rows.push_back({false, asked, episode.schedule, rolloutSequence(episode.ticket, count, i)});
    }
  }
  ALLOT_ASSIGN(const Answered answered, answer(rows, rollout_methods_));

  std::vector<v1::EpisodeResult> results;
  // The time of the batch, shared equally: its episodes ran side by side.
  const double share = 1.0 / static_cast<double>(episodes.size());
  size_t row = 0;
  for (const Episode& episode : episodes) {
    v1::EpisodeResult result;
    result.set_ticket(episode.ticket);
    *result.mutable_schedule() = {episode.schedule.begin(), episode.schedule.end()};
    double sum = 0;
    const auto [first, end] = rangeOf(episode);
    for (uint32_t i = first; i < end; ++i, ++row) {
      *result.add_scores() = answered.scores[row];
      sum += answered.scores[row].score();
      addCounts(answered.statistics[row], answered.steps[row], result.mutable_counts());
    }
    result.set_reward(sum / (end - first));
    result.mutable_counts()->set_prefill_seconds(answered.prefill_seconds * share);
    result.mutable_counts()->set_decode_seconds(answered.decode_seconds * share);
    result.set_seconds(secondsSince(start) * share);
    result.set_device(deviceName());
    result.set_arithmetic(arithmetic());
    results.push_back(std::move(result));
  }
  return results;
}

Result<std::vector<Engine::Spelled>> Engine::spell(const std::vector<uint32_t>& questions,
                                                   const std::string& method,
                                                   SampleSchedule schedule) {
  Methods methods;
  ALLOT_ASSIGN(methods.decode, methodOf("method", method));
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
    ALLOT_ASSIGN(const auto graded, gradesOf(part, generated));
    for (size_t i = 0; i < part.size(); ++i) {
      answers.push_back({part[i].question, question(true, part[i].question).prompt_ids,
                         std::move(generated[i].tokens), graded[i].score});
    }
    left = left.subspan(part.size());
  }
  return answers;
}

}  // namespace allot
