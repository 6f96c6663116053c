#pragma once
// Decoder: a decoder-only transformer that reads prompts and decodes them in batches with the
// sparse attention of kernels/.
//
// Owns the weights and the pool of keys and values. One thread. Everything it computes for a
// sequence is independent of the other sequences in a batch, to the bit; on the CPU it is the same
// on every machine, on a GPU on every GPU of one model. Between the two other sums make a
// difference, which kernels/include/allot/kernels/cuda_decode.h tells, and so does a float32 cache,
// which a CPU may have.
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
#include "worker/model/attended_layer.h"
#include "worker/model/compute_device.h"
#include "worker/model/head_schedule.h"
#include "worker/model/kv_pool.h"
#include "worker/model/model_config.h"
#include "worker/model/token_choice.h"

namespace allot {

// Called for each layer and chunk of a prompt, once its keys and values are in the cache, with all
// of the chunk's queries; all of it is borrowed for the call. An error ends the prefill.
using PromptObserver = std::function<Status(const kernels::PagedKv& kv,
                                            const kernels::PrefillInputs& in, int64_t layer)>;

// How a prompt is read. A GPU reads it by fewer methods (kernels::gpuUnsupported).
struct PromptReading {
  kernels::MethodOptions method = {};  // of kernels::Phase::kPrefill
  // Of sale tau=profile: thresholds, [layers, heads]; outlives the call.
  const std::vector<float>* tau = nullptr;
  // Of a method that draws: per head and position, as head_schedule.h has them; else empty.
  std::vector<uint32_t> schedule = {};
  uint64_t seed = 0;
  uint32_t sequence = 0;  // names its draws
  // Where blocks of keys are chosen: computes everything once more, densely.
  bool measures_kept_mass = false;
  PromptObserver observer = nullptr;  // optional; on the CPU only

  // SALE's thresholds of a layer, [heads]; kUsage where they are a profile's and there is none.
  Result<std::vector<float>> saleTau(int64_t layer, int64_t heads) const;
};

// What reading it came to, summed over layers, heads and positions.
struct PromptStatistics {
  kernels::PrefillStatistics blocks;  // where pairs of blocks are attended to
  kernels::RowStatistics rows;        // where each query is for itself
  double seconds = 0;                 // of the whole prefill, what follows left out
  double selection_seconds = 0;       // of those, choosing blocks
  double measuring_seconds = 0;
  // Share of a query's exact attention that is on the keys of its blocks, if it is measured.
  uint64_t kept_queries = 0;
  double kept_mass = 0;  // sum
  double least_kept_mass = 1;
};

// A prefilled prompt. Its pages belong to the decoder's pool; release() gives them back.
struct Prompt {
  std::vector<int32_t> pages;
  std::vector<int32_t> ids;         // its tokens, [length]
  int32_t length = 0;               // positions filled
  std::vector<float> first_logits;  // [vocab], after the last prompt token
  PromptStatistics statistics = {};
};

// Called after the attention of each layer with what it was given and its output, [rows, heads,
// head_dim]; all of it is borrowed for the call. Everything is on the host but for what kv points
// to, which is the decoder's device's; Decoder answers questions about it meanwhile.
using AttentionProbe = std::function<void(const kernels::PagedKv& kv,
                                          const kernels::DecodeInputs& in, const float* attended)>;

// One decode step of a batch. All arrays have one entry a row.
struct StepBatch {
  kernels::MethodOptions method;
  // The one layer that has the method; the others are dense, whatever the schedules say. Nothing:
  // all layers have it.
  std::optional<uint32_t> only_layer = std::nullopt;
  uint64_t seed = 0;
  std::vector<int32_t> tokens;   // to feed
  std::vector<int32_t> lengths;  // positions in the cache once the token is in
  std::vector<uint32_t> sequences;
  std::vector<uint32_t> steps;
  std::vector<ScheduleView> schedules;  // draws per head, as head_schedule.h has them; borrowed
  std::vector<int32_t> page_table;      // [rows, max_pages]
  int max_pages = 0;
  AttentionProbe probe = nullptr;  // optional
};

class Decoder {
 public:
  // Reads config.json and the weights of `folder` (kUsage errors name file and tensor). On a GPU
  // kUsage, too, where there is none to be used. Where the memory is too small it is said.
  static Result<std::unique_ptr<Decoder>> load(const std::string& folder,
                                               const KvPoolOptions& options,
                                               Device device = Device::kCpu,
                                               WeightType type = WeightType::kFloat32);
  ~Decoder();

  const ModelConfig& config() const;
  uint64_t parameters() const;
  const std::string& weightsDigest() const;
  std::string deviceName() const;  // "cpu", "NVIDIA H200"
  size_t weightBytes() const;      // in memory, in all layouts
  KvPool& pool();

  // Prefill of ids (1..max_positions of them, each below vocab_size: checked, kUsage). Fails with
  // kUsage when the pool has too few free pages, when there is no memory for what is computed of so
  // long a prompt, or when the device does not have the method; with kData when a number is not
  // finite or the pool lacks what the method reads.
  Result<Prompt> prefill(const std::vector<int32_t>& ids, const PromptReading& reading = {});
  void release(Prompt* prompt);

  // Appends the tokens, returns logits [rows, vocab] (valid until the next call). Statistics,
  // [rows], are added to. kUsage: a token outside the vocabulary, a length beyond max_positions,
  // a schedule that does not fit the model.
  // kData, naming layer and tensor, when a number is not finite, a row does not fit its pages or
  // the pool lacks what the method reads; the newest positions are then unspecified. A GPU says so
  // after the whole step and does not name the layer.
  // A batch that a GPU has no room for is done in parts, unless it is probed: a row does not depend
  // on those beside it.
  Result<std::span<const float>> step(const StepBatch& batch,
                                      std::vector<kernels::RowStatistics>* statistics);

  // step(), and the token that comes next in each row: chooseToken() of its logits with the batch's
  // seed and sequences and these `places` [rows], made where the logits are (so that it is for
  // choices without a repetition penalty: they do not know what was seen). On a GPU a mass may be
  // rounded otherwise, 2^-36 of the likeliest one's. Valid until the next call. Errors: step()'s;
  // kData when a logit is not finite.
  Result<std::span<const int32_t>> stepAndChoose(const StepBatch& batch, const TokenChoice& choice,
                                                 const std::vector<uint32_t>& places,
                                                 std::vector<kernels::RowStatistics>* statistics);

  // ---- While a probe is called, of the layer and rows that it was given. All pointers of `in` and
  // `out` are the host's, all but kv's; what goes wrong is a sentence.

  // kernels::decodeAttention() on the decoder's device.
  [[nodiscard]] std::optional<std::string> attendAgain(const kernels::MethodOptions& method,
                                                       const kernels::PagedKv& kv,
                                                       const kernels::DecodeInputs& in,
                                                       const kernels::DecodeOutputs& out);
  // Exact attention's mass of each tile of `tile` keys, relative to a row and head's own largest
  // score: [rows * heads] lists, from the oldest key that the row attends to on.
  [[nodiscard]] std::optional<std::string> tileSums(const kernels::PagedKv& kv,
                                                    const kernels::DecodeInputs& in, uint32_t tile,
                                                    std::vector<std::vector<double>>* masses);
  [[nodiscard]] std::optional<std::string> rowOnHost(const kernels::PagedKv& kv,
                                                     const kernels::DecodeInputs& in, int row,
                                                     HostRow* held);

  // Where step() spent its time so far, in seconds.
  struct Times {
    double prefill = 0;
    double projections = 0;   // and norms, positions, activations
    double attention = 0;     // the sampling included
    double sampling = 0;      // choosing rows; only after measureSampling()
    double gpu_steps = 0;     // whole steps on a GPU, in place of the three above
    uint64_t gpu_graphs = 0;  // steps, or parts of them, that were one CUDA graph
  };
  const Times& times() const;
  // Reads the clock around every head's sampling from now on (about 1 % slower): for benchmarks.
  void measureSampling();

 private:
  struct Impl;
  explicit Decoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace allot
