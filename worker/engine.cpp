#include "worker/engine.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "core/policy_gradient.h"
#include "core/questions.h"
#include "core/schedule.h"
#include "core/spec.h"

namespace allot {
namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

uint64_t promptKey(bool held_out, uint32_t question) {
  return (held_out ? uint64_t{1} << 32 : 0) | question;
}

// Adds rows [first, first + count) of the counts.
void addCounts(const std::vector<kernels::RowStatistics>& statistics,
               const google::protobuf::RepeatedPtrField<v1::QuestionScore>& scores, size_t first,
               v1::DecodeCounts* counts) {
  for (int i = 0; i < scores.size(); ++i) {
    const kernels::RowStatistics& row = statistics[first + static_cast<size_t>(i)];
    counts->set_decode_steps(counts->decode_steps() + scores[i].tokens() - 1);
    counts->set_draws(counts->draws() + row.draws);
    counts->set_unique_rows(counts->unique_rows() + row.unique_rows);
    counts->set_dense_rows(counts->dense_rows() + row.dense_rows);
  }
}

}  // namespace

Engine::Engine(const v1::Experiment& experiment, Tokenizer tokenizer)
    : experiment_(experiment), tokenizer_(std::move(tokenizer)) {}

Result<std::unique_ptr<Engine>> Engine::load(const v1::Experiment& experiment,
                                             const EngineOptions& options) {
  ALLOT_ASSIGN(auto decoder, Decoder::load(options.model_folder,
                                           {.page_size = 16, .kv_bytes = options.kv_bytes}));
  ALLOT_ASSIGN(Tokenizer tokenizer, Tokenizer::load(options.model_folder + "/tokenizer.json"));
  const ModelConfig& config = decoder->config();
  const v1::Task& task = experiment.spec().task();
  const uint64_t longest = uint64_t{task.context_tokens()} + task.max_new_tokens();
  if (longest > static_cast<uint64_t>(config.max_positions)) {
    return badInput("spec.task.contextTokens: " + std::to_string(task.context_tokens()) + " plus " +
                    std::to_string(task.max_new_tokens()) + " new tokens is more than the " +
                    std::to_string(config.max_positions) + " positions of the model");
  }
  ALLOT_TRY(checkAgainstLayers(experiment, static_cast<uint32_t>(config.layers)));
  ALLOT_ASSIGN(Dataset dataset,
               makeDataset(task, experiment.spec().seed(), tokenizer, config.bos_token));

  auto engine = std::unique_ptr<Engine>(new Engine(experiment, std::move(tokenizer)));
  engine->decoder_ = std::move(decoder);
  engine->dataset_ = std::move(dataset);
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
  return engine;
}

const Question& Engine::question(bool held_out, uint32_t index) const {
  return held_out ? dataset_.held_out[index] : dataset_.train[index];
}

Result<Engine::Answered> Engine::answer(const std::vector<Row>& rows, kernels::Method method) {
  const auto max_new_tokens = static_cast<int>(experiment_.spec().task().max_new_tokens());
  std::vector<uint64_t> keys;
  for (const Row& row : rows) keys.push_back(promptKey(row.held_out, row.question));
  const double prefill_before = decoder_->times().prefill;
  ALLOT_ASSIGN(const auto prompts,
               prompts_->get(
                   keys,
                   [&](uint64_t key) -> const std::vector<int32_t>& {
                     return question(key >> 32, static_cast<uint32_t>(key)).prompt_ids;
                   },
                   [&](const Prompt& prompt) {
                     return pagesForRow(decoder_->pool(), prompt, max_new_tokens);
                   }));
  std::vector<GenerationRow> batch;
  for (size_t i = 0; i < rows.size(); ++i) {
    batch.push_back({prompts[i], rows[i].schedule, rows[i].sequence});
  }
  Answered answered;
  answered.prefill_seconds = decoder_->times().prefill - prefill_before;
  const auto start = Clock::now();
  ALLOT_ASSIGN(const auto generated,
               generate(decoder_.get(), tokenizer_, batch,
                        {.method = method,
                         .seed = experiment_.spec().seed(),
                         .max_new_tokens = max_new_tokens,
                         .is_complete = [](const std::string& text) { return isComplete(text); }}));
  answered.decode_seconds = secondsSince(start);
  times_.generation += answered.decode_seconds;
  const auto grading = Clock::now();
  for (size_t i = 0; i < rows.size(); ++i) {
    v1::QuestionScore score;
    score.set_question(rows[i].question);
    score.set_score(grade(question(rows[i].held_out, rows[i].question), generated[i].text));
    score.set_tokens(static_cast<uint32_t>(generated[i].tokens.size()));
    answered.scores.push_back(score);
    answered.statistics.push_back(generated[i].statistics);
  }
  times_.grading += secondsSince(grading);
  return answered;
}

Result<std::vector<v1::EpisodeResult>> Engine::rollOut(const v1::PolicySnapshot& policy,
                                                       const std::string& policy_sha256,
                                                       const std::vector<uint64_t>& tickets) {
  const auto start = Clock::now();
  const v1::Spec& spec = experiment_.spec();
  const uint32_t count = spec.rollout().questions_per_episode();
  const std::vector<double> logits(policy.logits().begin(), policy.logits().end());
  if (logits.size() != facts_.layers()) {
    return fail(ErrorCode::kData, "the policy has " + std::to_string(logits.size()) +
                                      " layers, the model " + std::to_string(facts_.layers()));
  }
  kernels::Method method;
  if (!kernels::parseMethod(spec.attention().decode(), &method)) {
    return badInput("spec.attention.decode: " + spec.attention().decode() + " is not known here");
  }
  const std::vector<double> probabilities = softmax(logits);
  std::vector<Row> rows;
  std::vector<SampleSchedule> schedules;
  for (uint64_t ticket : tickets) {
    schedules.push_back(drawSchedule(probabilities, spec.policy().total_budget(),
                                     spec.policy().min_per_layer(), spec.seed(), ticket));
    const auto questions =
        episodeQuestions(spec.seed(), ticket, count, spec.task().train_questions());
    for (uint32_t i = 0; i < count; ++i) {
      rows.push_back({false, questions[i], schedules.back(), rolloutSequence(ticket, count, i)});
    }
  }
  ALLOT_ASSIGN(const Answered answered, answer(rows, method));

  std::vector<v1::EpisodeResult> results;
  for (size_t t = 0; t < tickets.size(); ++t) {
    v1::EpisodeResult result;
    result.set_ticket(tickets[t]);
    result.set_policy_version(policy.version());
    result.set_policy_sha256(policy_sha256);
    *result.mutable_schedule() = {schedules[t].begin(), schedules[t].end()};
    result.set_behaviour_log_prob(
        logProbability(schedules[t], logits, spec.policy().min_per_layer()));
    double sum = 0;
    for (uint32_t i = 0; i < count; ++i) {
      *result.add_scores() = answered.scores[t * count + i];
      sum += answered.scores[t * count + i].score();
    }
    result.set_reward(sum / count);
    addCounts(answered.statistics, result.scores(), t * count, result.mutable_counts());
    // The batch's time, shared equally: its episodes ran side by side.
    const double share = 1.0 / static_cast<double>(tickets.size());
    result.mutable_counts()->set_prefill_seconds(answered.prefill_seconds * share);
    result.mutable_counts()->set_decode_seconds(answered.decode_seconds * share);
    result.set_seconds(secondsSince(start) * share);
    result.set_device("cpu");
    results.push_back(std::move(result));
  }
  return results;
}

Result<v1::EvaluationResult> Engine::evaluate(const v1::EvaluationUnit& unit) {
  const auto start = Clock::now();
  const auto bad = [&](const std::string& why) {
    return fail(ErrorCode::kData, "evaluation unit " + unit.unit_id() + ": " + why);
  };
  kernels::Method method;
  if (!kernels::parseMethod(unit.method(), &method)) return bad("unknown method " + unit.method());
  const uint64_t end = uint64_t{unit.first_question()} + unit.question_count();
  if (end > dataset_.held_out.size()) return bad("questions beyond the held-out set");
  SampleSchedule schedule(unit.schedule().begin(), unit.schedule().end());
  if (method == kernels::Method::kDense) schedule.assign(facts_.layers(), UINT32_MAX);
  if (schedule.size() != facts_.layers()) return bad("a schedule for another number of layers");
  std::vector<Row> rows;
  for (uint32_t q = unit.first_question(); q < end; ++q) {
    rows.push_back({true, q, schedule, evaluationSequence(q)});
  }
  ALLOT_ASSIGN(const Answered answered, answer(rows, method));
  chunks_[unit.chunk()] = unit.first_question();

  v1::EvaluationResult result;
  *result.mutable_unit() = unit;
  *result.mutable_scores() = {answered.scores.begin(), answered.scores.end()};
  addCounts(answered.statistics, result.scores(), 0, result.mutable_counts());
  result.mutable_counts()->set_prefill_seconds(answered.prefill_seconds);
  result.mutable_counts()->set_decode_seconds(answered.decode_seconds);
  result.set_seconds(secondsSince(start));
  return result;
}

std::vector<uint32_t> Engine::warmChunks() const {
  std::vector<uint32_t> warm;
  for (const auto& [chunk, first_question] : chunks_) {
    if (prompts_->contains(promptKey(true, first_question))) warm.push_back(chunk);
  }
  return warm;
}

Result<std::string> findModelFolder(const std::string& path, const std::string& experiment_file) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return path;
  if (fs::path(path).is_relative() && !experiment_file.empty()) {
    fs::path folder = fs::absolute(experiment_file, ignored).parent_path();
    for (; !folder.empty(); folder = folder.parent_path()) {
      if (fs::is_directory(folder / path, ignored)) return (folder / path).string();
      if (folder == folder.root_path()) break;
    }
  }
  return badInput(
      "spec.model.path: there is no folder " + path +
      ": name a Hugging Face model folder, absolute or relative to where you are or to a "
      "folder above the experiment file");
}

}  // namespace allot
