// What the benchmark of the GPU counts and decides, without a GPU.
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "kernels/bench/cuda_plan.h"
#include "kernels/bench/cuda_report.h"
#include "kernels/bench/score_profiles.h"

namespace allot::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Shape kShape = {.rows = 16, .keys = 32768};

Case caseOf(const std::string& text, std::optional<uint32_t> budget = {}) {
  Case one{.text = text, .method = {}, .budget = budget};
  EXPECT_EQ(kernels::parseMethod(text, &one.method), std::nullopt);
  return one;
}

Floor floorAt(const std::string& text, std::optional<uint32_t> budget = {}) {
  return floorOf({}, kShape, caseOf(text, budget)).value();
}

std::optional<int> parse(std::vector<const char*> arguments, CudaOptions* options) {
  arguments.insert(arguments.begin(), "allot-bench decode gpu");
  return parseOptions(static_cast<int>(arguments.size()), const_cast<char**>(arguments.data()),
                      options);
}

std::vector<std::string> namesOf(const std::vector<Case>& cases) {
  std::vector<std::string> names;
  for (const Case& one : cases) {
    names.push_back(one.text + (one.budget ? "@" + std::to_string(*one.budget) : ""));
  }
  return names;
}

TEST(CudaBenchFloors, CountBytesOnceAKvHead) {
  constexpr double kVectors = 16.0 * 8 * 32768, kDrawn = 16.0 * 32 * 128;
  EXPECT_EQ(floorAt("dense").bytes, 2147483648);
  EXPECT_EQ(floorAt("s2anta-prop", 128).bytes, kVectors * 256 + kDrawn * 256);
  EXPECT_EQ(floorAt("s2anta-sys", 128).bytes, floorAt("top-k", 128).bytes);
  EXPECT_EQ(floorAt("s2anta-q4", 128).bytes, kVectors * 68 + kDrawn * 512);
  EXPECT_EQ(floorAt("top-k scores=q4", 128).bytes, floorAt("s2anta-q4", 128).bytes);
  // 128 tiles of 256 keys: a draw each, or sixteen.
  EXPECT_EQ(floorAt("s2anta-flash", 64).bytes, floorAt("s2anta-prop", 128).bytes);
  EXPECT_EQ(floorAt("s2anta-flash", 2048).bytes, floorAt("s2anta-prop", 2048).bytes);
  // Four heads that want a third of the rows each cannot want more than all.
  EXPECT_EQ(floorAt("s2anta-prop", 12000).bytes, floorAt("dense").bytes);
  // Bounds of 2048 pages, and of four and the newest page keys and values.
  constexpr double kBounds = 16.0 * 8 * 2048 * 512;
  EXPECT_EQ(floorAt("quest", 64).bytes, kBounds + 16.0 * 32 * 80 * 512);
  EXPECT_EQ(floorAt("quest newest=within", 64).bytes, kBounds + 16.0 * 32 * 64 * 512);
  EXPECT_FALSE(floorOf({}, kShape, caseOf("bernoulli", 64)));
}

TEST(CudaBenchFloors, CountOperationsOfEveryHead) {
  EXPECT_EQ(floorAt("dense").multiply_adds, 2.0 * 16 * 32 * 32768 * 128);
  EXPECT_EQ(floorAt("dense").exponentials, 16.0 * 32 * 32768);
  EXPECT_EQ(floorAt("s2anta-q4", 128).multiply_adds, 16.0 * 32 * 128 * (32768 + 2 * 128));
  EXPECT_EQ(floorAt("s2anta-q4", 128).exponentials, 16.0 * 32 * (32768 + 128));
}

TEST(CudaBenchGrid, LeavesOutWhatWouldRepeat) {
  CudaOptions options;
  options.methods = {"s2anta-prop", "s2anta-flash", "vattention scores=q4", "dense"};
  options.budgets = {64, 2048};
  EXPECT_THAT(namesOf(casesOf(options, 4096)),
              ElementsAre("dense", "s2anta-prop@64", "s2anta-prop@2048", "s2anta-flash@2048",
                          "vattention scores=q4"));
  EXPECT_THAT(namesOf(casesOf(options, 2048)),
              ElementsAre("dense", "s2anta-prop@64", "vattention scores=q4"));
}

TEST(CudaBenchCache, HoldsShadowsAndMeanKeysAndBoundsForWhatReadsThem) {
  // A page of 16 keys and 8 heads: keys and values, codes and scales, the mean key.
  constexpr double kPage = 16 * 8 * 128 * 4.0 + 16 * 8 * (64 + 4) + 8 * 128 * 4;
  constexpr double kBounds = 8 * 2 * 128 * 2;
  CudaOptions options;
  EXPECT_EQ(cacheBytes(options, 64, 131072), (kPage + kBounds) * 64 * 8192);
  options.methods = {"dense", "s2anta-q4"};
  EXPECT_EQ(cacheBytes(options, 1, 17), kPage * 2);
}

TEST(CudaBenchCache, HasCopiesUntilTheirReadsFillFourL2) {
  const double l2 = 60 << 20;
  for (const Shape shape : {Shape{1, 4096}, Shape{4, 8192}, Shape{16, 32768}}) {
    // Of the shadow of every key at least.
    const double least = 68.0 * 8 * shape.keys * shape.rows;
    const int copies = copiesFor({}, shape, l2);
    EXPECT_TRUE(copies == 1 ? least >= 4 * l2 : (copies - 1) * least >= 3.9 * l2);
  }
  EXPECT_EQ(copiesFor({}, {64, 131072}, l2), 1);
}

TEST(CudaBenchRule, NamesWhatLimits) {
  EXPECT_STREQ(limitedBy(0.005, 0.8, 10, 132), "memory");
  EXPECT_STREQ(limitedBy(0.005, 0.5, 10000, 132), "launch/latency");
  EXPECT_STREQ(limitedBy(0.05, 0.3, 128, 132), "launch/latency");
  EXPECT_STREQ(limitedBy(0.05, 0.3, 1024, 132), "instructions/latency");
  EXPECT_STREQ(limitedBy(0.05, 0.5, 128, 132), "instructions/latency");
}

TEST(CudaBenchOptions, AreRefusedInOneSentence) {
  CudaOptions options;
  EXPECT_EQ(
      parse({"--rows", "2", "8", "--methods", "dense", "top-k scores=q4", "--element", "fp16"},
            &options),
      std::nullopt);
  EXPECT_THAT(options.rows, ElementsAre(2, 8));
  EXPECT_THAT(options.methods, ElementsAre("dense", "top-k scores=q4"));
  EXPECT_EQ(options.elementType(), kernels::Element::kFloat16);
  for (const std::vector<const char*>& wrong :
       {std::vector<const char*>{"--methods", "dens"},
        {"--kv-heads", "5"},
        {"--kv-heads", "1"},
        {"--head-dim", "96"},
        {"--page-size", "32"},
        {"--element", "fp8"},
        {"--budgets-by", "layer"},
        {"--peers", "vllm"},
        {"--budgets-by", "half", "--heads", "9", "--kv-heads", "3"},
        {"--rows", "0"}}) {
    CudaOptions other;
    EXPECT_EQ(parse(wrong, &other), 64) << wrong[0];
  }
}

TEST(CudaBenchReport, DerivesRatiosFromItsOwnDense) {
  ShapeReport report{.shape = kShape, .figures = {}, .left_out = {}};
  report.peers = {{"torch", {{"ms", 0.6}}}, {"flashinfer", {{"error", "too little memory"}}}};
  report.dense_bytes = 2e9;
  report.pages_ms = 0.45;
  CudaDevice device;
  device.multiprocessors = 132;
  device.copy_gbs = 4000;
  for (const auto& [scores, method, milliseconds, bytes] :
       {std::tuple{"gaussian", "dense", 0.9, 2e9},
        {"peaked", "dense", 0.5, 2e9},
        {"peaked", "s2anta-q4", 0.2, 0.4e9}}) {
    report.figures.push_back({.shape = kShape,
                              .scores = scores,
                              .method = method,
                              .budget = {},
                              .timing = {.median = milliseconds},
                              .bytes = bytes});
  }
  const Derived derived = derive({}, device, report, report.figures.back());
  EXPECT_DOUBLE_EQ(derived.gbs, 2000);
  EXPECT_DOUBLE_EQ(derived.share, 0.5);
  EXPECT_DOUBLE_EQ(derived.times_dense, 2.5);
  EXPECT_DOUBLE_EQ(derived.times_peers.at("torch"), 3);
  EXPECT_TRUE(std::isnan(derived.times_peers.at("flashinfer")));
  EXPECT_EQ(derived.fastest, "this");
  EXPECT_DOUBLE_EQ(derived.bound, 5);
  EXPECT_DOUBLE_EQ(derived.of_bound, 0.5);
  EXPECT_THAT(reportJson({}, device, report).dump(), HasSubstr("\"limitedBy\":\"instructions"));
  // Of the peaked ones dense takes 0.5 ms, of the others 0.9.
  EXPECT_EQ(derive({}, device, report, report.figures[0]).fastest, "torch");
  EXPECT_EQ(derive({}, device, report, report.figures[1]).fastest, "this");
  report.figures[2].timing.median = 0.55;
  EXPECT_EQ(derive({}, device, report, report.figures[2]).fastest, "dense");
  report.peers["mine"] = {{"ms", 0.1}, {"way", "tiles"}, {"graph", true}};
  const Derived beaten = derive({}, device, report, report.figures[2]);
  EXPECT_EQ(beaten.fastest, "mine");
  EXPECT_DOUBLE_EQ(beaten.times_peers.at("mine"), 0.1 / 0.55);
  const auto json = reportJson({}, device, report);
  EXPECT_EQ(json["figures"][2]["fastest"], "mine");
  EXPECT_EQ(json["stepTimes"].dump(), "{}");
  report.figures.push_back(report.figures[2]);
  for (size_t i = 2; i < 4; ++i) report.figures[i].budget = i == 2 ? 128 : 8;
  report.figures[3].timing.median = 0.1324567;
  EXPECT_EQ(reportJson({}, device, report)["stepTimes"].dump(),
            "{\"peaked\":{\"s2anta-q4\":\"dense 500, 8 132.5, 128 550\"}}");
  report.figures.pop_back();
  EXPECT_TRUE(json["figures"][2]["timesPeers"]["flashinfer"].is_null());
  EXPECT_EQ(json["peers"]["mine"]["way"], "tiles");
  testing::internal::CaptureStdout();
  printReport({}, device, report);
  const std::string table = testing::internal::GetCapturedStdout();
  EXPECT_THAT(table, HasSubstr("; reading their pages alone 0.4500 ms"));
  EXPECT_THAT(table, HasSubstr("; mine 0.1000 ms (tiles)"));
  EXPECT_THAT(table, testing::ContainsRegex("xSDPA +xFI +xmine +fastest"));
}

TEST(ScoreProfiles, AreSortedAndCentred) {
  const ScoreProfiles profiles =
      readScoreProfiles(ALLOT_SOURCE_DIR "/tests/golden/recall_states.bin");
  ASSERT_EQ(profiles.size(), 5u * 4 * 8);
  for (size_t i = 0; i < profiles.size(); ++i) {
    const auto begin = profiles.scores.begin() + profiles.offsets[i];
    const auto end = profiles.scores.begin() + profiles.offsets[i + 1];
    EXPECT_GT(end - begin, 380);
    EXPECT_TRUE(std::is_sorted(begin, end));
    EXPECT_NEAR(std::accumulate(begin, end, 0.0), 0, 1e-2);
  }
  EXPECT_EQ(readScoreProfiles("").size(), 0u);
  EXPECT_EQ(readScoreProfiles(ALLOT_SOURCE_DIR "/README.md").size(), 0u);
}

TEST(DualBasis, MakesKeysWithTheScoresAskedFor) {
  constexpr int kGroup = 16, kDim = 64;
  std::vector<float> queries(kGroup * kDim), dual(queries.size()), key(kDim);
  for (size_t i = 0; i < queries.size(); ++i) {
    queries[i] = std::sin(0.7f * static_cast<float>(i * i % 1013));
  }
  for (size_t i = 0; i < key.size(); ++i) key[i] = std::cos(1.3f * static_cast<float>(i));
  dualBasis(queries.data(), kGroup, kDim, dual.data());
  const auto product = [&](int head, const std::vector<float>& with) {
    const float* query = &queries[static_cast<size_t>(head) * kDim];
    return std::inner_product(query, query + kDim, with.begin(), 0.0f);
  };
  std::vector<float> moved = key;
  for (int head = 0; head < kGroup; ++head) {
    const float gap = static_cast<float>(head) - product(head, key);
    for (int i = 0; i < kDim; ++i) moved[i] += gap * dual[head * kDim + i];
  }
  for (int head = 0; head < kGroup; ++head) EXPECT_NEAR(product(head, moved), head, 1e-3);
}

}  // namespace
}  // namespace allot::bench
