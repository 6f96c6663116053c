#include "worker/engine.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

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
#include "worker/fidelity.h"

namespace allot {
namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void addCounts(const kernels::RowStatistics& row, uint64_t steps, v1::DecodeCounts* counts) {
  counts->set_decode_steps(counts->decode_steps() + steps);
  counts->set_draws(counts->draws() + row.draws);
  counts->set_unique_rows(counts->unique_rows() + row.unique_rows);
  counts->set_group_rows(counts->group_rows() + row.group_rows);
  counts->set_dense_rows(counts->dense_rows() + row.dense_rows);
  counts->set_key_bytes(counts->key_bytes() + row.key_bytes);
  counts->set_value_bytes(counts->value_bytes() + row.value_bytes);
  counts->set_dense_bytes(counts->dense_bytes() + row.dense_bytes);
}

WeightType weightTypeOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return WeightType::kFloat32;
    case Dtype::kBFloat16:
      return WeightType::kBFloat16;
  }
  return WeightType::kFloat32;
}

// One prompt's.
void addCounts(const Prompt& prompt, v1::PrefillCounts* counts) {
  const PromptStatistics& read = prompt.statistics;
  counts->set_prompts(counts->prompts() + 1);
  counts->set_tokens(counts->tokens() + static_cast<uint64_t>(prompt.length));
  counts->set_blocks(counts->blocks() + read.blocks.blocks);
  counts->set_dense_blocks(counts->dense_blocks() + read.blocks.dense_blocks);
  counts->set_skipped_blocks(counts->skipped_blocks() + read.blocks.skipped_blocks);
  counts->set_unique_rows(counts->unique_rows() + read.rows.unique_rows);
  counts->set_dense_rows(counts->dense_rows() + read.rows.dense_rows);
  counts->set_key_bytes(counts->key_bytes() + read.blocks.key_bytes + read.rows.key_bytes);
  counts->set_value_bytes(counts->value_bytes() + read.blocks.value_bytes + read.rows.value_bytes);
  counts->set_dense_bytes(counts->dense_bytes() + read.blocks.dense_bytes + read.rows.dense_bytes);
  counts->set_seconds(counts->seconds() + read.seconds);
  counts->set_selection_seconds(counts->selection_seconds() + read.selection_seconds);
  if (read.kept_queries == 0) return;
  counts->set_least_kept_mass(counts->kept_queries() > 0
                                  ? std::min(counts->least_kept_mass(), read.least_kept_mass)
                                  : read.least_kept_mass);
  counts->set_kept_queries(counts->kept_queries() + read.kept_queries);
  counts->set_kept_mass(counts->kept_mass() + read.kept_mass);
}

Result<kernels::MethodOptions> methodOf(const v1::Spec& spec, const std::string& key,
                                        const std::string& text,
                                        kernels::Phase phase = kernels::Phase::kDecode) {
  kernels::MethodOptions method;
  if (const auto wrong =
          kernels::parseMethod(text, &method, methodDefaultsOf(spec.attention()), phase)) {
    return badInput(key + ": " + text + ": " + *wrong);
  }
  return method;
}

// Missing, of a run that an older build began: dense.
Result<kernels::MethodOptions> prefillMethodOf(const v1::Spec& spec, const std::string& key,
                                               const std::string& text) {
  return methodOf(spec, key, text.empty() ? "dense" : text, kernels::Phase::kPrefill);
}

bool holds(const std::vector<int>& numbers, int number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

void askFor(const kernels::MethodOptions& method, KvPoolOptions* pool) {
  const int bits = kernels::shadowBits(method);
  if (bits > 0 && !holds(pool->shadow_bits, bits)) pool->shadow_bits.push_back(bits);
  pool->bounds |= kernels::readsBounds(method);
}

ZeroReads zeroReadsFor(const v1::Spec& spec) {
  switch (zeroReadsOf(spec.policy())) {
    case ZeroReadsChoice::kOff:
      return ZeroReads::kOff;
    case ZeroReadsChoice::kMeanValue:
      return ZeroReads::kMeanValue;
    case ZeroReadsChoice::kWindow:
      return ZeroReads::kWindow;
  }
  return ZeroReads::kOff;
}

ModelShape shapeOf(const ModelConfig& config) {
  return {static_cast<uint32_t>(config.layers), static_cast<uint32_t>(config.kv_heads),
          static_cast<uint32_t>(config.heads)};
}

// What the methods of the experiment read beside keys and values is kept; nothing else is.
Result<KvPoolOptions> poolFor(const v1::Spec& spec) {
  KvPoolOptions pool{.page_size = 16, .zero_reads = zeroReadsFor(spec)};
  ALLOT_ASSIGN(const auto rollout,
               methodOf(spec, "spec.attention.decode", spec.attention().decode()));
  askFor(rollout, &pool);
  for (const std::string& text : spec.evaluation().methods()) {
    ALLOT_ASSIGN(const auto method, methodOf(spec, "spec.evaluation.methods", text));
    askFor(method, &pool);
  }
  std::vector<std::string> prefills(spec.evaluation().prefills().begin(),
                                    spec.evaluation().prefills().end());
  prefills.push_back(spec.attention().prefill());
  for (const std::string& text : prefills) {
    ALLOT_ASSIGN(const auto method, prefillMethodOf(spec, "spec.evaluation.prefills", text));
    askFor(method, &pool);
  }
  return pool;
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
  engine->decoder_ = std::move(decoder);
  engine->chat_ = std::move(chat);
  engine->dataset_ = std::move(dataset);
  engine->rollout_methods_ = rollout_methods;
  engine->takeProfile(profile);
  engine->prompts_ = std::make_unique<PromptCache>(engine->decoder_.get());
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
  if (std::find(measures.begin(), measures.end(), Measure::kFidelity) != measures.end()) {
    // A chunk's questions are compared side by side.
    const size_t end =
        std::min<size_t>(dataset_.held_out.size(), size_t{kFidelityChunks} * kChunkQuestions);
    size_t chunk = 0;
    for (uint32_t i = 0; i < end; ++i) {
      if (i % kChunkQuestions == 0) chunk = 0;
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
  ALLOT_ASSIGN(const auto prompts,
               prompts_->get(
                   keys, ways,
                   [&](size_t i) -> Result<const std::vector<int32_t>*> {
                     ALLOT_TRY(goOn());
                     events_.prefill(readings[i].context.size());
                     return &readings[i].context;
                   },
                   [&](size_t i) {
                     return pagesForRow(decoder_->pool(), readings[i].context.size(),
                                        readings[i].question.size() + longestAnswer(rows[i])) +
                            spare;
                   }));
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
  size_t pages = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Question& asked = question(rows[i].held_out, rows[i].question);
    const Read reading = readingOf(asked);
    if (prompts.insert(promptKey(rows[i], promptReading(rows[i], methods))).second) {
      pages += pool.pagesFor(reading.context.size());
    }
    pages +=
        pagesForRow(pool, reading.context.size(), reading.question.size() + longestAnswer(rows[i]));
    if (pages > pool.totalPages()) return std::max<size_t>(i, 1);
  }
  return rows.size();
}

GenerationOptions Engine::generationOptions(const kernels::MethodOptions& method) const {
  return {
      .method = method,
      .seed = runStreams(experiment_.spec()).key,
      .max_new_tokens = static_cast<int>(experiment_.spec().task().max_new_tokens()),
      .choice = {.temperature = experiment_.spec().generation().temperature(),
                 .top_k = static_cast<int>(experiment_.spec().generation().top_k()),
                 .top_p = experiment_.spec().generation().top_p()},
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
  Answered answered;
  for (std::span<const Row> left = rows; !left.empty();) {
    const auto batch = left.first(rowsThatFit(left, methods));
    ALLOT_TRY(answerBatch(batch, methods, &answered));
    left = left.subspan(batch.size());
  }
  return answered;
}

Status Engine::answerBatch(std::span<const Row> rows, const Methods& methods, Answered* answered) {
  const double prefill_before = decoder_->times().prefill;
  ALLOT_ASSIGN(const auto batch, prompted(rows, methods, 0));
  answered->prefill_seconds += decoder_->times().prefill - prefill_before;
  for (const GenerationRow& row : batch) addCounts(*row.prompt, &answered->prompts);
  const auto start = Clock::now();
  ALLOT_ASSIGN(const auto generated,
               generate(decoder_.get(), tokenizer_, batch, generationOptions(methods.decode)));
  const double seconds = secondsSince(start);
  answered->decode_seconds += seconds;
  times_.generation += seconds;
  const auto grading = Clock::now();
  for (size_t i = 0; i < rows.size(); ++i) {
    const Question& asked = question(rows[i].held_out, rows[i].question);
    v1::QuestionScore score;
    score.set_question(rows[i].question);
    const Grades grades = grade(experiment_.spec().task(), asked, generated[i].text);
    score.set_score(grades.score);
    if (grades.other) score.set_other_score(*grades.other);
    score.set_tokens(static_cast<uint32_t>(generated[i].tokens.size()));
    score.set_task(taskOf(asked));
    if (rows[i].held_out && isKept(experiment_.spec().evaluation(), score)) {
      answered->answers.push_back(
          answerOf({.question = rows[i].question,
                    .text = generated[i].text,
                    .tokens = generated[i].tokens,
                    .prompt = asked.prompt,
                    .expected = asked.answers,
                    .readings = readings(experiment_.spec().task(), asked, generated[i].text)}));
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

Result<v1::EvaluationResult> Engine::evaluate(const v1::EvaluationUnit& unit) {
  const auto start = Clock::now();
  const auto bad = [&](const std::string& why) {
    return fail(ErrorCode::kData, "evaluation unit " + unit.unit_id() + ": " + why);
  };
  Methods methods;
  const auto defaults = methodDefaultsOf(experiment_.spec().attention());
  if (const auto wrong = kernels::parseMethod(unit.method(), &methods.decode, defaults)) {
    return bad("method " + unit.method() + ": " + *wrong);
  }
  if (const auto wrong = kernels::parseMethod(prefillOf(unit), &methods.prefill, defaults,
                                              kernels::Phase::kPrefill)) {
    return bad("prefill " + unit.prefill() + ": " + *wrong);
  }
  // It costs as much as a dense prefill.
  methods.measures_kept_mass = unit.chunk() == 0;
  // An older aggregator's units name no measure.
  if (!unit.measure().empty() && !fromWord<Measure>(unit.measure())) {
    return bad("unknown measure " + unit.measure());
  }
  const bool fidelity = measureOf(unit) == Measure::kFidelity;
  const uint64_t end = uint64_t{unit.first_question()} + unit.question_count();
  if (end > dataset_.held_out.size()) return bad("questions beyond the held-out set");
  SampleSchedule schedule(unit.schedule().begin(), unit.schedule().end());
  if (schedule.empty() && !kernels::usesBudget(methods.decode) &&
      !kernels::usesBudget(methods.prefill)) {
    schedule.assign(facts_.layers(), UINT32_MAX);
  }
  if (entriesPerLayer(schedule.size(), decoder_->config()) == 0) {
    return bad("a schedule for another number of layers or heads");
  }
  std::vector<Row> rows;
  for (uint32_t q = unit.first_question(); q < end; ++q) {
    rows.push_back({true, q, schedule, evaluationSequence(q)});
  }
  v1::EvaluationResult result;
  *result.mutable_unit() = unit;
  ALLOT_TRY(fidelity ? measureFidelity(rows, methods, &result)
                     : measureAccuracy(rows, methods, &result));
  if (!rows.empty()) {
    chunks_[unit.chunk()] = promptKey(rows.front(), promptReading(rows.front(), methods));
  }
  result.set_seconds(secondsSince(start));
  return result;
}

Status Engine::measureAccuracy(const std::vector<Row>& rows, const Methods& methods,
                               v1::EvaluationResult* result) {
  ALLOT_ASSIGN(Answered answered, answer(rows, methods));
  *result->mutable_prefill() = answered.prompts;
  *result->mutable_scores() = {answered.scores.begin(), answered.scores.end()};
  if (!answered.answers.empty()) {
    *result->mutable_answers() = fitted(std::move(answered.answers), answers_room_);
  }
  v1::DecodeCounts* counts = result->mutable_counts();
  for (size_t i = 0; i < rows.size(); ++i) {
    addCounts(answered.statistics[i], answered.steps[i], counts);
  }
  counts->set_prefill_seconds(answered.prefill_seconds);
  counts->set_decode_seconds(answered.decode_seconds);
  return {};
}

Status Engine::measureFidelity(const std::vector<Row>& rows, const Methods& methods,
                               v1::EvaluationResult* result) {
  const double prefill_before = decoder_->times().prefill;
  ALLOT_ASSIGN(const auto batch, prompted(rows, methods, kFidelityPages));
  v1::DecodeCounts* counts = result->mutable_counts();
  counts->set_prefill_seconds(decoder_->times().prefill - prefill_before);
  std::vector<uint32_t> tasks;
  for (const Row& row : rows) tasks.push_back(taskOf(question(row.held_out, row.question)));
  const auto start = Clock::now();
  ALLOT_ASSIGN(const Fidelity fidelity,
               allot::measureFidelity(decoder_.get(), tokenizer_, batch, tasks,
                                      generationOptions(methods.decode)));
  counts->set_decode_seconds(secondsSince(start));
  addCounts(fidelity.statistics, fidelity.steps, counts);
  *result->mutable_fidelity() = {fidelity.cells.begin(), fidelity.cells.end()};
  *result->mutable_agreement() = {fidelity.agreement.begin(), fidelity.agreement.end()};
  return {};
}

std::vector<uint32_t> Engine::warmChunks() const {
  std::vector<uint32_t> warm;
  for (const auto& [chunk, first_prompt] : chunks_) {
    if (prompts_->contains(first_prompt)) warm.push_back(chunk);
  }
  return warm;
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
