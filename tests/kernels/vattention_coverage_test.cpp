// What vattention claims: |out - o| > epsilon |o| with probability at most delta.
//
// A case is one attention state at one (epsilon, delta), run with 300 random streams (a recorded
// state: 100), or all states of a line of the tables. It fails if it exceeds epsilon so often that
// a binomial of delta would do so with probability 1e-8 at most. All 2600 cases together raise a
// false alarm with probability below 3e-5, even if each sat at delta exactly. adaptive-denominator,
// which claims less, runs beside it under its own name for comparison.
#include <cstdio>

#include "tests/kernels/coverage.h"
#include "tests/kernels/recall_states.h"

namespace allot::kernels {
namespace {

constexpr const char* kStates = ALLOT_SOURCE_DIR "/tests/golden/recall_states.bin";
constexpr double kFalseAlarm = 1e-8;
constexpr int kRuns = 300;          // of a synthetic state
constexpr int kRecordedRuns = 100;  // of a recorded one

struct Claim {
  double epsilon, delta;
};
constexpr Claim kClaims[] = {{0.05, 0.05}, {0.1, 0.1}, {0.3, 0.2}, {0.5, 0.05}, {1, 0.05}};

MethodOptions options(Method method, KeyScores scores, Claim claim) {
  MethodOptions options;
  options.method = method;
  options.scores = scores;
  options.epsilon = claim.epsilon;
  options.delta = claim.delta;
  return options;
}

const char* nameOf(KeyScores scores) { return scores == KeyScores::kExact ? "exact" : "q4"; }

bool holds(const Coverage& coverage, double delta) {
  return binomialAbove(coverage.exceeded - 1, coverage.runs, delta) > kFalseAlarm;
}

enum class Shape { kFlat, kPeaked, kHeavyTailed };
constexpr const char* kShapes[] = {"flat", "peaked", "heavy-tailed"};

// Scores of the shape, in keys that have them as q.k; values of a common mean (of length `mean`
// times sqrt(head_dim)) that also vary with the score, so that errors of numerator and denominator
// are related.
AttentionState synthetic(Shape shape, int n, float mean, uint64_t seed) {
  constexpr int kDim = 32;
  AttentionState state;
  state.head_dim = kDim;
  state.query = normals(kDim, seed);
  state.keys = normals(static_cast<size_t>(n) * kDim, seed + 1);
  state.values = normals(static_cast<size_t>(n) * kDim, seed + 2);
  const auto centre = normals(kDim, seed + 3), slope = normals(kDim, seed + 4);
  const auto noise = normals(n, seed + 5);
  std::mt19937_64 random(seed + 6);
  std::uniform_real_distribution<double> uniform;
  double norm = 0;
  for (const float q : state.query) norm += double{q} * q;
  for (int j = 0; j < n; ++j) {
    double score = 0.5 * noise[j];
    if (shape == Shape::kPeaked) score = noise[j] + (uniform(random) < 3.0 / n ? 8 : 0);
    // exp(score) is Pareto with exponent 1.2: no variance but for n being finite.
    if (shape == Shape::kHeavyTailed) score = -std::log(1 - uniform(random)) / 1.2;
    float* key = state.keys.data() + static_cast<size_t>(j) * kDim;
    float* value = state.values.data() + static_cast<size_t>(j) * kDim;
    double dot = 0;
    for (int d = 0; d < kDim; ++d) dot += double{state.query[d]} * key[d];
    for (int d = 0; d < kDim; ++d) {
      key[d] += static_cast<float>((score - dot) / norm * state.query[d]);
      value[d] += mean * centre[d] + 0.3f * slope[d] * static_cast<float>(score);
    }
  }
  return state;
}

// Returns a state with values that cancel, except for this share of their sum.
AttentionState cancelling(int n, double left) {
  AttentionState state = synthetic(Shape::kFlat, n, 0, 17);
  const std::vector<double> out = exactOutput(state);
  for (size_t i = 0; i < state.values.size(); ++i) {
    state.values[i] -= static_cast<float>((1 - left) * out[i % out.size()]);
  }
  return state;
}

// All states of a line. Their streams differ, so that runs add up.
struct Sum {
  Coverage all;
  double worst = 0;
  void add(const Coverage& c) {
    const double share = static_cast<double>(c.runs) / (all.runs + c.runs);
    all.rows_read += share * (c.rows_read - all.rows_read);
    all.root_error += share * (c.root_error - all.root_error);
    all.runs += c.runs;
    all.exceeded += c.exceeded;
    worst = std::max(worst, c.exceedance());
  }
};

// Both methods at one claim over the states; asserts vattention's.
void compare(const char* name, int n, const std::vector<SharedState>& states, Claim claim,
             KeyScores scores) {
  Sum sums[2];
  for (size_t i = 0; i < states.size(); ++i) {
    const Coverage ours =
        states[i].coverage(options(Method::kVAttention, scores, claim), claim.epsilon, i);
    ASSERT_GT(ours.runs, 0);
    EXPECT_TRUE(holds(ours, claim.delta)) << name << " state " << i << ": " << ours.exceedance();
    sums[0].add(ours);
    sums[1].add(
        states[i].coverage(options(Method::kAdaptiveDenominator, scores, claim), claim.epsilon, i));
  }
  EXPECT_TRUE(holds(sums[0].all, claim.delta)) << name << ": " << sums[0].all.exceedance();
  std::printf("%-13s %5d %7.2f %5.2f %-6s|", name, n, claim.epsilon, claim.delta, nameOf(scores));
  for (const Sum& s : sums) {
    std::printf("   %.3f   %.3f   %.3f   %.3f %s", s.all.exceedance(), s.worst, s.all.rows_read,
                s.all.root_error, &s == sums ? "|" : "\n");
  }
}

void header(const char* what) {
  std::printf("%s\n%-13s %5s %7s %5s %-6s| %-31s| %-31s\n%-40s| %-31s| %s\n", what, "scores", "n",
              "epsilon", "delta", "heavy", "vattention", "adaptive-denominator", "",
              "exceeded  worst   rows    error", "exceeded  worst   rows    error");
}

TEST(Coverage, SyntheticScores) {
  header("Share of streams whose error exceeds epsilon: mean and worst of 4 states; value rows");
  for (const Shape shape : {Shape::kFlat, Shape::kPeaked, Shape::kHeavyTailed}) {
    for (const int n : {300, 1000, 4000}) {
      std::vector<SharedState> states;
      for (const float mean : {0.0f, 1.0f}) {
        for (const uint64_t seed : {17, 1017}) {
          states.emplace_back(synthetic(shape, n, mean, seed), kRuns);
        }
      }
      for (const Claim claim : kClaims) {
        for (const KeyScores scores : {KeyScores::kExact, KeyScores::kQ4}) {
          compare(kShapes[static_cast<int>(shape)], n, states, claim, scores);
        }
      }
    }
  }
}

TEST(Coverage, ABudgetTooSmallForTheClaimIsFound) {
  // The twin: rows for a larger epsilon than the one tested, and a limit that voids the claim.
  for (const KeyScores scores : {KeyScores::kExact, KeyScores::kQ4}) {
    const Claim claim{0.05, 0.05};
    const SharedState state(synthetic(Shape::kFlat, 4000, 1, 17), kRuns);
    MethodOptions loose = options(Method::kVAttention, scores, claim);
    loose.epsilon = 1;
    EXPECT_FALSE(holds(state.coverage(loose, claim.epsilon, 5), claim.delta));
    MethodOptions limited = options(Method::kVAttention, scores, claim);
    limited.max_budget = 64;
    EXPECT_FALSE(holds(state.coverage(limited, claim.epsilon, 5), claim.delta));
  }
}

TEST(Coverage, TheSmallestPilotIsEnough) {
  for (const Shape shape : {Shape::kFlat, Shape::kPeaked, Shape::kHeavyTailed}) {
    for (const int n : {120, 300, 1000, 4000}) {
      // Values without a common mean: their sum is small, so a spread that is missed shows most.
      const SharedState state(synthetic(shape, n, 0, 17), kRuns);
      for (const Claim claim : kClaims) {
        for (const KeyScores scores : {KeyScores::kExact, KeyScores::kQ4}) {
          MethodOptions smallest = options(Method::kVAttention, scores, claim);
          smallest.pilot = 0;
          const Coverage c = state.coverage(smallest, claim.epsilon, 5);
          ASSERT_EQ(c.runs, kRuns);
          EXPECT_TRUE(holds(c, claim.delta))
              << kShapes[static_cast<int>(shape)] << " n " << n << ": " << c.exceedance();
        }
      }
    }
  }
}

TEST(Coverage, ValuesThatNearlyCancel) {
  for (const double left : {0.3, 0.1, 0.01}) {
    for (const int n : {300, 4000}) {
      const SharedState shared(cancelling(n, left), kRuns);
      for (const Claim claim : kClaims) {
        const MethodOptions method = options(Method::kVAttention, KeyScores::kExact, claim);
        const Coverage c = shared.coverage(method, claim.epsilon, 5);
        EXPECT_TRUE(holds(c, claim.delta))
            << left << " n " << n << " epsilon " << claim.epsilon << ": " << c.exceedance();
      }
    }
  }
}

// The other settings keep the promise: estimate where values do not cancel (they have a common
// mean), sinks and newest keys by share wherever counts do. That a promise can break is below and
// above: TheEstimatesPromiseIsBrokenWhereValuesCancel, ABudgetTooSmallForTheClaimIsFound.
TEST(Coverage, HoldsForTheOtherSettings) {
  std::printf("share of streams beyond epsilon, worst state; value rows\n");
  for (const auto& [text, means] :
       {std::pair{"vattention cancelling=estimate", std::vector{1.0f}},
        {"vattention split=half cancelling=estimate", {1.0f}},
        {"vattention sink=0.01 local=0.01", {0.0f, 1.0f}},
        {"vattention sink=0.0001 local=0.1 split=half", {0.0f, 1.0f}}}) {
    for (const Claim claim : kClaims) {
      Sum sum;
      MethodOptions method = methodOf(text);
      method.epsilon = claim.epsilon, method.delta = claim.delta;
      for (const Shape shape : {Shape::kFlat, Shape::kPeaked, Shape::kHeavyTailed}) {
        for (const int n : {300, 4000}) {
          for (const float mean : means) {
            const SharedState state(synthetic(shape, n, mean, 17), kRuns);
            const Coverage c = state.coverage(method, claim.epsilon, 5);
            ASSERT_EQ(c.runs, kRuns);
            EXPECT_TRUE(holds(c, claim.delta))
                << text << ", " << kShapes[static_cast<int>(shape)] << " n " << n << ", epsilon "
                << claim.epsilon << ": " << c.exceedance();
            sum.add(c);
          }
        }
      }
      std::printf("%-46s epsilon %.2f delta %.2f   %.3f %.3f\n", text, claim.epsilon, claim.delta,
                  sum.worst, sum.all.rows_read);
    }
  }
}

// What cancelling=estimate gives up: with a hundredth of the sum left, its errors are beyond any
// epsilon in nearly every stream, of far fewer rows.
TEST(Coverage, TheEstimatesPromiseIsBrokenWhereValuesCancel) {
  const SharedState shared(cancelling(4000, 0.01), kRuns);
  const Claim claim{1, 0.05};
  MethodOptions method = options(Method::kVAttention, KeyScores::kExact, claim);
  method.trusts_numerator = true;
  const Coverage c = shared.coverage(method, claim.epsilon, 5);
  EXPECT_FALSE(holds(c, claim.delta)) << c.exceedance();
  EXPECT_LT(c.rows_read, 0.9);
}

TEST(Coverage, ErrorFollowsEpsilon) {
  const SharedState state(synthetic(Shape::kHeavyTailed, 4000, 1, 17), kRuns);
  double before = 0;
  for (const double epsilon : {0.025, 0.05, 0.1, 0.2}) {
    const Claim claim{epsilon, 0.1};
    const Coverage c =
        state.coverage(options(Method::kVAttention, KeyScores::kExact, claim), epsilon, 5);
    EXPECT_GT(c.root_error, before);
    EXPECT_LT(c.root_error, epsilon);
    before = c.root_error;
  }
}

// One step and head of a block, as a state of its own.
AttentionState stateOf(const RecallBlock& block, uint32_t step, uint32_t head) {
  AttentionState state;
  const size_t dim = block.head_dim, kv_head = head / (block.heads / block.kv_heads);
  state.head_dim = static_cast<int>(dim);
  state.scale = 1 / std::sqrt(static_cast<float>(dim));
  const float* query = block.queries.data() + (size_t{step} * block.heads + head) * dim;
  state.query.assign(query, query + dim);
  for (int j = 0; j < block.length(step); ++j) {
    const size_t at = (static_cast<size_t>(j) * block.kv_heads + kv_head) * dim;
    state.keys.insert(state.keys.end(), &block.keys[at], &block.keys[at] + dim);
    state.values.insert(state.values.end(), &block.values[at], &block.values[at] + dim);
  }
  return state;
}

// Every step and head of the block, with `runs` streams each.
void addStates(const RecallBlock& block, int runs, std::vector<SharedState>* states) {
  for (uint32_t step = 0; step < block.steps; ++step) {
    for (uint32_t head = 0; head < block.heads; ++head) {
      states->emplace_back(stateOf(block, step, head), runs);
    }
  }
}

// What the rules cost and what they keep, over all recorded states: the figures of
// kernels/README.md.
TEST(Coverage, CostOfTheRulesOnRecordedStates) {
  std::vector<SharedState> states;
  for (const RecallBlock& block : readRecallStates(kStates)) addStates(block, 5, &states);
  std::printf("share of value rows read, and of streams beyond epsilon; delta 0.1\n");
  std::printf("%7s | %-15s | %-15s | %-15s | %s\n", "epsilon", "half, all", "best, all",
              "half, estimate", "best, estimate");
  for (const double epsilon : {0.1, 0.4, 1.0}) {
    Sum sums[4];
    for (int rule = 0; rule < 4; ++rule) {
      MethodOptions method = options(Method::kVAttention, KeyScores::kExact, {epsilon, 0.1});
      method.half_delta = rule % 2 == 0;
      method.trusts_numerator = rule >= 2;
      for (size_t i = 0; i < states.size(); ++i) {
        sums[rule].add(states[i].coverage(method, epsilon, i));
      }
    }
    std::printf("%7.2f", epsilon);
    for (const Sum& sum : sums) {
      std::printf(" |   %.3f   %.4f", sum.all.rows_read, sum.all.exceedance());
    }
    std::printf("\n");
    // So does the estimate: few of these heads' values cancel so far.
    for (const Sum& sum : sums) EXPECT_TRUE(holds(sum.all, 0.1)) << epsilon;
    EXPECT_LT(sums[1].all.rows_read, sums[0].all.rows_read) << epsilon;
    EXPECT_LT(sums[3].all.rows_read, sums[1].all.rows_read) << epsilon;
  }
}

TEST(Coverage, RecordedStatesOfRecall7m) {
  const auto blocks = readRecallStates(kStates);
  ASSERT_EQ(blocks.size(), 5u);
  header("recall-7m: mean and worst over 8 heads and 4 steps");
  for (const RecallBlock& block : blocks) {
    std::vector<SharedState> states;
    addStates(block, kRecordedRuns, &states);
    for (const Claim claim : kClaims) {
      for (const KeyScores scores : {KeyScores::kExact, KeyScores::kQ4}) {
        compare(("layer " + std::to_string(block.layer)).c_str(), block.length(0), states, claim,
                scores);
      }
    }
  }
}

}  // namespace
}  // namespace allot::kernels
