#include "worker/model/decoder.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "worker/model/decoder_backend.h"
#include "worker/model/kv_scales.h"
#include "worker/model/stopwatch.h"
#include "worker/model/weights.h"

namespace allot {
namespace {

float toFloat(float element) { return element; }
float toFloat(uint16_t element) { return kernels::fromBFloat16(element); }
float toFloat(uint8_t element) { return kernels::fromE4M3(element); }

// Adds up in sixteen lanes, which a compiler can vectorise. width: a multiple of 16.
template <typename T>
float dot(const float* a, const T* b, int width) {
  std::array<float, 16> sums{};
  for (int i = 0; i < width; i += 16) {
    for (int lane = 0; lane < 16; ++lane) sums[lane] += a[i + lane] * toFloat(b[i + lane]);
  }
  float sum = 0;
  for (const float lane : sums) sum += lane;
  return sum;
}

// For keys of type T in the pool.
template <typename T>
void exactScoresOf(const kernels::PagedKv& kv, const kernels::DecodeInputs& in, int row, int head,
                   std::vector<float>* scores) {
  const auto* keys = static_cast<const T*>(kv.keys);
  const int32_t* pages = in.page_table + static_cast<int64_t>(row) * in.max_pages;
  const float* query = in.queries + (static_cast<int64_t>(row) * in.heads + head) * kv.head_dim;
  const int kv_head = head / (in.heads / kv.kv_heads);
  const int first = in.first(in.lengths[row]);
  const float scale = in.scale * kv.keyScale(kv_head);
  scores->resize(static_cast<size_t>(in.lengths[row] - first));
  for (int j = first; j < in.lengths[row]; ++j) {
    const int64_t key = kv.offset(pages[j / kv.page_size], kv_head, j % kv.page_size);
    (*scores)[static_cast<size_t>(j - first)] = scale * dot(query, keys + key, kv.head_dim);
  }
}

Status checkToken(int32_t id, const ModelConfig& config) {
  if (id >= 0 && id < config.vocab_size) return {};
  return badInput("token " + std::to_string(id) + " is outside the model's vocabulary of " +
                  std::to_string(config.vocab_size) +
                  ": the tokenizer does not belong to this model");
}

Status checkSchedule(ScheduleView schedule, const ModelConfig& config) {
  if (entriesPerLayer(schedule.size(), config) > 0) return {};
  return badInput("a schedule of " + std::to_string(schedule.size()) +
                  " entries does not fit the model's " + std::to_string(config.layers) +
                  " layers of " + std::to_string(config.heads) + " heads over " +
                  std::to_string(config.kv_heads) +
                  " KV heads: write one for each layer, for each KV head or for each head");
}

Status checkStep(const StepBatch& batch, const ModelConfig& config) {
  for (const int32_t id : batch.tokens) ALLOT_TRY(checkToken(id, config));
  for (const ScheduleView schedule : batch.schedules) {
    ALLOT_TRY(checkSchedule(schedule, config));
  }
  for (const int32_t length : batch.lengths) {
    if (length >= 1 && length <= config.max_positions) continue;
    return badInput("a sequence of " + std::to_string(length) +
                    " tokens does not fit the model: 1.." + std::to_string(config.max_positions) +
                    " are allowed");
  }
  return {};
}

}  // namespace

int64_t entriesPerLayer(size_t entries, const ModelConfig& config) {
  for (const int64_t each : {int64_t{1}, config.kv_heads, config.heads}) {
    if (static_cast<int64_t>(entries) == config.layers * each) return each;
  }
  return 0;
}

bool layerBudgets(std::span<const ScheduleView> schedules, const ModelConfig& config, int64_t layer,
                  std::vector<uint32_t>* budgets) {
  const bool by_heads = std::any_of(schedules.begin(), schedules.end(), [&](ScheduleView one) {
    return static_cast<int64_t>(one.size()) != config.layers;
  });
  const int64_t heads = by_heads ? config.heads : 1;
  budgets->clear();
  for (const ScheduleView schedule : schedules) {
    const int64_t each = entriesPerLayer(schedule.size(), config);
    assert(each > 0);
    // Query heads of a KV head are neighbours.
    for (int64_t h = 0; h < heads; ++h) {
      budgets->push_back(schedule[static_cast<size_t>(layer * each + h * each / heads)]);
    }
  }
  return by_heads;
}

void exactScores(const kernels::PagedKv& kv, const kernels::DecodeInputs& in, int row, int head,
                 std::vector<float>* scores) {
  if (kv.element == kernels::Element::kFloat32) {
    exactScoresOf<float>(kv, in, row, head, scores);
  } else if (kv.element == kernels::Element::kE4M3) {
    exactScoresOf<uint8_t>(kv, in, row, head, scores);
  } else {
    assert(kv.element == kernels::Element::kBFloat16);
    exactScoresOf<uint16_t>(kv, in, row, head, scores);
  }
}

std::vector<double> tileSums(std::span<const float> scores, uint32_t tile) {
  const float top = *std::max_element(scores.begin(), scores.end());
  std::vector<double> masses((scores.size() + tile - 1) / tile);
  for (size_t j = 0; j < scores.size(); ++j) masses[j / tile] += std::exp(scores[j] - top);
  return masses;
}

struct Decoder::Impl {
  ModelConfig config;
  uint64_t parameters = 0;
  std::string digest;
  std::vector<std::string> unused;
  std::unique_ptr<DecoderBackend> backend;
};

tl::unexpected<Error> noRoomForPrompt(size_t tokens, const std::string& memory) {
  return badInput("a prompt of " + std::to_string(tokens) + " tokens finds no room in " + memory +
                  " for what is computed of it: lower spec.task.contextTokens or --kv-memory, or "
                  "have fewer workers share it");
}

Result<std::vector<float>> PromptReading::saleTau(int64_t layer, int64_t heads) const {
  if (!method.profile_tau) {
    return std::vector<float>(static_cast<size_t>(heads), static_cast<float>(method.tau));
  }
  if (tau == nullptr || static_cast<int64_t>(tau->size()) < (layer + 1) * heads) {
    return badInput("sale tau=profile has no thresholds for layer " + std::to_string(layer) +
                    ": spec.attention.prefillProfile names the file that has them");
  }
  const auto first = tau->begin() + layer * heads;
  return std::vector<float>(first, first + heads);
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

Result<std::unique_ptr<Decoder>> Decoder::load(const std::string& folder,
                                               const KvPoolOptions& options, Device device,
                                               WeightType type) {
  const bool cuda = device == Device::kCuda;
  if (!cuda && type != WeightType::kFloat32) {
    return badInput("spec.model.dtype: the CPU computes in float32 alone: set it so");
  }
  auto impl = std::make_unique<Impl>();
  ALLOT_ASSIGN(impl->config, ModelConfig::load(folder));
  ALLOT_ASSIGN(impl->config.tied_embeddings, Weights::areTied(folder, impl->config));
  ALLOT_TRY(checkWeightsFit(impl->config, device, type));
  // Before the weights, which take minutes of a large model.
  KvPoolOptions scaled = options;
  if (!cuda && options.element == kernels::Element::kE4M3 && options.key_scales.empty()) {
    ALLOT_ASSIGN(KvScales scales, readKvScales(folder, impl->config));
    scaled.key_scales = std::move(scales.keys);
    scaled.value_scales = std::move(scales.values);
  }
  Weights weights;
  if (cuda) {
    ALLOT_ASSIGN(impl->backend, makeCudaBackend(impl->config, folder, type, options, &weights));
  } else {
    ALLOT_ASSIGN(weights, Weights::load(folder, impl->config));
  }
  impl->parameters = weights.parameters;
  impl->digest = weights.digest;
  impl->unused = weights.unused;
  std::erase_if(impl->unused, isKvScale);
  if (!cuda) {
    ALLOT_ASSIGN(impl->backend, makeCpuBackend(impl->config, std::move(weights), scaled));
  }
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

const ModelConfig& Decoder::config() const { return impl_->config; }
uint64_t Decoder::parameters() const { return impl_->parameters; }
const std::string& Decoder::weightsDigest() const { return impl_->digest; }
const std::vector<std::string>& Decoder::unusedTensors() const { return impl_->unused; }
std::string Decoder::deviceName() const { return impl_->backend->deviceName(); }
size_t Decoder::weightBytes() const { return impl_->backend->weightBytes(); }
KvPool& Decoder::pool() { return impl_->backend->pool(); }
const Decoder::Times& Decoder::times() const { return impl_->backend->times; }
uint64_t Decoder::saturatedNumbers() const { return impl_->backend->saturated_numbers; }
void Decoder::measureSampling() { impl_->backend->measure_sampling = true; }

Result<Prompt> Decoder::prefill(const std::vector<int32_t>& ids, const PromptReading& reading) {
  DecoderBackend& backend = *impl_->backend;
  const ModelConfig& config = impl_->config;
  if (ids.empty() || static_cast<int64_t>(ids.size()) > config.max_positions) {
    return badInput("a prompt of " + std::to_string(ids.size()) +
                    " tokens does not fit the model: 1.." + std::to_string(config.max_positions) +
                    " are allowed");
  }
  for (const int32_t id : ids) ALLOT_TRY(checkToken(id, config));
  if (!reading.schedule.empty()) ALLOT_TRY(checkSchedule(reading.schedule, config));
  auto pages = backend.pool().allocate(backend.pool().pagesFor(ids.size()));
  if (!pages) {
    return badInput("the memory for keys and values is full: raise --kv-memory");
  }
  Prompt prompt{std::move(*pages), ids, static_cast<int32_t>(ids.size()), {}};
  PromptStatistics& statistics = prompt.statistics;
  auto logits = [&] {
    const Stopwatch watch(&statistics.seconds);
    return backend.prefill(ids, prompt.pages, reading, &statistics);
  }();
  statistics.seconds -= statistics.measuring_seconds;
  backend.times.prefill += statistics.seconds;
  if (!logits) {
    release(&prompt);
    return tl::unexpected<Error>(std::move(logits.error()));
  }
  prompt.first_logits = std::move(*logits);
  return prompt;
}

void Decoder::release(Prompt* prompt) {
  pool().release(prompt->pages);
  *prompt = {};
}

Result<std::span<const float>> Decoder::step(const StepBatch& batch,
                                             std::vector<kernels::RowStatistics>* statistics) {
  ALLOT_TRY(checkStep(batch, impl_->config));
  return impl_->backend->step(batch, statistics);
}

Result<std::span<const int32_t>> Decoder::stepAndChoose(
    const StepBatch& batch, const TokenChoice& choice, const std::vector<uint32_t>& places,
    std::vector<kernels::RowStatistics>* statistics) {
  ALLOT_TRY(checkStep(batch, impl_->config));
  return impl_->backend->stepAndChoose(batch, choice, places, statistics);
}

std::optional<std::string> Decoder::attendAgain(const kernels::MethodOptions& method,
                                                const kernels::PagedKv& kv,
                                                const kernels::DecodeInputs& in,
                                                const kernels::DecodeOutputs& out) {
  return impl_->backend->attendAgain(method, kv, in, out);
}

std::optional<std::string> Decoder::tileSums(const kernels::PagedKv& kv,
                                             const kernels::DecodeInputs& in, uint32_t tile,
                                             std::vector<std::vector<double>>* masses) {
  return impl_->backend->tileSums(kv, in, tile, masses);
}

std::optional<std::string> Decoder::rowOnHost(const kernels::PagedKv& kv,
                                              const kernels::DecodeInputs& in, int row,
                                              HostRow* held) {
  return impl_->backend->rowOnHost(kv, in, row, held);
}

}  // namespace allot
