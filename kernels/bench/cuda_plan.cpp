#include "kernels/bench/cuda_plan.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "allot/kernels/cuda_decode.h"
#include "kernels/bench/benches.h"

namespace allot::bench {
namespace {

using kernels::ChosenBy;
using kernels::traitsOf;

// Shorter graph replays are mostly launches.
constexpr double kShortMilliseconds = 0.012;

const char* const kFooter =
    "Protocol: each figure is the median of CUDA events around one replay of a CUDA graph\n"
    "that holds one decode step of one layer, behind warm-up replays. The L2 cache is cold:\n"
    "steps take copies of the sequences in turn, until four times its size has been read in\n"
    "between (where the copies do not fit, other memory is read); page tables are copied\n"
    "right before a step, and warm. A short delay kernel ahead of the first event hides the\n"
    "launch's way through the host.\n\n"
    "Scores: keys are made so that every query head of a group sees the scores drawn for it.\n"
    "gaussian: normal, standard deviation 1, a flat softmax. peaked: the quantiles of scores\n"
    "recorded from a model (--states), the places of the keys at random and independent from\n"
    "head to head, so that the share of keys at each height is the recording's whatever the\n"
    "length; without a recording normal with variance 16. Values are independent normal\n"
    "numbers: where scores are flat, |dense| is next to nothing and relative errors are\n"
    "larger than a model's.\n\n"
    "Columns: GB/s are bytes needed over time: keys, shadows and values once a KV head, drawn\n"
    "rows as the step itself counts them. share is that over the copy bandwidth measured\n"
    "first in the same run (bytes read and written), which reads alone may exceed. error is\n"
    "|out - dense| / |dense|, the mean over rows and heads of one step. bound is dense's\n"
    "bytes over the method's, the most that xdense can be; of bound is xdense over it.\n"
    "Above each table: what a kernel takes that only reads the keys and values, page by page.\n\n"
    "Peers are measured in the same run, between our own figures, by the same protocol.\n"
    "xSDPA: over PyTorch's scaled_dot_product_attention: the fastest of its backends, with\n"
    "enable_gqa and with a group's heads as queries, over contiguous keys. xFI: over\n"
    "FlashInfer's BatchDecodeWithPagedKVCacheWrapper on tensor cores, over pages as ours, the\n"
    "faster of its two layouts, planned outside of the graph. It compiles its kernels where\n"
    "they have not been compiled before: a minute. Another peer has a column of its name.\n"
    "fastest: this method, dense, or the peer that took least.\n\n"
    "Left out, as they would repeat another figure: budgets of methods that use none, budgets\n"
    "that reach all keys, all but the largest budget of s2anta-flash.\n\n";

const char* const kExamples =
    "Examples:\n"
    "  allot-bench decode gpu                                       everything, about four "
    "minutes\n"
    "  allot-bench decode gpu --rows 16 --keys 32768 --budgets 128\n"
    "  allot-bench decode gpu --rows 4 --methods dense \"s2anta-flash tileSize=256\" --no-peers\n"
    "  allot-bench decode gpu --methods dense --peers flashinfer torch\n"
    "  allot-bench decode gpu --peers torch,./my_kernel.py --rows 16 --keys 32768\n"
    "  allot-bench decode gpu --peers ./my_kernel.py --try-peers    does it answer?\n"
    "  allot-bench decode gpu --states recall_states.bin --python /opt/venv/bin/python --json "
    "h200.json\n"
    "  allot-bench decode gpu --two-floors --rows 16 --keys 32768   what each method cannot do "
    "without";

void addOptions(CLI::App* app, CudaOptions* options) {
  app->add_option("--rows", options->rows, "Rows of a batch [1 4 16 64]")
      ->check(CLI::Range(1, 4096));
  app->add_option("--keys", options->keys, "Keys of a row [4096 8192 32768 131072]")
      ->check(CLI::Range(1, 1 << 22));
  app->add_option("--budgets", options->budgets, "Draws a head, S [64 128 256 2048]")
      ->check(CLI::Range(1, 1 << 22));
  app->add_option(
         "--budgets-by", options->budgets_by,
         "row: one for all heads; head: the same, but heads are asked each for its own;\n"
         "half: by head, and the heads of every second KV head are silent, so that half of\n"
         "their outputs count as an error of 1 [row]")
      ->check(CLI::IsMember({"row", "head", "half"}));
  app->add_option("--scores", options->scores, "gaussian, peaked [both]")
      ->check(CLI::IsMember({"gaussian", "peaked"}));
  app->add_option("--methods", options->methods, "Methods, each with its parameters");
  app->add_option("--heads", options->heads, "Query heads [32]")->check(CLI::Range(1, 1024));
  app->add_option("--kv-heads", options->kv_heads, "KV heads [8]")->check(CLI::Range(1, 1024));
  app->add_option("--head-dim", options->head_dim, "64 or 128 [128]")
      ->check(CLI::IsMember(std::vector<int>{64, 128}));
  app->add_option("--page-size", options->page_size, "16, 64 or 256 keys in a page [16]")
      ->check(CLI::IsMember(std::vector<int>{16, 64, 256}));
  app->add_option("--element", options->element, "bf16 or fp16 [bf16]")
      ->check(CLI::IsMember({"bf16", "fp16"}));
  app->add_option("--memory-gib", options->memory_gib,
                  "Leave out shapes whose caches take more, GiB [100]")
      ->check(CLI::PositiveNumber);
  app->add_option("--warm-up", options->warm_up, "Replays that are not counted [10]")
      ->check(CLI::Range(0, 10000));
  app->add_option("--samples", options->samples, "Replays that are timed [40]")
      ->check(CLI::Range(1, 10000));
  app->add_option("--seed", options->seed, "Of keys, values, queries and draws [1]");
  app->add_option("--states", options->states,
                  "Recorded queries and keys that peaked scores are made from: a file as "
                  "tests/golden/recall_states.bin [that one, where this was built]");
  app->add_option(
         "--peers", options->peers,
         "Measured too: torch and flashinfer where they are installed, and programs of your "
         "own by their path (kernels/bench/README.md) [torch]")
      ->delimiter(',');
  app->add_flag_callback(
      "--no-peers,--no-sdpa", [options] { options->peers.clear(); }, "Leave them out");
  app->add_option("--python", options->python, "Python that has the peers [python3]");
  app->add_flag("--try-peers", options->try_peers,
                "Ask the peers alone, print what they answer, and end: needs no GPU itself");
  app->add_flag("--two-floors", options->two_floors,
                "Print the bytes and operations that each method cannot do without, and end");
  app->add_option("--json", options->json, "Write the figures to this file");
}

// Returns nothing if the options fit together, else one sentence.
std::optional<std::string> clash(const CudaOptions& options) {
  if (options.heads % options.kv_heads != 0 || options.group() > 16) {
    return "--heads must be a multiple of --kv-heads, at most 16 times as many";
  }
  if (options.budgets_by == "half" && options.kv_heads % 2 != 0) {
    return "--budgets-by half needs an even number of --kv-heads";
  }
  for (const std::string& text : options.methods) {
    kernels::MethodOptions method;
    if (const auto wrong = kernels::parseMethod(text, &method)) return "--methods: " + *wrong;
  }
  if (const std::string wrong = wrongPeers(options.peers); !wrong.empty()) {
    return "--peers: " + wrong;
  }
  return std::nullopt;
}

struct Reads {
  bool keys = false;    // all keys as they are
  bool shadow = false;  // all keys in `bits`
  int bits = 0;
  double drawn_keys = 0;  // a head
  double values = 0;      // a head
  double bounds = 0;      // numbers of all pages
};

// Returns how many of n values a head reads; nothing if that does not follow from the numbers.
std::optional<double> valuesRead(const kernels::MethodOptions& method, double n, double budget) {
  switch (traitsOf(method.method).chosen_by) {
    case ChosenBy::kAll:
      return n;
    case ChosenBy::kSystematic:
    case ChosenBy::kStratified:
    case ChosenBy::kIndependent:
    case ChosenBy::kLargest:
      return std::min(n, budget);
    case ChosenBy::kTiles: {
      const double tiles = std::ceil(n / tileKeys(method, static_cast<int>(n)));
      return std::min(n, tiles * std::max(1.0, std::floor(budget / tiles)));
    }
    case ChosenBy::kAdaptive: {
      const int keys = static_cast<int>(n);
      const double fixed = std::min<double>(n, sinkKeys(method, keys) + localKeys(method, keys));
      const double heavy = method.heavy * (n - fixed);
      // The largest sample: independent values of mean zero, as the benchmark's, need it.
      const double tail = n - fixed - heavy;
      const double pilot = method.pilot * tail;
      const double most = method.max_budget > 0 ? std::min<double>(tail, method.max_budget) : tail;
      return std::min(n, fixed + heavy + most + (pilot < most ? pilot : 0));
    }
    case ChosenBy::kPages: {
      const double page = method.page_size, bought = std::max(1.0, std::floor(budget / page));
      return std::min(n, (bought + (method.newest_within ? 0 : 1)) * page);
    }
    default:
      return std::nullopt;
  }
}

std::optional<Reads> readsOf(const kernels::MethodOptions& method, double n, double budget,
                             double dim) {
  const auto values = valuesRead(method, n, budget);
  if (!values) return std::nullopt;
  if (kernels::readsBounds(method)) {
    const double tiles = std::ceil(n / kernels::kTileKeys);
    return Reads{.drawn_keys = *values, .values = *values, .bounds = tiles * 2 * dim};
  }
  const int bits = kernels::shadowBits(method);
  return Reads{.keys = bits == 0,
               .shadow = bits > 0,
               .bits = bits,
               .drawn_keys = bits > 0 ? *values : 0,
               .values = *values};
}

}  // namespace

const char* const kLimitRule =
    "limited by: memory where share is 0.70 or more; launch/latency where a step takes less\n"
    "than 12 us, or where share is below 0.35 with fewer than two splits of 256 keys for each\n"
    "multiprocessor; instructions/latency otherwise. It is read off the figures; a profiler\n"
    "may know better.\n\n";

std::optional<int> parseOptions(int argc, char** argv, CudaOptions* options) {
  CLI::App app("One decode step of one attention layer on a GPU, by method.");
  addOptions(&app, options);
  app.footer(std::string(kFooter) + kLimitRule + kExamples);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (const auto wrong = clash(*options)) return refuse(*wrong);
  return std::nullopt;
}

std::vector<Shape> shapesOf(const CudaOptions& options) {
  std::vector<Shape> shapes;
  for (const int rows : options.rows) {
    for (const int keys : options.keys) shapes.push_back({rows, keys});
  }
  return shapes;
}

PeerQuestion questionOf(const CudaOptions& options, Shape shape, int64_t flush_bytes) {
  PeerQuestion question = questionOf(options, PeerQuestion::Phase::kDecode, shape.rows, shape.keys);
  question.element = options.element;
  question.flush_bytes = flush_bytes;
  return question;
}

std::vector<Case> casesOf(const CudaOptions& options, int keys) {
  std::vector<Case> cases;
  const uint32_t largest = *std::max_element(options.budgets.begin(), options.budgets.end());
  for (const std::string& text : options.methods) {
    Case one{.text = text, .method = {}, .budget = {}};
    if (kernels::parseMethod(text, &one.method)) continue;
    if (!kernels::usesBudget(one.method)) {
      const bool dense = traitsOf(one.method.method).promise == kernels::Promise::kExact;
      cases.insert(dense ? cases.begin() : cases.end(), one);
      continue;
    }
    for (const uint32_t budget : options.budgets) {
      if (budget >= static_cast<uint32_t>(keys)) continue;
      if (traitsOf(one.method.method).chosen_by == ChosenBy::kTiles && budget != largest) continue;
      one.budget = budget;
      cases.push_back(one);
    }
  }
  return cases;
}

std::optional<Floor> floorOf(const CudaOptions& options, Shape shape, const Case& what) {
  const double n = shape.keys, dim = options.head_dim, group = options.group();
  const double element = static_cast<double>(kernels::bytesOf(options.elementType()));
  const auto reads = readsOf(what.method, n, what.budget.value_or(0), dim);
  if (!reads) return std::nullopt;
  // For one KV head of one row.
  const double keys = reads->keys ? n : std::min(n, group * reads->drawn_keys);
  const double values = std::min(n, group * reads->values);
  Floor floor;
  floor.bytes = (keys + values) * dim * element;
  if (reads->shadow) floor.bytes += n * (dim * reads->bits / 8 + sizeof(float));
  floor.bytes += reads->bounds * element;
  // For the KV head's query heads.
  const bool whole = reads->keys || reads->shadow;
  const double scored = (whole ? n : 0) + (reads->keys ? 0 : reads->drawn_keys);
  floor.multiply_adds = group * ((scored + reads->values) * dim + reads->bounds);
  floor.exponentials = group * scored;
  const double heads = static_cast<double>(shape.rows) * options.kv_heads;
  return Floor{floor.bytes * heads, floor.multiply_adds * heads, floor.exponentials * heads};
}

bool readsBounds(const CudaOptions& options) {
  return std::any_of(options.methods.begin(), options.methods.end(), [](const std::string& text) {
    kernels::MethodOptions method;
    return !kernels::parseMethod(text, &method) && kernels::readsBounds(method);
  });
}

double cacheBytes(const CudaOptions& options, int sequences, int keys) {
  const double pages = std::ceil(static_cast<double>(keys) / options.page_size) * sequences;
  const double positions = pages * options.page_size * options.kv_heads;
  const double element = static_cast<double>(kernels::bytesOf(options.elementType()));
  const double shadow = positions * (options.head_dim / 2.0 + sizeof(float));
  const double mean_keys = pages * options.kv_heads * options.head_dim * sizeof(float);
  const double bounds = readsBounds(options) ? positions * options.head_dim * element / 8 : 0;
  return positions * options.head_dim * element * 2 + shadow + mean_keys + bounds;
}

int copiesFor(const CudaOptions& options, Shape shape, double l2_bytes) {
  double least = INFINITY;
  for (const Case& one : casesOf(options, shape.keys)) {
    // Draws of equal keys read fewer values; one draw is the least.
    Case keys_alone = one;
    if (one.budget) keys_alone.budget = 1;
    if (const auto floor = floorOf(options, shape, keys_alone)) {
      least = std::min(least, floor->bytes);
    }
  }
  if (least >= 4 * l2_bytes) return 1;
  return 1 + static_cast<int>(std::ceil(4 * l2_bytes / least));
}

int64_t splitsOf(const CudaOptions& options, Shape shape) {
  return int64_t{shape.rows} * options.kv_heads *
         ((shape.keys + kernels::cuda::kSplitKeys - 1) / kernels::cuda::kSplitKeys);
}

Timing summarise(std::vector<double> milliseconds) {
  std::sort(milliseconds.begin(), milliseconds.end());
  const auto at = [&](size_t tenths) {
    return milliseconds[(milliseconds.size() - 1) * tenths / 10];
  };
  return {.median = at(5),
          .p10 = at(1),
          .p90 = at(9),
          .samples = static_cast<int>(milliseconds.size())};
}

const char* limitedBy(double milliseconds, double share, int64_t splits, int multiprocessors) {
  if (share >= 0.7) return "memory";
  if (milliseconds < kShortMilliseconds) return "launch/latency";
  if (share < 0.35 && splits < 2 * int64_t{multiprocessors}) return "launch/latency";
  return "instructions/latency";
}

}  // namespace allot::bench
