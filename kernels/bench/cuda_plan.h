#pragma once
// What allot-bench decode gpu measures, and what its figures are held against: options, the grid of
// cases, and for each case the fewest bytes and operations. Pure functions; no CUDA.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allot/kernels/method.h"
#include "allot/kernels/paged_kv.h"
#include "kernels/bench/peer.h"

namespace allot::bench {

struct CudaOptions {
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
  // Whose budgets are: one a row, the same for each head by head, or by head with the heads of
  // every second KV head silent.
  std::string budgets_by = "row";
  int heads = 32;
  int kv_heads = 8;
  int head_dim = 128;
  int page_size = 16;
  std::string element = "bf16";
  double memory_gib = 100;
  int warm_up = 10;
  int samples = 40;
  uint64_t seed = 1;
  std::string states;  // recorded attention states; "": none
  std::string python = "python3";
  std::vector<std::string> peers = {"torch"};  // as Peer names them
  bool try_peers = false;
  bool two_floors = false;
  std::string json;

  int group() const { return heads / kv_heads; }
  kernels::Element elementType() const {
    return element == "fp16" ? kernels::Element::kFloat16 : kernels::Element::kBFloat16;
  }
};

// Reads the command line. Nothing if the program is to go on; else what it exits with, after help
// or a sentence has been printed. `states` holds the default of --states.
std::optional<int> parseOptions(int argc, char** argv, CudaOptions* options);

struct Shape {
  int rows = 0;
  int keys = 0;
};

// What a peer is asked about a shape. flush_bytes: read between two uses of a key.
PeerQuestion questionOf(const CudaOptions& options, Shape shape, int64_t flush_bytes);

// A method at one sample budget.
struct Case {
  std::string text;
  kernels::MethodOptions method;
  std::optional<uint32_t> budget;  // nothing: it does not depend on one
};

// What is measured at that length, dense first. Left out, as they would repeat another case:
// budgets of methods that use none, budgets that reach all keys (dense), and all but the largest
// budget of s2anta-flash (below one draw a tile they are all the same).
std::vector<Case> casesOf(const CudaOptions& options, int keys);

// What a step cannot do without, whatever the implementation.
struct Floor {
  double bytes = 0;          // of keys, shadows and values, each read once a KV head
  double multiply_adds = 0;  // of queries with keys and of weights with values
  double exponentials = 0;
};

// Rows that are drawn are counted as if no two draws met; vattention without the rows that its
// promise asks for beyond the pilot. Nothing for a method whose reads are not known from its sizes.
std::optional<Floor> floorOf(const CudaOptions& options, Shape shape, const Case& what);

// Whether a cache has bounds of its keys: only then, since figures are of caches without.
bool readsBounds(const CudaOptions& options);

// Device memory of the caches of that many sequences, with their 4-bit shadow.
double cacheBytes(const CudaOptions& options, int sequences, int keys);

// Copies of a shape's sequences that steps take in turn, so that four times the L2 cache is read
// between two uses of a key: for the case that reads least. At least 1.
int copiesFor(const CudaOptions& options, Shape shape, double l2_bytes);

// Splits of a step.
int64_t splitsOf(const CudaOptions& options, Shape shape);

// In milliseconds.
struct Timing {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  int samples = 0;
};
Timing summarise(std::vector<double> milliseconds);

// What holds a step back, judged by its figures alone: see kLimitRule.
const char* limitedBy(double milliseconds, double share, int64_t splits, int multiprocessors);
extern const char* const kLimitRule;

}  // namespace allot::bench
