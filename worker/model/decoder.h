#pragma once
// Decoder: a decoder-only transformer that reads prompts and decodes them in batches, with the
// sparse attention of kernels/.
//
// Owns the weights and the pool of keys and values. One thread. All results of a sequence are
// independent of the other sequences in a batch, to the bit. They depend on cpuArithmetic(), or on
// the kind of GPU. CPU and GPU differ by the order of sums
// (kernels/include/allot/kernels/cuda_decode.h), by a float32 or e4m3 cache, which only a CPU may
// have, and by bfloat16 weights, which only a GPU may have.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allot/kernels/decode.h"
#include "allot/kernels/prefill.h"
#include "core/result.h"
#include "worker/model/compute_device.h"
#include "worker/model/kv_pool.h"
#include "worker/model/model_config.h"
#include "worker/model/token_choice.h"

namespace allot {

// The draws of a row, from which layerBudgets() makes those of a layer's query heads. A view has an
// entry for each layer, for each KV head of each layer, or for each query head of each layer, layer
// by layer; its size says which. Every query head that an entry covers makes as many draws as the
// entry says. If two of the three sizes are equal, both readings give the same budgets.
using ScheduleView = std::span<const uint32_t>;

// Returns how many of a schedule's `entries` entries each layer has: 1, or the model's kv_heads or
// heads; 0 if the schedule does not fit the model.
int64_t entriesPerLayer(size_t entries, const ModelConfig& config);

// Computes the draws of a layer from one schedule a row. budgets: [rows] if every schedule has one
// entry a layer, else [rows, heads]. Returns true in the second case
// (kernels::DecodeInputs::head_budgets).
// Requires: each schedule fits the model.
bool layerBudgets(std::span<const ScheduleView> schedules, const ModelConfig& config, int64_t layer,
                  std::vector<uint32_t>* budgets);

// ---- Exact scores and tile weights of one layer, for probes. Pure functions, any thread.

// Keys and values of one row and layer on the host, in bfloat16 or float32. kv and `pages` describe
// a step of this row alone. On the CPU kv is the pool's.
struct HostRow {
  kernels::PagedKv kv;
  std::vector<int32_t> pages;
  std::vector<uint8_t> keys = {}, values = {};  // if kv is a copy: its memory
};

// Computes the scaled scores of one query head over the keys that its row attends to, oldest first.
// Requires: in and kv are on the host; the head size is a multiple of 16.
void exactScores(const kernels::PagedKv& kv, const kernels::DecodeInputs& in, int row, int head,
                 std::vector<float>* scores);

// Returns the sum of exp(score - largest of all scores) over each tile of `tile` keys. scores: [n].
// Requires: n > 0 and tile > 0.
std::vector<double> tileSums(std::span<const float> scores, uint32_t tile);

// Is called for each layer and chunk of a prompt, with all queries of the chunk. The chunk's keys
// and values are in the cache by then. Arguments are borrowed for the call. An error ends the
// prefill.
using PromptObserver = std::function<Status(const kernels::PagedKv& kv,
                                            const kernels::PrefillInputs& in, int64_t layer)>;

// How a prompt is read. A GPU supports fewer methods (kernels::gpuUnsupported).
struct PromptReading {
  kernels::MethodOptions method = {};  // of kernels::Phase::kPrefill
  // [layers, heads], thresholds for sale tau=profile; outlives the call.
  const std::vector<float>* tau = nullptr;
  // Draws per head and position, for a method that draws, in the form of a ScheduleView; else
  // empty.
  std::vector<uint32_t> schedule = {};
  uint64_t seed = 0;
  uint32_t sequence = 0;  // names the prompt's random stream
  // For methods that choose blocks of keys: also computes dense attention, for kept_mass.
  bool measures_kept_mass = false;
  PromptObserver observer = nullptr;  // optional; a GPU ignores it

  // Returns SALE's thresholds of a layer, [heads]. kUsage if `tau` is needed and lacks them.
  Result<std::vector<float>> saleTau(int64_t layer, int64_t heads) const;
};

// The figures of one prefill, summed over layers, heads and positions.
struct PromptStatistics {
  kernels::PrefillStatistics blocks;  // of attention by pairs of blocks
  kernels::RowStatistics rows;        // of attention query by query
  double seconds = 0;                 // of the whole prefill, without measuring_seconds
  double selection_seconds = 0;       // of choosing blocks; a part of `seconds`
  double measuring_seconds = 0;       // of the dense attention for kept_mass
  // The share of a query's exact attention that is on the keys of its blocks, if measured.
  uint64_t kept_queries = 0;   // measured queries, each once a head and layer
  double kept_mass = 0;        // sum of the shares
  double least_kept_mass = 1;  // smallest share
};

// A prefilled prompt. Its pages belong to the decoder's pool; release() returns them.
struct Prompt {
  std::vector<int32_t> pages;
  std::vector<int32_t> ids;         // its tokens, [length]
  int32_t length = 0;               // positions filled
  std::vector<float> first_logits;  // [vocab], after the last prompt token
  PromptStatistics statistics = {};
};

// Is called after the attention of each layer with the attention's inputs and its output, [rows,
// heads, head_dim]. Arguments are borrowed for the call. Only kv's memory is on the decoder's
// device, all else on the host. The probe may call Decoder's functions for probes.
using AttentionProbe = std::function<void(const kernels::PagedKv& kv,
                                          const kernels::DecodeInputs& in, const float* attended)>;

// One decode step of a batch. All arrays have one entry a row.
struct StepBatch {
  kernels::MethodOptions method;
  // The only layer that uses the method; the others are dense whatever the schedules say. Nothing:
  // all layers use it.
  std::optional<uint32_t> only_layer = std::nullopt;
  uint64_t seed = 0;
  std::vector<int32_t> tokens;   // inputs of the step
  std::vector<int32_t> lengths;  // positions in the cache, the input token included
  std::vector<uint32_t> sequences;
  std::vector<uint32_t> steps;          // of kernels::DecodeInputs
  std::vector<ScheduleView> schedules;  // draws per head, borrowed
  std::vector<int32_t> page_table;      // [rows, max_pages]
  int max_pages = 0;
  AttentionProbe probe = nullptr;  // optional
};

class Decoder {
 public:
  // Reads the configuration and the weights of a Hugging Face folder or a GGUF file. kUsage: a
  // damaged or unsupported file (named), bfloat16 weights on the CPU, no usable GPU, too little
  // memory. kIo: a file cannot be read.
  static Result<std::unique_ptr<Decoder>> load(const std::string& folder,
                                               const KvPoolOptions& options,
                                               Device device = Device::kCpu,
                                               WeightType type = WeightType::kFloat32);
  ~Decoder();

  const ModelConfig& config() const;
  uint64_t parameters() const;
  const std::string& weightsDigest() const;
  const std::vector<std::string>& unusedTensors() const;  // Weights::unused
  std::string deviceName() const;                         // "cpu", "NVIDIA H200"
  size_t weightBytes() const;                             // in memory, in all layouts
  KvPool& pool();

  // Reads a prompt of 1..max_positions ids, each below vocab_size; other ids are kUsage. kUsage
  // also: the schedule does not fit the model, the pool has too few free pages, the prompt's
  // activations do not fit the memory, a SALE profile is missing, or the GPU lacks the method.
  // kData: a number is not finite, the pool lacks data that the method reads, or a GPU has no room
  // for the kernels' workspace. Errors of reading.observer.
  Result<Prompt> prefill(const std::vector<int32_t>& ids, const PromptReading& reading = {});
  // Returns the pages to the pool and clears the prompt.
  void release(Prompt* prompt);

  // Appends the tokens and returns logits [rows, vocab], valid until the next call. Adds to
  // statistics, [rows] or null. Does not check that logits are finite.
  // kUsage: a token outside the vocabulary, a length outside 1..max_positions, a schedule that does
  // not fit the model.
  // kData, naming the layer: a query, key, value or score is not finite, a row does not fit its
  // pages, or the pool lacks data that the method reads. The newest positions are then unspecified.
  // A GPU reports this after the whole step and does not name the layer. It also reports kData if
  // one row's work arrays do not fit its memory.
  // A batch that exceeds a GPU's memory is done in parts, unless it is probed.
  Result<std::span<const float>> step(const StepBatch& batch,
                                      std::vector<kernels::RowStatistics>* statistics);

  // Does step() and returns the next token of each row: chooseToken() of the row's logits with the
  // batch's seed, the row's sequence, and as `step` the row's entry of `places`, [rows]. The device
  // chooses and does not know the tokens seen so far: a repetition penalty is not possible. A GPU
  // may round a token's weight differently, by 2^-36 of the likeliest token's. The result is valid
  // until the next call. Errors: step()'s, and kData if a logit is not finite.
  Result<std::span<const int32_t>> stepAndChoose(const StepBatch& batch, const TokenChoice& choice,
                                                 const std::vector<uint32_t>& places,
                                                 std::vector<kernels::RowStatistics>* statistics);

  // ---- Only while a probe is called, for its layer and rows. All pointers are the host's, except
  // kv's. An error is a sentence.

  // Runs kernels::decodeAttention() on the decoder's device.
  [[nodiscard]] std::optional<std::string> attendAgain(const kernels::MethodOptions& method,
                                                       const kernels::PagedKv& kv,
                                                       const kernels::DecodeInputs& in,
                                                       const kernels::DecodeOutputs& out);
  // Sets masses[row * heads + head] to tileSums() of the head's scores.
  [[nodiscard]] std::optional<std::string> tileSums(const kernels::PagedKv& kv,
                                                    const kernels::DecodeInputs& in, uint32_t tile,
                                                    std::vector<std::vector<double>>* masses);
  // Sets `held` to the row's keys and values: the pool's on the CPU, a copy from a GPU.
  [[nodiscard]] std::optional<std::string> rowOnHost(const kernels::PagedKv& kv,
                                                     const kernels::DecodeInputs& in, int row,
                                                     HostRow* held);

  // Seconds of prefills and steps so far.
  struct Times {
    double prefill = 0;
    double projections = 0;   // norms, rotations and activations included
    double attention = 0;     // sampling included
    double sampling = 0;      // choosing entries; only after measureSampling()
    double gpu_steps = 0;     // whole steps on a GPU; the three above are then 0
    uint64_t gpu_graphs = 0;  // number of steps, or parts of them, that were one CUDA graph
  };
  const Times& times() const;
  // Returns how many numbers of keys and values were beyond the range of a cache of e4m3 numbers.
  uint64_t saturatedNumbers() const;
  // Starts to time every head's sampling on the CPU, which costs about 1 %: for benchmarks.
  void measureSampling();

 private:
  struct Impl;
  explicit Decoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace allot
