// allot-bench decode cpu: what one decode step of one attention layer costs with each method,
// beside LibTorch's dense attention in the same run. Shapes of Llama-3.1-8B: 32 heads over 8 KV
// heads of 128, one row, bfloat16 or e4m3 stored, float32 arithmetic. Prints a table; gates
// nothing.
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "allot/kernels/decode.h"
#include "kernels/bench/benches.h"
#include "kernels/bench/libtorch_dense.h"
#include "kernels/bench/rotating_cache.h"

namespace allot::bench {
namespace {

struct Options {
  std::vector<int> keys = {1024, 8192, 32768};
  std::vector<int> threads = {1, 2};
  std::vector<std::string> scores = {"flat", "peaked"};
  std::vector<std::string> methods = {"dense",
                                      "santa",
                                      "s2anta-strat",
                                      "s2anta-sys",
                                      "s2anta-prop",
                                      "s2anta-flash",
                                      "s2anta-flash @2048",
                                      "s2anta-q4",
                                      "s2anta-q4 bits=3",
                                      "s2anta-q4 bits=8",
                                      "top-k",
                                      "top-k scores=q4",
                                      "bernoulli featureSamples=8 values=s2anta-sys",
                                      "vattention",
                                      "vattention scores=q4",
                                      "adaptive-denominator",
                                      "quest @2048"};
  uint32_t budget = 128;
  std::string kv = "bfloat16";  // stored
  int page_size = 16;
  double seconds = 0.4;
  double memory_gib = 1.0;
  bool libtorch = true;
  bool processor_time = false;
  std::string json;

  kernels::Element element() const {
    return kv == "fp8" ? kernels::Element::kE4M3 : kernels::Element::kBFloat16;
  }
};

// One line of the table.
struct Line {
  std::string method;
  double milliseconds = 0;
  double bytes = 0;   // keys and values read a step
  double held = 0;    // bytes of the cache that the method needs
  double error = -1;  // |out - dense| / |v|, one step; negative: not compared
  size_t samples = 0;
};

double median(std::vector<double> list) {
  std::nth_element(list.begin(), list.begin() + list.size() / 2, list.end());
  return list[list.size() / 2];
}

// Returns seconds of this thread's processor time, or of the monotonic clock.
double secondsNow(bool processor_time) {
  timespec now;
  clock_gettime(processor_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Measures the step for about options.seconds: 10 to 1000 samples after two that are not counted.
template <typename Step>
void measure(const Options& options, Step step, Line* line) {
  std::vector<double> samples;
  step();
  step();
  const double begin = secondsNow(false);
  while (samples.size() < 10 ||
         (samples.size() < 1000 && secondsNow(false) - begin < options.seconds)) {
    const double start = secondsNow(options.processor_time);
    step();
    samples.push_back((secondsNow(options.processor_time) - start) * 1e3);
  }
  line->milliseconds = median(samples);
  line->samples = samples.size();
}

std::string load() {
  std::ifstream file("/proc/loadavg");
  std::string one, five;
  file >> one >> five;
  return one + " " + five;
}

// Cuts the budget off a text such as "s2anta-flash @2048". Returns that budget, or the options'.
uint32_t splitBudget(const Options& options, std::string* method) {
  const size_t at = method->find(" @");
  if (at == std::string::npos) return options.budget;
  const uint32_t budget = static_cast<uint32_t>(std::stoul(method->substr(at + 2)));
  method->resize(at);
  return budget;
}

// One length, thread count and distribution: every method, then LibTorch.
class Table {
 public:
  Table(const Options& options, int n, int threads, const std::string& scores, RotatingCache* cache)
      : options_(options), n_(n), threads_(threads), scores_(scores), cache_(*cache) {
    queries_.resize(static_cast<size_t>(kHeads) * kHeadDim);
    fillNormal(queries_.data(), queries_.size(), 7);
    // Scores of normal keys are normal: of variance 1, a flat softmax; of variance 16, a few keys
    // hold most of it, as in the heads of a model.
    for (float& query : queries_) query *= scores == "peaked" ? 4.0f : 1.0f;
  }

  void ours() {
    kernels::DecodeWorkspace workspace(threads_);
    workspace.plan(n_, kHeads / kKvHeads, kHeadDim);
    std::vector<float> dense(queries_.size()), out(queries_.size());
    run("dense", &workspace, cache_.next(), dense.data(), nullptr);
    for (const std::string& method : options_.methods) {
      progress(title() + ": " + method);
      Line line{.method = method};
      kernels::RowStatistics statistics;
      run(method, &workspace, cache_.next(), out.data(), &statistics);
      line.bytes = static_cast<double>(statistics.key_bytes + statistics.value_bytes);
      line.held = heldBy(method);
      // In units of a value row, whose numbers have variance 1: the output itself is next to
      // nothing where the scores are flat.
      double gap = 0;
      for (size_t i = 0; i < out.size(); ++i) gap += (out[i] - dense[i]) * (out[i] - dense[i]);
      line.error = std::sqrt(gap / static_cast<double>(out.size()));
      measure(
          options_, [&] { run(method, &workspace, cache_.next(), out.data(), &statistics); },
          &line);
      lines_.push_back(line);
    }
  }

  void libTorch(LibTorchDense* torch, bool bfloat16) {
    LibTorchDense::setThreads(threads_);
    Line best;
    for (size_t way = 0; way < LibTorchDense::ways().size(); ++way) {
      const std::string name = std::string("LibTorch ") + (bfloat16 ? "bfloat16" : "float32") +
                               " (" + LibTorchDense::ways()[way] + ")";
      progress(title() + ": " + name);
      Line line{.method = name};
      measure(
          options_, [&] { torch->step(way, queries_.data()); }, &line);
      line.bytes = line.held = 2.0 * n_ * kKvHeads * kHeadDim * (bfloat16 ? 2 : 4);
      all_ways_.push_back(line);
      if (way == 0 || line.milliseconds < best.milliseconds) best = line;
    }
    lines_.push_back(best);
  }

  void print() const {
    progress("");
    std::printf("\n%s; %s\n", title().c_str(), ("load " + load()).c_str());
    std::printf("%-58s %9s %10s %8s %8s %7s %8s %9s %8s\n", "method", "ms/layer", "tokens/s",
                "MB held", "MB read", "GB/s", "x dense", "x LibTch", "err/|v|");
    for (const Line& line : lines_) {
      std::printf("%-58s %9.3f %10.1f %8.2f %8.2f %7.2f %8.2f %9.2f", line.method.c_str(),
                  line.milliseconds, tokens(line), line.held / 1e6, line.bytes / 1e6,
                  line.bytes / line.milliseconds / 1e6, dense() / line.milliseconds,
                  bestLibTorch() / line.milliseconds);
      if (line.error >= 0) std::printf(" %8.4f", line.error);
      std::printf("\n");
    }
    std::fflush(stdout);
  }

  nlohmann::json json() const {
    nlohmann::json rows = nlohmann::json::array();
    const auto add = [&](const Line& line) {
      rows.push_back({{"method", line.method},
                      {"milliseconds", line.milliseconds},
                      {"tokensPerSecond", tokens(line)},
                      {"bytesHeld", line.held},
                      {"bytes", line.bytes},
                      {"gigabytesPerSecond", line.bytes / line.milliseconds / 1e6},
                      {"timesDense", dense() / line.milliseconds},
                      {"timesLibTorch", bestLibTorch() / line.milliseconds},
                      {"errorOverValue", line.error},
                      {"samples", line.samples}});
    };
    for (const Line& line : lines_) {
      if (line.error >= 0) add(line);
    }
    for (const Line& line : all_ways_) add(line);
    return {{"keys", n_},
            {"threads", threads_},
            {"scores", scores_},
            {"load", load()},
            {"methods", rows}};
  }

 private:
  std::string title() const {
    return std::to_string(n_) + " keys, " + std::to_string(threads_) +
           (threads_ == 1 ? " thread, " : " threads, ") + scores_ + " scores";
  }
  // Returns the bytes of keys and values, and of the shadow or bounds that the method reads.
  double heldBy(std::string method) const {
    splitBudget(options_, &method);
    kernels::MethodOptions parsed;
    if (kernels::parseMethod(method, &parsed)) return 0;  // run() refuses it
    const int page = options_.page_size, bits = kernels::shadowBits(parsed);
    const size_t pages = cache_.pageTable().size();
    size_t bytes = 2 * static_cast<size_t>(n_) * kKvHeads * kHeadDim * bytesOf(options_.element());
    if (bits > 0) bytes += pages * kernels::shadowBytesPerPage(bits, kKvHeads, page, kHeadDim);
    if (kernels::readsBounds(parsed)) {
      bytes += pages * kernels::boundsBytesPerPage(options_.element(), kKvHeads, page, kHeadDim);
    }
    return static_cast<double>(bytes);
  }
  // Attention alone, all layers of the model.
  double tokens(const Line& line) const { return 1e3 / (line.milliseconds * kModelLayers); }
  double dense() const { return fastest("dense"); }
  double bestLibTorch() const { return fastest("LibTorch"); }
  double fastest(std::string_view prefix) const {
    double least = NAN;
    for (const Line& line : lines_) {
      if (line.method.starts_with(prefix)) least = std::fmin(least, line.milliseconds);
    }
    return least;
  }

  void run(std::string method, kernels::DecodeWorkspace* workspace, const kernels::PagedKv& kv,
           float* out, kernels::RowStatistics* statistics) {
    const uint32_t budget = splitBudget(options_, &method);
    kernels::MethodOptions parsed;
    auto refusal = kernels::parseMethod(method, &parsed);
    const int32_t length = n_;
    const uint32_t sequence = 1;
    ++step_;
    if (!refusal) {
      refusal = kernels::decodeAttention(parsed, kv,
                                         {.queries = queries_.data(),
                                          .page_table = cache_.pageTable().data(),
                                          .lengths = &length,
                                          .budgets = &budget,
                                          .sequences = &sequence,
                                          .steps = &step_,
                                          .rows = 1,
                                          .heads = kHeads,
                                          .max_pages = static_cast<int>(cache_.pageTable().size()),
                                          .scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim))},
                                         workspace, {.out = out, .statistics = statistics});
    }
    if (!refusal) return;
    std::exit(refuse(method + ": " + *refusal));
  }

  const Options& options_;
  int n_, threads_;
  std::string scores_;
  RotatingCache& cache_;
  uint32_t step_ = 0;
  std::vector<float> queries_;
  std::vector<Line> lines_, all_ways_;
};

// Measures how fast one thread reads memory and does nothing else, in GB/s.
nlohmann::json readFloors(const Options& options, int n, RotatingCache* cache) {
  nlohmann::json floors;
  const std::pair<RotatingCache::Read, const char*> kinds[] = {
      {RotatingCache::Read::kKeysAsTheyLie, "keys as they lie"},
      {RotatingCache::Read::kKeys, "keys by the page table"},
      {RotatingCache::Read::kCodes, "4-bit codes by the page table"}};
  std::printf("\n%d keys: one thread reads", n);
  for (const auto& [kind, name] : kinds) {
    Line line;
    uint64_t total = 0;
    measure(
        options, [&, kind = kind] { total += cache->read(kind); }, &line);
    const double rate = static_cast<double>(cache->bytesOf(kind)) / line.milliseconds / 1e6;
    // The sum is used, so that it is computed.
    std::printf("%s %s at %.2f GB/s", floors.empty() ? "" : ",", name, total == 1 ? 0.0 : rate);
    floors[name] = rate;
  }
  std::printf("\n");
  return floors;
}

// Measures appends alone, with each shadow and with bounds, in microseconds a position.
nlohmann::json appendCosts(const Options& options) {
  constexpr int32_t kCount = 1024, kStart = 0;
  RotatingCache cache(kCount, options.page_size, 1, 1, options.element());
  std::vector<float> keys(static_cast<size_t>(kCount) * kKvHeads * kHeadDim);
  fillNormal(keys.data(), keys.size(), 3);
  nlohmann::json costs;
  std::printf("\nappending, microseconds a position:");
  for (const char* name :
       {"keys and values", "with 3 bits", "with 4 bits", "with 8 bits", "with bounds"}) {
    kernels::PagedKv kv = cache.next();
    const size_t shadow = costs.size() - 1;
    for (size_t i = 0; i < 3; ++i) {
      if (costs.empty() || i != shadow) kv.shadows[i].bits = 0;
    }
    if (costs.size() < 4) kv.bounds = nullptr;
    Line line;
    measure(
        options,
        [&] {
          const auto refusal =
              kernels::appendKv(kv, {keys.data(), keys.data(), cache.pageTable().data(), &kStart, 1,
                                     kCount, static_cast<int>(cache.pageTable().size())});
          if (refusal) std::abort();
        },
        &line);
    std::printf("%s %s %.2f", costs.empty() ? "" : ",", name, line.milliseconds * 1e3 / kCount);
    costs[name] = line.milliseconds * 1e3 / kCount;
  }
  std::printf("\n");
  return costs;
}

int runAll(const Options& options) {
  std::printf(
      "Llama-3.1-8B attention: %d heads over %d KV heads of %d, one row, %s stored, "
      "pages of %d, S = %u unless after @; LibTorch %s; load %s\n",
      kHeads, kKvHeads, kHeadDim, options.kv.c_str(), options.page_size, options.budget,
      LibTorchDense::version().c_str(), load().c_str());
  std::printf("tokens/s is that of %d such layers and nothing else\n", kModelLayers);
  const nlohmann::json append = appendCosts(options);
  nlohmann::json tables = nlohmann::json::array();
  for (const int n : options.keys) {
    const double layer_bytes =
        2.0 * n * kKvHeads * kHeadDim * static_cast<double>(bytesOf(options.element()));
    const int layers = std::max(2, static_cast<int>(options.memory_gib * (1 << 30) / layer_bytes));
    progress("filling the caches");
    RotatingCache cache(n, options.page_size, layers, 1, options.element());
    const nlohmann::json floors = readFloors(options, n, &cache);
    std::optional<LibTorchDense> bfloat16, float32;
    if (options.libtorch) {
      bfloat16.emplace(n, true, layers);
      float32.emplace(n, false, std::max(2, layers / 2));
    }
    for (const int threads : options.threads) {
      for (const std::string& scores : options.scores) {
        Table table(options, n, threads, scores, &cache);
        table.ours();
        if (bfloat16) table.libTorch(&*bfloat16, true);
        if (float32) table.libTorch(&*float32, false);
        table.print();
        tables.push_back(table.json());
        tables.back()["readGigabytesPerSecond"] = floors;
      }
    }
  }
  return writeJson(options.json, {{"libTorch", LibTorchDense::version()},
                                  {"kv", options.kv},
                                  {"pageSize", options.page_size},
                                  {"budget", options.budget},
                                  {"appendMicroseconds", append},
                                  {"tables", tables}});
}

}  // namespace

int decodeOnCpu(int argc, char** argv) {
  Options options;
  CLI::App app("One decode step of one attention layer, method by method.");
  app.footer(
      "Examples:\n"
      "  allot-bench decode cpu                                  everything, about four minutes\n"
      "  allot-bench decode cpu --keys 32768 --threads 1 --methods dense s2anta-q4\n"
      "  allot-bench decode cpu --kv fp8 --threads 1 --no-libtorch\n"
      "  allot-bench decode cpu --methods dense \"quest pageSize=64 @1024\" --no-libtorch\n"
      "  allot-bench decode cpu --json decode.json");
  app.add_option("--keys", options.keys, "Keys in the cache [1024 8192 32768]");
  app.add_option("--threads", options.threads, "Threads [1 2]");
  app.add_option("--scores", options.scores, "flat, peaked [both]")
      ->check(CLI::IsMember({"flat", "peaked"}));
  app.add_option("--methods", options.methods, "Methods, each with its parameters and @budget");
  app.add_option("--budget", options.budget, "Draws a head where a method names none [128]");
  app.add_option("--kv", options.kv, "Number format of keys and values: bfloat16, fp8 [bfloat16]")
      ->check(CLI::IsMember({"bfloat16", "fp8"}));
  app.add_option("--page-size", options.page_size, "Keys in a page, a multiple of 16 [16]")
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "Seconds for each figure [0.4], ten steps at least");
  app.add_option("--memory", options.memory_gib, "GiB of keys and values to rotate over [1]");
  app.add_flag("!--no-libtorch", options.libtorch, "Leave LibTorch out");
  app.add_flag("--cpu-time", options.processor_time,
               "Processor time in place of time: for a busy machine, one thread only");
  app.add_option("--json", options.json, "Write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  if (options.page_size % 16 != 0) {
    return refuse("--page-size must be a multiple of 16");
  }
  if (options.processor_time && options.threads != std::vector<int>{1}) {
    return refuse("--cpu-time is for --threads 1");
  }
  return runAll(options);
}

}  // namespace allot::bench
