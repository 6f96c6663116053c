// Loading of an engine: model, questions and memory of an experiment. Also switching to another
// experiment on the same model.
#include <algorithm>
#include <filesystem>

#include "core/digest.h"
#include "core/evaluation/answers.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/spec/choices.h"
#include "core/spec/kv_profile.h"
#include "core/spec/prefill_profile.h"
#include "core/spec/spec.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_settings.h"
#include "worker/engine/fidelity.h"
#include "worker/model/model_digest.h"
#include "worker/model/weights.h"
#include "worker/tasks/suite.h"

namespace allot {
namespace {

// Weights are read once a step for all its rows. On a CPU a row in a step of 64 takes 0.6 of the
// time of a row in a step of 16, and larger steps gain little. A GPU's products of 256 rows take as
// long as reading the weights.
constexpr uint32_t kRowsOfCpuStep = 64;
constexpr uint32_t kRowsOfGpuStep = 256;
// Answers for each row of a GPU's step: one waits until the other has ended. GSM8K's longest answer
// takes several times as long as the mean.
constexpr uint32_t kAnswersOfGpuPlace = 2;

// Checks that the model has an embedding for every token of every prompt.
Status checkTokens(const Dataset& dataset, const ModelConfig& config) {
  for (const auto* split : {&dataset.train, &dataset.held_out}) {
    for (size_t i = 0; i < split->size(); ++i) {
      for (const int32_t id : (*split)[i].prompt_ids) {
        if (id < config.vocab_size) continue;
        return badInput(
            "the prompt of " + std::string(split == &dataset.train ? "training" : "held-out") +
            " question " + std::to_string(i) + " has token " + std::to_string(id) +
            ", and the model has an embedding for the first " + std::to_string(config.vocab_size) +
            " only: the tokenizer does not belong to this model");
      }
    }
  }
  return {};
}

// Returns the numbers as a pool has them, [layers, kv_heads].
std::vector<float> scalesOf(const LayerNumbers& numbers) {
  std::vector<float> scales;
  for (const auto& layer : numbers) {
    for (const double scale : layer) scales.push_back(static_cast<float>(scale));
  }
  return scales;
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
               methodOf("spec.attention.decode", spec.attention().decode()));
  ALLOT_ASSIGN(rollout_methods.prefill,
               prefillMethodOf("spec.attention.prefill", spec.attention().prefill()));
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
  ALLOT_ASSIGN(const KvProfile kv_profile, kvProfileOf(spec));
  ALLOT_TRY(checkKvProfile(kv_profile, config.layers, config.kv_heads));
  ALLOT_ASSIGN(Tokenizer tokenizer, Tokenizer::load(tokenizerPath(options.model_folder)));
  std::optional<ChatTemplate> chat;
  if (const Suite* suite = findSuite(task.suite()); suite == nullptr || !suite->bare) {
    ALLOT_ASSIGN(
        chat, ChatTemplate::choose(spec.model().chat_template(), options.model_folder, tokenizer));
  }
  Status rendered_all;
  const auto render = [&](const Draft& draft) {
    if (!rendered_all) return Rendered();
    auto prompt = chat->prompt(tokenizer, draft.system, draft.prompt, draft.answer_prefix);
    if (prompt) return Rendered{std::move(prompt->text), std::move(prompt->ids)};
    rendered_all = tl::unexpected(std::move(prompt.error()));
    return Rendered();
  };
  auto made = makeDataset(task, spec.seed(), tokenizer,
                          {.bos_token = tokenizer.bosToken().value_or(-1),
                           .render = render,
                           .path = options.task_path,
                           .held_out_path = options.held_out_path});
  ALLOT_TRY(rendered_all);  // before what follows of it
  ALLOT_ASSIGN(Dataset dataset, std::move(made));
  if (!kv_profile.keys.empty() && pool.element != kernels::Element::kE4M3) {
    return badInput(std::string(kKvProfile.key) +
                    " has the scales of spec.model.kvDtype: fp8, and " + "that is " +
                    spec.model().kv_dtype() + ": leave the profile out, or set fp8");
  }
  if (!profile.tau.empty() || !kv_profile.keys.empty()) {
    ALLOT_ASSIGN(const std::string digest, Weights::digestOf(options.model_folder));
    ALLOT_TRY(checkProfile(profile, digest));
    ALLOT_TRY(checkKvProfile(kv_profile, digest));
  }
  pool.key_scales = scalesOf(kv_profile.keys);
  pool.value_scales = scalesOf(kv_profile.values);
  ALLOT_TRY(checkTokens(dataset, config));
  ALLOT_ASSIGN(const std::string digest_of_model,
               modelDigest(options.model_folder, config, tokenizer));
  // Last: a large model takes minutes, and errors of other files have been reported by now.
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
  engine->applyProfile(profile);
  // On a CPU prompts are already in host memory. Several workers may share the host's memory.
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
  facts.set_model_sha256(digest_of_model);
  facts.set_dataset_sha256(datasetDigest(engine->dataset_));
  for (const auto* split : {&engine->dataset_.train, &engine->dataset_.held_out}) {
    for (const Question& question : *split) {
      facts.set_longest_prompt(std::max<uint32_t>(
          facts.longest_prompt(), static_cast<uint32_t>(question.prompt_ids.size())));
    }
  }
  engine->answers_room_ = roomForAnswers(experiment, facts.layers());
  engine->reportMemory();
  return engine;
}

void Engine::applyProfile(const PrefillProfile& profile) {
  tau_.clear();
  for (const auto& layer : profile.tau) {
    for (const double tau : layer) tau_.push_back(static_cast<float>(tau));
  }
  profile_digest_ = profile.tau.empty() ? "" : sha256Hex(profileText(profile)).substr(0, 16);
}

Status Engine::switchTo(const v1::Experiment& next) {
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
  if (wanted.value_sums && !kept.value_sums && kept.zero_reads != ZeroReads::kMeanValue) {
    return other("method (sums of values are not kept)");
  }
  if (wanted.zero_reads != kept.zero_reads) return other("spec.policy.zeroReads");
  ALLOT_ASSIGN(const Device device, chooseDevice(then, decoder_->config()));
  if (device != device_) return other("method (it is not for the device in use here)");
  ALLOT_TRY(checkAgainstModel(next, shapeOf(facts_)));
  ALLOT_ASSIGN(const PrefillProfile profile, profileOf(then));
  ALLOT_TRY(checkProfile(profile, facts_.layers(), facts_.heads()));
  ALLOT_TRY(checkProfile(profile, facts_.weights_sha256()));
  Methods methods;
  ALLOT_ASSIGN(methods.decode, methodOf("spec.attention.decode", then.attention().decode()));
  ALLOT_ASSIGN(methods.prefill,
               prefillMethodOf("spec.attention.prefill", then.attention().prefill()));
  rollout_methods_ = methods;
  applyProfile(profile);
  experiment_ = next;
  answers_room_ = roomForAnswers(next, facts_.layers());
  chunks_.clear();  // the next experiment may cut them differently
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
  // A chunk's questions are compared side by side.
  const auto compare = [&](bool held_out, uint32_t end) {
    const uint32_t each = chunkQuestions(experiment_.spec().evaluation());
    size_t chunk = 0;
    for (uint32_t i = 0; i < end; ++i) {
      if (i % each == 0) chunk = 0;
      chunk += pagesOf(held_out, i) + kFidelityPages;
      most = std::max(most, chunk);
    }
  };
  for (const Measure measure : measuresOf(experiment_.spec().evaluation())) {
    if (measure != Measure::kAccuracy)
      compare(true, comparedQuestions(experiment_.spec(), measure));
  }
  compare(false, measureQuestions(experiment_.spec()));
  return most * pool.bytesPerPage();
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
