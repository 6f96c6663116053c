// allot-bench prefill: what reading a prompt costs in one attention layer on a GPU, by method, held
// against our dense attention and the peers' in the same run. --help says how it measures. Prints a
// table; gates nothing.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "allot/kernels/cuda_prefill.h"
#include "allot/kernels/paged_kv.h"
#include "kernels/bench/benches.h"
#include "kernels/bench/cuda_fill.h"
#include "kernels/bench/cuda_memory.h"
#include "kernels/bench/cuda_timer.h"
#include "kernels/bench/peer.h"

namespace allot::bench {
namespace {

namespace cuda = kernels::cuda;
using kernels::MethodOptions;
using Refusal = std::optional<std::string>;

struct Options : LayerOptions {
  Options() { warm_up = 1, samples = 5, peers = {"torch", "flashinfer"}; }
  std::vector<int> keys = {8192, 32768, 131072};
  std::vector<std::string> methods = {"sample-attention", "sale", "skip-softmax", "sampled-blocks"};
  std::vector<double> densities = {0.1, 0.25, 0.5};
  int chunk = 0;
};

// The most positions that the worker reads at once.
constexpr int kWorkerChunk = 4096;

bool isDense(const MethodOptions& method) {
  return kernels::traitsOf(method.method).prompts == kernels::Prompts::kAllKeys;
}

PeerQuestion questionOf(const Options& options, int keys) {
  return questionOf(options, PeerQuestion::Phase::kPrefill, 1, keys);
}

// One layer's prompt on the device, and how it is read.
class Layer {
 public:
  Layer(const Options& options, int keys, cudaStream_t stream)
      : options_(options), keys_(keys), stream_(stream) {
    const auto d = static_cast<size_t>(options.head_dim);
    const int pages = (keys + options.page_size - 1) / options.page_size;
    const size_t entries = static_cast<size_t>(pages) * options.page_size * options.kv_heads;
    keys_memory_.need(entries * d * 2);
    values_memory_.need(entries * d * 2);
    queries_.need(width() * static_cast<size_t>(keys) * sizeof(float));
    rounded_.need(width() * static_cast<size_t>(keys) * 2);
    out_.need(width() * static_cast<size_t>(keys) * 2);
    statistics_.need(sizeof(kernels::PrefillStatistics));
    std::vector<int32_t> table(pages);
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937_64(options.seed));
    table_.upload(table);
    kv_ = {.element = kernels::Element::kBFloat16,
           .keys = keys_memory_.as<void>(),
           .values = values_memory_.as<void>(),
           .pages = pages,
           .kv_heads = options.kv_heads,
           .page_size = options.page_size,
           .head_dim = options.head_dim,
           .shadows = {}};
    fillPrompt({.keys = kv_.keys,
                .values = kv_.values,
                .queries = queries_.as<float>(),
                .rounded = rounded_.as<void>(),
                .page_table = table_.as<int32_t>(),
                .count = keys,
                .heads = options.heads,
                .kv_heads = options.kv_heads,
                .page_size = options.page_size,
                .head_dim = options.head_dim,
                .seed = options.seed},
               stream);
  }

  Refusal plan(const MethodOptions& method, bool whole) {
    method_ = method;
    chunk_ = whole ? keys_ : options_.chunk > 0 ? options_.chunk : kWorkerChunk;
    tau_.upload(
        std::vector<float>(static_cast<size_t>(options_.heads), static_cast<float>(method.tau)));
    auto why = workspace_.plan(
        method, kv_, {.heads = options_.heads, .count = std::min(chunk_, keys_), .keys = keys_});
    if (!why && !whole && options_.chunk == 0 && isDense(method)) {
      chunk_ = workspace_.densePositions(options_.heads, chunk_);
    }
    return why;
  }
  int chunk() const { return chunk_; }

  enum class Parts { kAll, kSelection };
  // Launches the whole prompt, chunk by chunk, with the worker's types: bfloat16 outputs, and
  // queries that are bfloat16 where the method takes them.
  Refusal read(Parts parts, bool statistics, uint32_t budget) {
    const kernels::Prompts by = kernels::traitsOf(method_.method).prompts;
    const bool rounds = workspace_.takesRounded();
    for (int first = 0; first < keys_; first += chunk_) {
      kernels::PrefillInputs in = inputs(first, std::min(chunk_, keys_ - first));
      const size_t at = width() * static_cast<size_t>(first);
      if (rounds) {
        in.queries = nullptr;
        in.rounded = rounded_.as<uint16_t>() + at;
      }
      const kernels::PrefillOutputs to = {
          .statistics = statistics ? statistics_.as<kernels::PrefillStatistics>() : nullptr,
          .rounded = out_.as<uint16_t>() + at};
      cuda::KeyBits list;
      if (by == kernels::Prompts::kDrawnBlocks) {
        if (auto why = cuda::attendSampledBlocks(kv_, in, {.seed = options_.seed, .budget = budget},
                                                 &workspace_, to, stream_)) {
          return why;
        }
        continue;
      }
      if (kernels::makesLists(method_)) {
        if (auto why = cuda::selectBlocks(method_, kv_, in, tau_.as<float>(), &workspace_, &list,
                                          stream_)) {
          return why;
        }
      }
      if (parts == Parts::kSelection) continue;
      in.skip = kernels::skipThreshold(method_);
      if (auto why = cuda::attendBlocks(kv_, in, list, &workspace_, to, stream_)) return why;
    }
    return std::nullopt;
  }

  kernels::PrefillStatistics statistics(uint32_t budget) {
    must(cudaMemsetAsync(statistics_.as<void>(), 0, sizeof(kernels::PrefillStatistics), stream_),
         "clearing statistics");
    if (auto why = read(Parts::kAll, true, budget)) stop(*why);
    if (auto why = workspace_.failure(stream_)) stop(*why);
    return statistics_.download<kernels::PrefillStatistics>(1)[0];
  }

  std::vector<float> output() {
    must(cudaStreamSynchronize(stream_), "reading a prompt");
    const auto rounded = out_.download<uint16_t>(width() * static_cast<size_t>(keys_));
    std::vector<float> out(rounded.size());
    std::transform(rounded.begin(), rounded.end(), out.begin(), kernels::fromBFloat16);
    return out;
  }

  [[noreturn]] static void stop(const std::string& why) { std::exit(refuse(why, 70)); }

 private:
  size_t width() const { return static_cast<size_t>(options_.heads) * options_.head_dim; }
  kernels::PrefillInputs inputs(int first, int count) const {
    return {.queries = queries_.as<float>() + width() * static_cast<size_t>(first),
            .page_table = table_.as<int32_t>(),
            .max_pages = static_cast<int>(kv_.pages),
            .first = first,
            .count = count,
            .heads = options_.heads,
            .scale = 1.0f / std::sqrt(static_cast<float>(options_.head_dim))};
  }

  const Options& options_;
  int keys_, chunk_ = 0;
  cudaStream_t stream_;
  DeviceMemory keys_memory_, values_memory_, queries_, rounded_, out_, statistics_, table_, tau_;
  kernels::PagedKv kv_;
  MethodOptions method_;
  cuda::PrefillWorkspace workspace_;
};

// The parameter that says how much a method reads.
struct Strength {
  const char* name;
  double MethodOptions::*field;
  double decades;  // 0: the parameter is the strength; else 10^(-decades * strength)
};
// Returns nothing for a method whose budget of draws is its strength.
std::optional<Strength> strengthOf(const MethodOptions& method) {
  if (kernels::usesBudget(method)) return std::nullopt;
  if (kernels::hasHeadThresholds(method)) return Strength{"tau", &MethodOptions::tau, 5};
  if (kernels::makesLists(method)) return Strength{"alpha", &MethodOptions::alpha_column, 0};
  return Strength{"threshold", &MethodOptions::threshold, 6};
}

// Returns the method, with the budget of a method that draws, at a strength: 0 reads least, 1 most.
MethodOptions atStrength(const MethodOptions& of, double strength, int keys, uint32_t* budget) {
  MethodOptions method = of;
  const auto parameter = strengthOf(of);
  if (!parameter) {
    *budget = static_cast<uint32_t>(std::lround(strength * keys / 64));
  } else if (parameter->decades > 0) {
    method.*parameter->field = std::pow(10.0, -parameter->decades * strength) * 0.999;
  } else {
    method.alpha_column = method.alpha_slash = std::max(strength, 1e-6);
  }
  return method;
}

std::string strengthText(const MethodOptions& method, uint32_t budget) {
  const auto parameter = strengthOf(method);
  if (!parameter) return std::to_string(budget) + " draws";
  char text[80];
  std::snprintf(text, sizeof text, parameter->decades > 0 ? "%s %.3g" : "%s %.4g", parameter->name,
                method.*parameter->field);
  return text;
}

double share(uint64_t part, uint64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

class Bench {
 public:
  using Peers = std::vector<std::unique_ptr<Peer>>;

  Bench(const Options& options, const Peers& peers, cudaStream_t stream)
      : options_(options),
        peers_(peers),
        stream_(stream),
        timer_(options.warm_up, options.samples, stream) {}

  void run(int keys) {
    keys_ = keys;
    Layer layer(options_, keys, stream_);
    std::printf(
        "\n%d tokens, %d heads over %d, %d channels, bf16, pages of %d in random order, "
        "methods in chunks of %d\n",
        keys, options_.heads, options_.kv_heads, options_.head_dim, options_.page_size,
        options_.chunk > 0 ? options_.chunk : kWorkerChunk);
    answers_.clear();
    for (const auto& peer : peers_) ask(peer.get());
    std::printf("%-18s %-18s %9s %9s %9s %12s %7s %7s %7s %9s", "method", "", "ms", "TFLOP/s",
                "attended", "selection", "keys", "values", "error", "x dense");
    for (const Answer& answer : answers_) std::printf(" %14s", ("of " + answer.label).c_str());
    std::printf("\n");
    dense(&layer);
    for (const Answer& answer : answers_) print(answer);
    for (const std::string& text : options_.methods) {
      for (const double density : options_.densities) measure(&layer, text, density);
    }
    std::fflush(stdout);
  }

 private:
  // A peer's answer for the prompt.
  struct Answer {
    std::string label, version, way, ways;
    double ms;
  };

  // Returns 4 operations for each channel of each pair that causality leaves.
  double denseOperations() const {
    return 4.0 * options_.head_dim * options_.heads * 0.5 * keys_ * (keys_ + 1.0);
  }

  Timing timeOf(Layer* layer, Layer::Parts parts, uint32_t budget) {
    Timing timing;
    if (auto why = timer_.time([&] { return layer->read(parts, false, budget); }, [] {}, &timing)) {
      Layer::stop(*why);
    }
    return timing;
  }

  // Prints the share of each peer's speed that this time has.
  void printShares(double ms) const {
    for (const Answer& answer : answers_) std::printf(" %14.2f", answer.ms / ms);
    std::printf("\n");
  }

  void print(const std::string& name, const std::string& what, double ms, double selection,
             const kernels::PrefillStatistics& read, double error) const {
    const double keys = 2 * share(read.key_bytes, read.dense_bytes);
    const double values = 2 * share(read.value_bytes, read.dense_bytes);
    const double attended = denseOperations() * (keys + values) / 2;
    std::printf("%-18s %-18s %9.3f %9.0f %9.0f %7.3f %3.0f%% %6.1f%% %6.1f%% %7.4f %9.2f",
                name.c_str(), what.c_str(), ms, denseOperations() / ms / 1e9,
                attended / (ms - selection) / 1e9, selection, 100 * selection / ms, 100 * keys,
                100 * values, error, dense_ms_ / ms);
    printShares(ms);
  }

  void print(const Answer& answer) const {
    const double rate = denseOperations() / answer.ms / 1e9;
    std::printf("%-18s %-18s %9.3f %9.0f %9.0f %36s %9.2f", answer.version.c_str(),
                answer.way.c_str(), answer.ms, rate, rate, "", dense_ms_ / answer.ms);
    printShares(answer.ms);
    if (!answer.ways.empty()) std::printf("  %s\n", answer.ways.c_str());
  }

  void dense(Layer* layer) {
    for (const bool whole : {true, false}) {
      if (auto why = layer->plan({}, whole)) Layer::stop(*why);
      const auto read = layer->statistics(0);
      exact_ = layer->output();
      dense_ms_ = timeOf(layer, Layer::Parts::kAll, 0).median;
      const std::string how = whole ? "one call" : "chunks of " + std::to_string(layer->chunk());
      print("dense", how, dense_ms_, 0, read, 0);
    }
  }

  void ask(Peer* peer) {
    if (peer->version().empty()) return;
    const auto answer = peer->ask(questionOf(options_, keys_));
    if (!answer.contains("ms")) {
      std::printf("%s: %s\n", peer->label().c_str(), answer.value("error", "").c_str());
      return;
    }
    answers_.push_back({.label = peer->label(),
                        .version = peer->version(),
                        .way = answer.value("way", ""),
                        .ways = answer.contains("ways") ? answer["ways"].dump() : "",
                        .ms = answer["ms"].get<double>()});
  }

  // Measures the method at the largest strength that reads no more than `density` of the values.
  void measure(Layer* layer, const std::string& text, double density) {
    MethodOptions of;
    if (auto why = kernels::parseMethod(text, &of, kernels::Phase::kPrefill)) {
      Layer::stop(*why);
    }
    double low = 0, high = 1;
    uint32_t budget = 0;
    kernels::PrefillStatistics read;
    MethodOptions method = of;
    for (int i = 0; i < 10; ++i) {
      const double middle = i == 9 ? low : (low + high) / 2;
      method = atStrength(of, middle, keys_, &budget);
      if (auto why = layer->plan(method, false)) Layer::stop(*why);
      read = layer->statistics(budget);
      (2 * share(read.value_bytes, read.dense_bytes) <= density ? low : high) = middle;
    }
    const std::vector<float> out = layer->output();
    double gap = 0, norm = 0;
    for (size_t i = 0; i < out.size(); i += 61) {
      const double difference = double{out[i]} - double{exact_[i]};
      gap += difference * difference;
      norm += double{exact_[i]} * double{exact_[i]};
    }
    const double selection =
        kernels::makesLists(method) ? timeOf(layer, Layer::Parts::kSelection, budget).median : 0;
    print(text, strengthText(method, budget), timeOf(layer, Layer::Parts::kAll, budget).median,
          selection, read, std::sqrt(gap / norm));
  }

  const Options& options_;
  const Peers& peers_;
  cudaStream_t stream_;
  CudaTimer timer_;
  int keys_ = 0;
  double dense_ms_ = 0;
  std::vector<float> exact_;
  std::vector<Answer> answers_;
};

}  // namespace

int prefillOnGpu(int argc, char** argv) {
  Options options;
  CLI::App app(
      "What reading a prompt costs in one attention layer on a GPU.\n\n"
      "A prompt whose scores are like a model's (neighbours, keys that everybody looks at, noise)\n"
      "is read chunk by chunk, as the worker reads it; a method's strength (alpha, tau, "
      "threshold,\n"
      "draws) is set so that it reads at most --density of the values. Pages are in random\n"
      "order, outputs bfloat16. Times are medians of replayed CUDA graphs. TFLOP/s are those of\n"
      "dense causal attention in that time; attended: those of the keys and values that were\n"
      "attended to, in the time beside the selection. keys and values are shares of what dense\n"
      "reads; error is the distance to dense outputs, relative. A peer's column is the share of\n"
      "its speed: its time over this one.");
  app.footer(
      "Examples:\n  allot-bench prefill\n  allot-bench prefill --keys 131072 --density 0.1\n"
      "  allot-bench prefill --heads 28 --kv-heads 4 --methods sample-attention");
  app.add_option("--keys", options.keys, "Prompt lengths")->capture_default_str();
  app.add_option("--methods", options.methods, "Methods beside dense")->capture_default_str();
  app.add_option("--density", options.densities, "Shares of the values that are read")
      ->check(CLI::Range(0.001, 1.0))
      ->capture_default_str();
  app.add_option("--heads", options.heads)->capture_default_str();
  app.add_option("--kv-heads", options.kv_heads)->capture_default_str();
  app.add_option("--head-dim", options.head_dim, "64 or 128")->capture_default_str();
  app.add_option("--page-size", options.page_size)->capture_default_str();
  app.add_option("--chunk", options.chunk, "Tokens read at once; 0: as the worker reads them")
      ->capture_default_str();
  app.add_option("--samples", options.samples)->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_option("--peers", options.peers,
                 "Measured too: torch and flashinfer where they are installed, and programs of "
                 "your own by their path (kernels/bench/README.md)")
      ->delimiter(',')
      ->capture_default_str();
  app.add_flag_callback(
      "--no-peers,--no-sdpa", [&] { options.peers.clear(); }, "Leave them out");
  app.add_option("--python", options.python, "Python that has the peers")->capture_default_str();
  app.add_flag("--try-peers", options.try_peers,
               "Ask the peers alone, print what they answer, and end: needs no GPU itself");
  CLI11_PARSE(app, argc, argv);
  if (const std::string wrong = wrongPeers(options.peers); !wrong.empty()) {
    return refuse("--peers: " + wrong);
  }
  if (options.try_peers) {
    std::vector<PeerQuestion> questions;
    for (const int keys : options.keys) questions.push_back(questionOf(options, keys));
    return tryPeers(options.peers, options.python, questions) ? 0 : kUnavailable;
  }
  if (const auto absent = cuda::unavailable()) return refuse(*absent, kUnavailable);
  Bench::Peers peers;
  for (const std::string& name : options.peers) {
    const auto& peer = *peers.emplace_back(std::make_unique<Peer>(name, options.python));
    if (!peer.absence().empty()) {
      std::printf("%s: left out, %s\n", peer.label().c_str(), peer.absence().c_str());
    }
  }
  cudaStream_t stream = nullptr;
  must(cudaSetDevice(0), "opening the device");
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  cudaDeviceProp properties;
  must(cudaGetDeviceProperties(&properties, 0), "asking for the device");
  std::printf("%s\n", properties.name);
  Bench bench(options, peers, stream);
  for (const int keys : options.keys) bench.run(keys);
  return 0;
}

}  // namespace allot::bench
