// allot-bench decode gpu: what one decode step of one attention layer costs on a GPU with each
// method, held against the copy bandwidth, our dense attention and PyTorch's, all in one run.
// --help says how it measures. Prints tables; gates nothing.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "allot/kernels/cuda_decode.h"
#include "kernels/bench/benches.h"
#include "kernels/bench/cuda_cache.h"
#include "kernels/bench/cuda_plan.h"
#include "kernels/bench/cuda_report.h"
#include "kernels/bench/cuda_timer.h"
#include "kernels/bench/peer.h"
#include "kernels/bench/score_profiles.h"

namespace allot::bench {
namespace {

namespace cuda = kernels::cuda;

constexpr float kStandInDeviation = 4;  // of peaked scores without a recording
constexpr double kGib = 1 << 30;

std::string driverText() {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Wed Jan ...".
  std::ifstream file("/proc/driver/nvidia/version");
  std::string word;
  while (file >> word) {
    if (word[0] >= '0' && word[0] <= '9' && word.find('.') != std::string::npos) {
      return "driver " + word;
    }
  }
  return "driver unknown";
}

CudaDevice askDevice() {
  CudaDevice device;
  cudaDeviceProp properties;
  must(cudaGetDeviceProperties(&properties, 0), "asking for the device");
  must(cudaDeviceGetAttribute(&device.clock_mhz, cudaDevAttrClockRate, 0), "asking for its clock");
  device.clock_mhz /= 1000;
  must(cudaDriverGetVersion(&device.cuda_driver), "asking for the driver");
  must(cudaRuntimeGetVersion(&device.cuda_runtime), "asking for the runtime");
  device.name = properties.name;
  device.driver = driverText();
  device.build = ALLOT_BUILD;
  device.compute_capability = properties.major * 10 + properties.minor;
  device.multiprocessors = properties.multiProcessorCount;
  device.memory_bytes = static_cast<double>(properties.totalGlobalMem);
  device.l2_bytes = properties.l2CacheSize;
  return device;
}

void measureDevice(CudaTimer* timer, cudaStream_t stream, CudaDevice* device) {
  progress("measuring the copy bandwidth");
  device->copy_gbs = timer->copyBandwidth();
  device->read_gbs = timer->readBandwidth();
  Timing timing;
  const auto refusal = timer->time(
      [&]() -> std::optional<std::string> {
        launchNothing(stream);
        return std::nullopt;
      },
      [] {}, &timing);
  device->empty_graph_ms = refusal ? 0 : timing.median;
}

// The source of peaked scores, on the device.
struct Peaked {
  ScoreSource source;
  std::string text;
  DeviceMemory scores, offsets;
};

Peaked makePeaked(const std::string& path) {
  Peaked peaked;
  const ScoreProfiles profiles = readScoreProfiles(path);
  if (profiles.size() == 0 && !path.empty()) {
    std::exit(refuse("--states: " + path + " holds no recorded states"));
  }
  if (profiles.size() == 0) {
    peaked.source.deviation = kStandInDeviation;
    peaked.text = "normal scores of variance 16 (no recording: --states)";
    return peaked;
  }
  peaked.scores.upload(profiles.scores);
  peaked.offsets.upload(profiles.offsets);
  peaked.source = {.deviation = 0,
                   .scores = peaked.scores.as<float>(),
                   .offsets = peaked.offsets.as<int>(),
                   .profiles = static_cast<int>(profiles.size())};
  peaked.text =
      "quantiles of " + std::to_string(profiles.size()) + " recorded score vectors in " + path;
  return peaked;
}

// The grid, shape by shape.
class Bench {
 public:
  using Peers = std::vector<std::unique_ptr<Peer>>;

  Bench(const CudaOptions& options, const Peers& peers, cudaStream_t stream)
      : options_(options),
        peers_(peers),
        stream_(stream),
        timer_(options.warm_up, options.samples, stream),
        device_(askDevice()) {}

  void run() {
    measureDevice(&timer_, stream_, &device_);
    progress("");
    printDevice(options_, device_);
    const Peaked peaked = makePeaked(options_.states);
    peaked_text_ = peaked.text;
    std::printf("gaussian: normal scores of variance 1; peaked: %s\n", peaked.text.c_str());
    for (const auto& peer : peers_) {
      std::printf("%s: %s\n", peer->label().c_str(), textOf(*peer).c_str());
    }
    plan();
    for (const Shape& shape : shapes_) {
      ShapeReport report = measure(shape, peaked.source);
      progress("");
      printReport(options_, device_, report);
      reports_.push_back(reportJson(options_, device_, report));
    }
  }

  void floors() {
    measureDevice(&timer_, stream_, &device_);
    progress("");
    printDevice(options_, device_);
    for (const Shape shape : shapesOf(options_)) printFloors(options_, device_, shape);
  }

  nlohmann::json json() const {
    const nlohmann::json texts = peerTexts();
    const std::string not_asked = "left out (--peers)";
    return {{"device", deviceJson(device_)},
            {"heads", options_.heads},
            {"kvHeads", options_.kv_heads},
            {"headDim", options_.head_dim},
            {"pageSize", options_.page_size},
            {"element", options_.element},
            {"seed", options_.seed},
            {"budgetsBy", options_.budgets_by},
            {"warmUp", options_.warm_up},
            {"peaked", peaked_text_},
            {"sdpa", texts.value("torch", not_asked)},
            {"flashInfer", texts.value("flashinfer", not_asked)},
            {"peers", texts},
            {"leftOut", left_out_},
            {"shapes", reports_}};
  }

 private:
  static std::string textOf(const Peer& peer) {
    return peer.version().empty() ? "left out, " + peer.absence() : peer.version();
  }
  nlohmann::json peerTexts() const {
    nlohmann::json texts = nlohmann::json::object();
    for (const auto& peer : peers_) texts[peer->label()] = textOf(*peer);
    return texts;
  }

  void leaveOut(const std::string& sentence) {
    left_out_.push_back(sentence);
    std::printf("left out: %s\n", sentence.c_str());
  }

  // Lists the shapes to measure. Reports what is left out.
  void plan() {
    for (const std::string& text : options_.methods) {
      kernels::MethodOptions method;
      if (kernels::parseMethod(text, &method)) continue;
      if (const auto refusal = cuda::unsupported(method)) {
        leaveOut(text + ": " + *refusal);
        refused_.push_back(text);
      }
    }
    for (const Shape shape : shapesOf(options_)) {
      const double gib = cacheBytes(options_, shape.rows, shape.keys) / kGib;
      if (gib > options_.memory_gib) {
        char sentence[160];
        std::snprintf(sentence, sizeof sentence,
                      "%d rows of %d keys: their caches take %.0f GiB, --memory-gib is %.0f",
                      shape.rows, shape.keys, gib, options_.memory_gib);
        leaveOut(sentence);
        continue;
      }
      shapes_.push_back(shape);
      figures_ += cases(shape.keys).size() * options_.scores.size();
    }
    if (isatty(STDERR_FILENO)) {
      std::fprintf(stderr, "%zu figures of %zu shapes\n", figures_, shapes_.size());
    }
    std::fflush(stdout);
  }

  std::vector<Case> cases(int keys) const {
    std::vector<Case> cases = casesOf(options_, keys);
    std::erase_if(cases, [&](const Case& one) {
      return std::find(refused_.begin(), refused_.end(), one.text) != refused_.end();
    });
    return cases;
  }

  std::string title(Shape shape) const {
    return "[" + std::to_string(done_) + "/" + std::to_string(figures_) + "] " +
           std::to_string(shape.rows) + " x " + std::to_string(shape.keys) + ": ";
  }

  ShapeReport measure(Shape shape, const ScoreSource& peaked) {
    ShapeReport report{.shape = shape, .figures = {}, .left_out = {}};
    report.dense_bytes =
        floorOf(options_, shape, {.text = "dense", .method = {}, .budget = {}})->bytes;
    // Enough copies that no step finds its keys in L2. If they do not fit, steps flush L2.
    report.copies = copiesFor(options_, shape, device_.l2_bytes);
    const double each = cacheBytes(options_, shape.rows, shape.keys);
    const int most = std::max(1, static_cast<int>(options_.memory_gib * kGib / each));
    if (report.copies > most) {
      report.copies = most;
      report.flush_bytes = 4 * device_.l2_bytes;
    }
    timer_.flush(static_cast<size_t>(report.flush_bytes));
    progress(title(shape) + "filling the caches");
    auto cache = CudaCache::make(options_, shape, report.copies, stream_);
    if (!cache) {
      report.left_out.push_back("everything: there is too little device memory");
      return report;
    }
    ShapeBench bench(options_, &report, &timer_, std::move(cache), stream_);
    for (const std::string& scores : options_.scores) {
      progress(title(shape) + "filling the caches, " + scores + " scores");
      if (!bench.fill(scores, scores == "peaked" ? peaked : ScoreSource{})) continue;
      if (report.pages_ms == 0) bench.readPages();
      for (const Case& one : cases(shape.keys)) {
        progress(title(shape) + scores + ", " + one.text +
                 (one.budget ? " S=" + std::to_string(*one.budget) : ""));
        bench.measure(one);
        ++done_;
        // Right after our first figure, so that a peer is measured between our own figures.
        if (report.peers.empty()) askPeers(shape, &report);
      }
    }
    return report;
  }

  void askPeers(Shape shape, ShapeReport* report) {
    for (const auto& peer : peers_) {
      if (peer->version().empty()) continue;
      progress(title(shape) + peer->version());
      report->peers[peer->label()] =
          peer->ask(questionOf(options_, shape, static_cast<int64_t>(4 * device_.l2_bytes)));
    }
  }

  const CudaOptions& options_;
  const Peers& peers_;
  cudaStream_t stream_;
  CudaTimer timer_;
  CudaDevice device_;
  std::string peaked_text_;
  std::vector<std::string> refused_, left_out_;
  std::vector<Shape> shapes_;
  size_t figures_ = 0, done_ = 0;
  nlohmann::json reports_ = nlohmann::json::array();
};

// Returns the recording in the source tree that this was built from, "" if that is not there.
std::string builtInStates() {
  const std::string path = ALLOT_SOURCE_DIR "/tests/golden/recall_states.bin";
  return access(path.c_str(), R_OK) == 0 ? path : "";
}

bool tryPeersOf(const CudaOptions& options) {
  std::vector<PeerQuestion> questions;
  for (const Shape shape : shapesOf(options)) {
    questions.push_back(questionOf(options, shape, int64_t{256} << 20));
  }
  return tryPeers(options.peers, options.python, questions);
}

}  // namespace

std::optional<std::string> whyNoGpu() { return cuda::unavailable(); }

int decodeOnGpu(int argc, char** argv) {
  CudaOptions options;
  options.states = builtInStates();
  if (const auto status = parseOptions(argc, argv, &options)) return *status;
  if (options.try_peers) return tryPeersOf(options) ? 0 : kUnavailable;
  const auto absent = cuda::unavailable();
  if (options.two_floors && absent) {
    for (const Shape shape : shapesOf(options)) printFloors(options, {}, shape);
    return 0;
  }
  if (absent) return refuse(*absent, kUnavailable);
  // First of all, so that their start is over when anything is timed.
  Bench::Peers peers;
  for (const std::string& name : options.peers) {
    if (options.two_floors) break;
    progress("starting " + name);
    peers.push_back(std::make_unique<Peer>(name, options.python));
  }
  cudaStream_t stream = nullptr;
  must(cudaSetDevice(0), "opening the device");
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  Bench bench(options, peers, stream);
  if (options.two_floors) {
    bench.floors();
    return 0;
  }
  bench.run();
  return writeJson(options.json, bench.json());
}

}  // namespace allot::bench
