// allot-bench decode model: what an output token costs on a GPU, method by method: whole decode
// steps of a model of Llama-3.1-8B's shape, or of another's, weights random, keys and values
// random, bfloat16. A step is captured in a CUDA graph and replayed. Prints a table; gates nothing.
#include <ATen/core/ivalue.h>

#include <ATen/Functions.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/bench/benches.h"
#include "tests/bench/benches.h"
#include "worker/model/cuda_device.h"
#include "worker/model/cuda_model.h"

namespace allot {
namespace {

struct Options {
  std::vector<std::string> shapes = {"6x30000", "16x32768"};
  std::vector<std::string> methods = {
      "dense",     "s2anta-prop",     "s2anta-flash @2048",
      "s2anta-q4", "top-k scores=q4", "vattention scores=q4 maxBudget=1024"};
  uint32_t budget = 128;
  int steps = 40;
  int page_size = 64;
  int64_t layers = 0;  // the model's
  std::string model;   // Llama-3.1-8B's shape
  std::string json;
};

struct Shape {
  int rows = 0;
  int keys = 0;
};

// A method as the options name it.
struct Entry {
  std::string name;
  kernels::MethodOptions method;
  uint32_t budget = 0;
};

struct Line {
  std::string method;
  double milliseconds = 0;  // of a whole step: each row gets one token
  double without = 0;       // the same without attention
};

constexpr int kWarmUp = 5;
// For activations, workspace and whatever else is not keys and values.
constexpr size_t kKeptFree = size_t{8} << 30;

[[noreturn]] void die(const std::string& why, int status = 64) {
  std::exit(bench::refuse(why, status));
}
void must(const std::optional<std::string>& refusal) {
  if (refusal) die(*refusal);
}
void must(cudaError_t error) {
  if (error != cudaSuccess) die(std::string("the GPU: ") + cudaGetErrorString(error), 70);
}

Shape parseShape(const std::string& text) {
  Shape shape;
  const char* end = text.data() + text.size();
  const auto rows = std::from_chars(text.data(), end, shape.rows);
  const bool parted = rows.ec == std::errc() && rows.ptr != end && *rows.ptr == 'x';
  const auto keys = parted ? std::from_chars(rows.ptr + 1, end, shape.keys) : rows;
  if (!parted || keys.ec != std::errc() || keys.ptr != end || shape.rows < 1 || shape.keys < 1) {
    die("--shapes: " + text + ": rows, x, keys, as in 6x30000");
  }
  return shape;
}

Entry parseEntry(const Options& options, const std::string& text) {
  Entry entry{text, {}, options.budget};
  std::string method = text;
  if (const size_t at = text.find(" @"); at != std::string::npos) {
    entry.budget = static_cast<uint32_t>(std::strtoul(text.c_str() + at + 2, nullptr, 10));
    method.resize(at);
  }
  if (const auto wrong = kernels::parseMethod(method, &entry.method)) die(method + ": " + *wrong);
  must(kernels::cuda::unsupported(entry.method));
  return entry;
}

ModelConfig llama8b() {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.vocab_size = 128256;
  config.hidden_size = 4096;
  config.intermediate_size = 14336;
  config.layers = 32;
  config.heads = 32;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.rope_theta = 500000.0f;
  return config;
}

// The shape that the options ask for, with positions for all that is measured.
ModelConfig configOf(const Options& options, const std::vector<Shape>& shapes) {
  ModelConfig config = llama8b();
  if (!options.model.empty()) {
    auto read = ModelConfig::load(options.model);
    if (!read) die("--model: " + read.error().message);
    config = *read;
  }
  if (options.layers > 0) config.layers = options.layers;
  for (const Shape& shape : shapes) {
    config.max_positions = std::max<int64_t>(config.max_positions, shape.keys);
  }
  return config;
}

double median(std::vector<double> list) {
  const auto middle = list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2);
  std::nth_element(list.begin(), middle, list.end());
  return *middle;
}

// One batch: a cache that is full of random keys, and steps that continue it.
class Case {
 public:
  Case(const Options& options, const Shape& shape, CudaModel* model)
      : options_(options), shape_(shape), model_(*model) {
    const auto rows = static_cast<size_t>(shape.rows);
    const size_t each = model_.pool().pagesFor(static_cast<size_t>(shape.keys));
    auto pages = model_.pool().allocate(rows * each);
    if (!pages) {
      die("the GPU's memory does not hold " + std::to_string(shape.rows) + " rows of " +
          std::to_string(shape.keys) + " keys: name fewer with --shapes");
    }
    batch_.page_table = std::move(*pages);
    batch_.max_pages = static_cast<int>(each);
    batch_.tokens.resize(rows);
    for (size_t r = 0; r < rows; ++r) {
      batch_.tokens[r] = static_cast<int32_t>(100 + r);
      batch_.sequences.push_back(static_cast<uint32_t>(r));
    }
    batch_.lengths.assign(rows, shape.keys);
    batch_.steps.assign(rows, 0);
    setBudget(1);
    must(model_.prepare(batch_, false));
    fillCache();
  }
  ~Case() { model_.pool().release(batch_.page_table); }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  Line measure(const Entry& entry) {
    batch_.method = entry.method;
    setBudget(entry.budget);
    return {entry.name, stepTime(true), stepTime(false)};
  }

 private:
  void setBudget(uint32_t budget) {
    budgets_.assign(static_cast<size_t>(model_.config().layers), budget);
    batch_.schedules.assign(batch_.tokens.size(), budgets_);
  }

  // Keys and values of a standard normal distribution, piece by piece, by the way that a worker's
  // go: with their shadows.
  void fillCache() {
    constexpr int kPiece = 1024;
    const ModelConfig& config = model_.config();
    const auto stream = model_.stream().stream();
    const auto on_gpu = at::TensorOptions().device(at::kCUDA);
    const at::Tensor table =
        at::from_blob(batch_.page_table.data(), {static_cast<int64_t>(batch_.page_table.size())},
                      at::kInt)
            .to(at::kCUDA);
    for (int start = 0; start < shape_.keys; start += kPiece) {
      const int count = std::min(kPiece, shape_.keys - start);
      const at::Tensor starts = at::full({shape_.rows}, start, on_gpu.dtype(at::kInt));
      for (int64_t l = 0; l < config.layers; ++l) {
        const auto normal = [&] {
          return at::randn({shape_.rows, count, config.kv_heads, config.head_dim},
                           on_gpu.dtype(at::kFloat));
        };
        const at::Tensor keys = normal(), values = normal();
        must(kernels::cuda::appendKv(model_.pool().layer(l),
                                     {.keys = keys.data_ptr<float>(),
                                      .values = values.data_ptr<float>(),
                                      .page_table = table.data_ptr<int32_t>(),
                                      .starts = starts.data_ptr<int32_t>(),
                                      .rows = shape_.rows,
                                      .count = count,
                                      .max_pages = batch_.max_pages},
                                     &model_.workspace(), stream));
      }
    }
    must(model_.workspace().failure(stream));
  }

  // The next step of every row: other draws.
  void prepare() {
    for (uint32_t& step : batch_.steps) ++step;
    must(model_.prepare(batch_, false));
  }

  // Milliseconds, the median of the replays.
  double stepTime(bool attention) {
    const auto stream = model_.stream().stream();
    // Twice as it is: LibTorch's first products allocate what a graph may not.
    for (int i = 0; i < 2; ++i) {
      prepare();
      must(model_.enqueue(attention));
      must(cudaStreamSynchronize(stream));
    }
    at::cuda::CUDAGraph graph;
    graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    const auto refusal = model_.enqueue(attention);
    graph.capture_end();
    must(refusal);
    cudaEvent_t begin, end;
    must(cudaEventCreate(&begin));
    must(cudaEventCreate(&end));
    std::vector<double> times;
    for (int i = 0; i < kWarmUp + options_.steps; ++i) {
      prepare();
      must(cudaEventRecord(begin, stream));
      graph.replay();
      must(cudaEventRecord(end, stream));
      must(cudaEventSynchronize(end));
      float milliseconds = 0;
      must(cudaEventElapsedTime(&milliseconds, begin, end));
      if (i >= kWarmUp) times.push_back(milliseconds);
    }
    must(model_.workspace().failure(stream));
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return median(std::move(times));
  }

  const Options& options_;
  const Shape shape_;
  CudaModel& model_;
  StepBatch batch_;
  std::vector<uint32_t> budgets_;
};

nlohmann::json tableOf(const Shape& shape, const std::vector<Line>& lines) {
  std::printf("\n%d rows of %d keys\n%-40s %10s %12s %10s %9s\n", shape.rows, shape.keys, "method",
              "ms/token", "tokens/s", "attention", "x dense");
  double dense = 0;
  for (const Line& line : lines) {
    if (line.method == "dense") dense = line.milliseconds;
  }
  nlohmann::json rows = nlohmann::json::array();
  for (const Line& line : lines) {
    const double share = 1 - line.without / line.milliseconds;
    const double rate = 1e3 * shape.rows / line.milliseconds;
    std::printf("%-40s %10.3f %12.1f %8.1f %%", line.method.c_str(), line.milliseconds, rate,
                100 * share);
    rows.push_back({{"method", line.method},
                    {"millisecondsPerToken", line.milliseconds},
                    {"millisecondsWithoutAttention", line.without},
                    {"tokensPerSecond", rate},
                    {"attentionShare", share}});
    if (dense > 0) {
      std::printf(" %9.2f", dense / line.milliseconds);
      rows.back()["timesDense"] = dense / line.milliseconds;
    }
    std::printf("\n");
  }
  std::fflush(stdout);
  return {{"rows", shape.rows}, {"keys", shape.keys}, {"methods", rows}};
}

std::unique_ptr<CudaModel> makeModel(const Options& options, const std::vector<Shape>& shapes,
                                     const std::vector<Entry>& entries) {
  const ModelConfig config = configOf(options, shapes);
  CudaWeights weights = CudaWeights::random(config, 1);
  KvPoolOptions pool{.page_size = options.page_size};
  const size_t free = freeMemory(Device::kCuda);
  if (free <= kKeptFree) die("the GPU has too little free memory beside the weights");
  pool.kv_bytes = free - kKeptFree;
  for (const Entry& entry : entries) {
    const int bits = kernels::shadowBits(entry.method);
    if (bits > 0) pool.shadow_bits = {bits};  // the GPU has 4 bits alone
  }
  auto model = CudaModel::create(config, std::move(weights), pool);
  if (!model) die(model.error().message);
  return std::move(*model);
}

int runAll(const Options& options) {
  must(cudaUnavailable());
  std::vector<Shape> shapes;
  for (const std::string& text : options.shapes) shapes.push_back(parseShape(text));
  std::vector<Entry> entries;
  for (const std::string& text : options.methods) entries.push_back(parseEntry(options, text));
  const c10::InferenceMode guard;
  const auto model = makeModel(options, shapes, entries);
  const c10::cuda::CUDAStreamGuard on(model->stream());
  std::printf(
      "%s's shape, %lld layers, bfloat16, random weights (%.1f GB), pages of %d, "
      "S = %u unless after @; %s; one step in a CUDA graph, median of %d\n",
      options.model.empty() ? "Llama-3.1-8B" : options.model.c_str(),
      static_cast<long long>(model->config().layers),
      static_cast<double>(model->weights().bytes()) / 1e9, options.page_size, options.budget,
      cudaDeviceName().c_str(), options.steps);
  nlohmann::json tables = nlohmann::json::array();
  for (const Shape& shape : shapes) {
    std::vector<Line> lines;
    Case batch(options, shape, model.get());
    for (const Entry& entry : entries) lines.push_back(batch.measure(entry));
    tables.push_back(tableOf(shape, lines));
  }
  return bench::writeJson(options.json, {{"device", cudaDeviceName()},
                                         {"layers", model->config().layers},
                                         {"pageSize", options.page_size},
                                         {"budget", options.budget},
                                         {"steps", options.steps},
                                         {"tables", tables}});
}

}  // namespace

int benchModelSteps(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Time per output token on a GPU, of a model of Llama-3.1-8B's shape or "
      "another's.");
  app.footer(
      "Examples:\n"
      "  allot-bench decode model\n"
      "  allot-bench decode model --shapes 1x131072 --methods dense \"s2anta-q4 @256\"\n"
      "  allot-bench decode model --model /models/qwen25-coder-1.5b.gguf --shapes 256x320\n"
      "  allot-bench decode model --json decode.json");
  app.add_option("--shapes", options.shapes, "Rows and keys [6x30000 16x32768]");
  app.add_option("--methods", options.methods, "Methods, each with its parameters and @budget");
  app.add_option("--budget", options.budget, "Draws a head where a method names none [128]");
  app.add_option("--steps", options.steps, "Timed steps [40]")->check(CLI::Range(20, 100000));
  app.add_option("--page-size", options.page_size, "Keys in a page [64]")
      ->check(CLI::IsMember({16, 64, 256}));
  app.add_option("--model", options.model,
                 "Folder or GGUF file of the model whose shape is taken [Llama-3.1-8B's]");
  app.add_option("--layers", options.layers, "Layers, for less memory [the model's]")
      ->check(CLI::Range(1, 1000));
  app.add_option("--json", options.json, "Write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    return runAll(options);
  } catch (const c10::Error& error) {
    die("the GPU: " + std::string(error.what_without_backtrace()), 70);
  }
}

}  // namespace allot
