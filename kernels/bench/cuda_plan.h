#pragma once
// What allot-bench's GPU part measures: options, the grid of cases, and the fewest bytes and
// operations of a case. Pure functions, except parseOptions(), which prints; any thread; no CUDA.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allot/kernels/method.h"
#include "allot/kernels/paged_kv.h"
#include "kernels/bench/peer.h"

namespace allot::bench {

struct CudaOptions : LayerOptions {
  std::vector<int> rows = {1, 4, 16, 64};
  std::vector<int> keys = {4096, 8192, 32768, 131072};
  std::vector<uint32_t> budgets = {64, 128, 256, 2048};
  std::vector<std::string> scores = {"gaussian", "peaked"};
  std::vector<std::string> methods = {"dense",
                                      "s2anta-prop",
                                      "s2anta-flash",
                                      "s2anta-q4",
                                      "top-k",
                                      "top-k scores=q4",
                                      "vattention scores=q4",
                                      "vattention scores=q4 maxBudget=1024",
                                      "quest",
                                      "adaptive-denominator scores=q4 maxBudget=1024",
                                      "bernoulli meanGroupQuery=true",
                                      "skip-softmax"};
  // row: one budget a row; head: one a head, all equal; half: one a head, 0 for the heads of every
  // second KV head.
  std::string budgets_by = "row";
  std::string element = "bf16";
  double memory_gib = 100;
  std::string states;  // recorded attention states; "": none
  bool two_floors = false;
  std::string json;

  int group() const { return heads / kv_heads; }
  kernels::Element elementType() const {
    return element == "fp16" ? kernels::Element::kFloat16 : kernels::Element::kBFloat16;
  }
};

// Reads the command line. Returns nothing, or the exit status after printing help or a sentence. On
// entry options->states is the default of --states.
std::optional<int> parseOptions(int argc, char** argv, CudaOptions* options);

struct Shape {
  int rows = 0;
  int keys = 0;
};
// Returns the shapes of --rows and --keys.
std::vector<Shape> shapesOf(const CudaOptions& options);

// Returns the question about a shape for a peer. flush_bytes: bytes to read between two uses of a
// key.
PeerQuestion questionOf(const CudaOptions& options, Shape shape, int64_t flush_bytes);

// A method at one sample budget.
struct Case {
  std::string text;
  kernels::MethodOptions method;
  std::optional<uint32_t> budget;  // none: the method ignores it
};

// Returns the cases at a length, dense first. Omits budgets of methods that ignore them, budgets
// that reach all keys, and for s2anta-flash all budgets but the largest of the options.
std::vector<Case> casesOf(const CudaOptions& options, int keys);

// The least work of a step, whatever the implementation.
struct Floor {
  double bytes = 0;          // of keys, shadows, bounds and values, read once a KV head
  double multiply_adds = 0;  // of queries with keys and of weights with values
  double exponentials = 0;
};

// Returns the floor of a case. Draws count as if all were of different keys. vattention and
// adaptive-denominator count as if they sampled the whole tail, or maxBudget keys of it. Returns
// nothing for methods whose reads do not follow from the sizes.
std::optional<Floor> floorOf(const CudaOptions& options, Shape shape, const Case& what);

// Returns true if one of the methods reads bounds; caches have them only then.
bool readsBounds(const CudaOptions& options);

// Returns the bytes of a cache of `sequences` sequences, 4-bit shadow included.
double cacheBytes(const CudaOptions& options, int sequences, int keys);

// Returns how many copies of a shape's sequences steps take in turn, at least 1, so that even the
// case with the least known floor reads four times the L2 cache's size between two uses of a key.
int copiesFor(const CudaOptions& options, Shape shape, double l2_bytes);

// Returns the splits of kSplitKeys keys of all rows and KV heads.
int64_t splitsOf(const CudaOptions& options, Shape shape);

// Order statistics of times in milliseconds, without interpolation: the median of an even number is
// the lower of the two in the middle.
struct Timing {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  int samples = 0;
};
// Requires: at least one time.
Timing summarise(std::vector<double> milliseconds);

// Returns what limits a step, judged by its figures (kLimitRule).
const char* limitedBy(double milliseconds, double share, int64_t splits, int multiprocessors);
extern const char* const kLimitRule;

}  // namespace allot::bench
