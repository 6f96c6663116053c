// allot-bench prefill: what reading a prompt costs in one attention layer on a GPU, by method, held
// against our dense attention and PyTorch's in the same run. --help says how it measures. Prints a
// table; gates nothing.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "allot/kernels/cuda_prefill.h"
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
  Options() { warm_up = 1, samples = 5; }
  std::vector<int> keys = {8192, 32768, 131072};
  std::vector<std::string> methods = {"sample-attention", "sale", "skip-softmax", "sampled-blocks"};
  double density = 0.25;
  int chunk = 4096;
};

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
    queries_.need(static_cast<size_t>(keys) * options.heads * d * sizeof(float));
    out_.need(static_cast<size_t>(keys) * options.heads * d * sizeof(float));
    statistics_.need(sizeof(kernels::PrefillStatistics));
    std::vector<int32_t> table(pages);
    std::iota(table.begin(), table.end(), 0);
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
    chunk_ = whole ? keys_ : options_.chunk;
    tau_.upload(
        std::vector<float>(static_cast<size_t>(options_.heads), static_cast<float>(method.tau)));
    return workspace_.plan(
        method, kv_, {.heads = options_.heads, .count = std::min(chunk_, keys_), .keys = keys_});
  }

  enum class Parts { kAll, kSelection };
  // Launches the whole prompt, chunk by chunk.
  Refusal read(Parts parts, bool statistics, uint32_t budget) {
    for (int first = 0; first < keys_; first += chunk_) {
      kernels::PrefillInputs in = inputs(first, std::min(chunk_, keys_ - first));
      const kernels::PrefillOutputs to = {
          .out = out_.as<float>() + width() * static_cast<size_t>(first),
          .statistics = statistics ? statistics_.as<kernels::PrefillStatistics>() : nullptr};
      cuda::KeyBits list;
      if (kernels::traitsOf(method_.method).prompts == kernels::Prompts::kDrawnBlocks) {
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
    return out_.download<float>(width() * static_cast<size_t>(keys_));
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
  DeviceMemory keys_memory_, values_memory_, queries_, out_, statistics_, table_, tau_;
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
    std::printf("\n%d tokens, %d heads over %d, %d channels, bf16, chunks of %d\n", keys,
                options_.heads, options_.kv_heads, options_.head_dim, options_.chunk);
    std::printf("%-18s %-18s %9s %9s %12s %7s %7s %7s %9s\n", "method", "", "ms", "TFLOP/s",
                "selection", "keys", "values", "error", "x dense");
    dense(&layer);
    for (const auto& peer : peers_) askPeer(peer.get());
    for (const std::string& text : options_.methods) measure(&layer, text);
    std::fflush(stdout);
  }

 private:
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

  void print(const std::string& name, const std::string& what, double ms, double selection,
             const kernels::PrefillStatistics& read, double error) {
    std::printf("%-18s %-18s %9.3f %9.0f %7.3f %3.0f%% %6.1f%% %6.1f%% %7.4f %9.2f\n", name.c_str(),
                what.c_str(), ms, denseOperations() / ms / 1e9, selection, 100 * selection / ms,
                200 * share(read.key_bytes, read.dense_bytes),
                200 * share(read.value_bytes, read.dense_bytes), error, dense_ms_ / ms);
  }

  void dense(Layer* layer) {
    for (const bool whole : {true, false}) {
      if (auto why = layer->plan({}, whole)) Layer::stop(*why);
      const auto read = layer->statistics(0);
      exact_ = layer->output();
      dense_ms_ = timeOf(layer, Layer::Parts::kAll, 0).median;
      print("dense", whole ? "one call" : "", dense_ms_, 0, read, 0);
    }
  }

  void askPeer(Peer* peer) {
    if (peer->version().empty()) return;
    const auto answer = peer->ask(questionOf(options_, keys_));
    if (!answer.contains("ms")) {
      std::printf("%s: %s\n", peer->label().c_str(), answer.value("error", "").c_str());
      return;
    }
    const double ms = answer["ms"].get<double>();
    std::printf("%-18s %-18s %9.3f %9.0f %48s %9.2f\n", peer->version().c_str(),
                answer.value("way", "").c_str(), ms, denseOperations() / ms / 1e9, "",
                dense_ms_ / ms);
    if (answer.contains("ways")) std::printf("  %s\n", answer["ways"].dump().c_str());
  }

  void measure(Layer* layer, const std::string& text) {
    MethodOptions of;
    if (auto why = kernels::parseMethod(text, &of, kernels::Phase::kPrefill)) {
      Layer::stop(*why);
    }
    double low = 0, high = 1;
    uint32_t budget = 0;
    kernels::PrefillStatistics read;
    MethodOptions method = of;
    // Bisects for the largest strength that reads no more than --density.
    for (int i = 0; i < 10; ++i) {
      const double middle = i == 9 ? low : (low + high) / 2;
      method = atStrength(of, middle, keys_, &budget);
      if (auto why = layer->plan(method, false)) Layer::stop(*why);
      read = layer->statistics(budget);
      (2 * share(read.value_bytes, read.dense_bytes) <= options_.density ? low : high) = middle;
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
};

}  // namespace

int prefillOnGpu(int argc, char** argv) {
  Options options;
  CLI::App app(
      "What reading a prompt costs in one attention layer on a GPU.\n\n"
      "A prompt whose scores are like a model's (neighbours, keys that everybody looks at, noise)\n"
      "is read chunk by chunk, as the worker reads it; a method's strength (alpha, tau, "
      "threshold,\n"
      "draws) is set so that it reads at most --density of the values. Times are medians of\n"
      "replayed CUDA graphs. TFLOP/s are those of dense causal attention in that time; keys and\n"
      "values are shares of what dense reads; error is the distance to dense outputs, relative.");
  app.footer("Examples:\n  allot-bench prefill\n  allot-bench prefill --keys 131072 --density 0.1");
  app.add_option("--keys", options.keys, "Prompt lengths")->capture_default_str();
  app.add_option("--methods", options.methods, "Methods beside dense")->capture_default_str();
  app.add_option("--density", options.density, "Share of the values that is read")
      ->check(CLI::Range(0.001, 1.0))
      ->capture_default_str();
  app.add_option("--heads", options.heads)->capture_default_str();
  app.add_option("--kv-heads", options.kv_heads)->capture_default_str();
  app.add_option("--head-dim", options.head_dim, "64 or 128")->capture_default_str();
  app.add_option("--page-size", options.page_size)->capture_default_str();
  app.add_option("--chunk", options.chunk, "Tokens read at once")->capture_default_str();
  app.add_option("--samples", options.samples)->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_option("--peers", options.peers,
                 "Measured too: torch, and programs of your own by their path "
                 "(kernels/bench/README.md)")
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
