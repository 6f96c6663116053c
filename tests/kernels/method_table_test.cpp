// The methods' table (method_names.h): what is made from it, and that each promise in it is held to
// by a test.
#include <gtest/gtest.h>

#include <set>

#include "allot/kernels/method.h"
#include "tests/readme.h"

namespace allot::kernels {
namespace {

TEST(MethodTable, IsInOrderAndNamesAreUnique) {
  std::set<std::string_view> names;
  for (const MethodTraits& method : methodTable()) {
    EXPECT_EQ(&traitsOf(method.method), &method);
    EXPECT_TRUE(names.insert(method.name).second) << method.name;
    EXPECT_NE(method.phases, Phases::kNone) << method.name;
    EXPECT_NE(method.reads, "") << method.name;
    EXPECT_EQ(includes(method.phases, Phase::kPrefill), method.prompts != Prompts::kNone)
        << method.name;
    const bool has_blocks = method.prompts != Prompts::kNone && method.prompts != Prompts::kQueries;
    EXPECT_EQ(has_blocks, method.key_block != 0) << method.name;
  }
  EXPECT_EQ(names.size(), methodTable().size());
}

TEST(MethodTable, TheGpusColumnIsWhatIsNotRefused) {
  for (const MethodTraits& method : methodTable()) {
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
      SCOPED_TRACE(std::string(method.name) + (phase == Phase::kDecode ? ", decode" : ", prefill"));
      MethodOptions options;
      const bool known = !parseMethod(method.name, &options, phase);
      EXPECT_EQ(known, includes(method.phases, phase));
      options.method = method.method;
      EXPECT_EQ(!gpuUnsupported(options, phase), includes(method.gpu, phase));
      // What a GPU has, there is.
      EXPECT_TRUE(known || !includes(method.gpu, phase));
    }
  }
}

TEST(MethodTable, AGpuDrawsForGroups) {
  const auto refusal = [](const char* text) {
    MethodOptions options;
    EXPECT_EQ(parseMethod(text, &options), std::nullopt);
    return gpuUnsupported(options).value_or("");
  };
  for (const char* text : {"santa draws=group", "s2anta-strat draws=group weights=exact",
                           "s2anta-prop draws=group exactAbove=never", "s2anta-q4 draws=group"}) {
    EXPECT_EQ(refusal(text), "") << text;
  }
  EXPECT_EQ(refusal("s2anta-sys draws=group weights=centred"),
            "the GPU's s2anta-sys takes weights=self, exact, not centred");
  EXPECT_EQ(refusal("santa draws=group proposal=attention-norm"),
            "the GPU's santa takes proposal=attention, not attention-norm");
  EXPECT_EQ(refusal("s2anta-q4 draws=group weights=exact"),
            "the GPU's s2anta-q4 takes weights=self, not exact");
  for (const char* text : {"top-k scores=q4 choose=group", "vattention choose=group",
                           "adaptive-denominator choose=group"}) {
    EXPECT_EQ(refusal(text), "") << text;
  }
  EXPECT_EQ(refusal("quest choose=group"), "the GPU's quest takes choose=head, not group");
}

TEST(MethodTable, AGpuHasSomeValuesOfParametersAlone) {
  const auto refusal = [](const char* text, Phase phase = Phase::kDecode) {
    MethodOptions options;
    EXPECT_EQ(parseMethod(text, &options, phase), std::nullopt);
    return gpuUnsupported(options, phase).value_or("");
  };
  for (const char* size : {"16", "32", "64", "128", "256", "auto"}) {
    EXPECT_EQ(refusal(("s2anta-flash tileSize=" + std::string(size)).c_str()), "");
  }
  for (const char* size : {"48", "100", "512"}) {
    EXPECT_EQ(refusal(("s2anta-flash tileSize=" + std::string(size)).c_str()),
              "the GPU's s2anta-flash takes tileSize=16, 32, 64, 128, 256, auto, not " +
                  std::string(size));
  }
  for (const char* text :
       {"s2anta-flash", "s2anta-prop tileSize=auto", "s2anta-prop rounding=largest-remainder",
        "s2anta-prop tileSize=32 rounding=largest-remainder", "vattention sink=0 local=65536",
        "vattention sink=0.01 local=0.5", "top-k scores=q4", "quest",
        "bernoulli features=iid meanGroupQuery=true values=s2anta-flash",
        "quest pageSize=64 newest=within", "skip-softmax threshold=0.01"}) {
    EXPECT_EQ(refusal(text), "") << text;
  }
  EXPECT_EQ(refusal("s2anta-prop tileSize=100"), "");  // its draws do not depend on its tiles,
  EXPECT_EQ(refusal("s2anta-prop tileSize=100 rounding=largest-remainder"),  // but these do
            "the GPU's s2anta-prop takes tileSize=16, 32, 64, 128, 256, auto, not 100");
  for (const char* name :
       {"santa", "s2anta-strat", "s2anta-sys", "s2anta-prop", "s2anta-flash", "s2anta-q4"}) {
    EXPECT_EQ(refusal((std::string(name) + " exactAbove=never").c_str()), "");
  }
  EXPECT_EQ(refusal("s2anta-q4 bits=3"), "the GPU's s2anta-q4 takes bits=4, not 3");
  EXPECT_EQ(refusal("s2anta-q4 weights=exact"),
            "the GPU's s2anta-q4 takes weights=self, not exact");
  EXPECT_EQ(refusal("top-k scores=q8"), "the GPU's top-k takes scores=exact, q4, not q8");
  EXPECT_EQ(refusal("vattention scores=q3"), "the GPU's vattention takes scores=exact, q4, not q3");
  EXPECT_EQ(refusal("adaptive-denominator scores=q8"),
            "the GPU's adaptive-denominator takes scores=exact, q4, not q8");
  EXPECT_EQ(refusal("sample-attention block=32", Phase::kPrefill),
            "the GPU's sample-attention takes block=64, not 32");
  EXPECT_EQ(refusal("sale select=exact", Phase::kPrefill),
            "the GPU's sale takes select=q4, not exact");
  EXPECT_EQ(refusal("santa", Phase::kPrefill).rfind("the GPU does not read prompts by santa: ", 0),
            0u);
}

TEST(MethodTable, BernoulliUsesTheBudgetIfItsValueStageDoes) {
  MethodOptions bernoulli;
  bernoulli.method = Method::kBernoulli;
  EXPECT_FALSE(usesBudget(bernoulli));
  bernoulli.values = Method::kSanta;
  EXPECT_TRUE(usesBudget(bernoulli));
}

// Which test holds a method to its promise.
struct Witness {
  Method method;
  Promise promise;
  const char *file, *test;
};
const char* const kClosedForms = "Unbiased, MeanAndCovarianceAreTheClosedForms";
const Witness kWitnesses[] = {
    {Method::kDense, Promise::kExact, "invariance_test.cpp",
     "Dense, EqualsDoublePrecisionForEveryShape"},
    // That it is in that test's list is looked at there.
    {Method::kSanta, Promise::kUnbiased, "statistics_test.cpp", kClosedForms},
    {Method::kS2antaStrat, Promise::kUnbiased, "statistics_test.cpp", kClosedForms},
    {Method::kS2antaSys, Promise::kUnbiased, "statistics_test.cpp", kClosedForms},
    {Method::kS2antaProp, Promise::kUnbiased, "statistics_test.cpp", kClosedForms},
    {Method::kS2antaFlash, Promise::kUnbiased, "statistics_test.cpp", kClosedForms},
    {Method::kS2antaQ4, Promise::kConsistent, "importance_test.cpp",
     "S2antaQ4, BiasShrinksWithTheBudget"},
    {Method::kVAttention, Promise::kErrorBound, "vattention_coverage_test.cpp",
     "Coverage, SyntheticScores"},
    {Method::kSampleAttention, Promise::kAttentionBound, "select_blocks_test.cpp",
     "SampleAttention, SampledQueriesKeepTheirShare"},
    {Method::kSale, Promise::kAttentionBound, "select_blocks_test.cpp",
     "Sale, LeavesOutNoKeyOfWeightByExactScores"},
    {Method::kSkipSoftmax, Promise::kAttentionBound, "prefill_test.cpp",
     "Prefill, SkippedKeysHaveLittleAttention"},
    {Method::kSkipSoftmax, Promise::kAttentionBound, "skip_softmax_test.cpp",
     "SkipSoftmax, NoKeyOfAttentionThresholdIsLeftOut"},
    {Method::kSampledBlocks, Promise::kUnbiased, "sampled_blocks_test.cpp",
     "SampledBlocks, AreUnbiased"},
    {Method::kSampledRows, Promise::kConsistent, "sampled_rows_test.cpp",
     "SampledRows, BiasShrinksWithTheBudget"},
};

TEST(MethodTable, EveryPromiseIsTested) {
  std::set<Method> held;
  for (const Witness& witness : kWitnesses) {
    EXPECT_EQ(traitsOf(witness.method).promise, witness.promise) << methodName(witness.method);
    const std::string source = readSource("tests/kernels/" + std::string(witness.file));
    EXPECT_NE(source.find("TEST(" + std::string(witness.test) + ")"), source.npos) << witness.test;
    held.insert(witness.method);
  }
  for (const MethodTraits& method : methodTable()) {
    EXPECT_EQ(held.count(method.method), method.promise == Promise::kNone ? 0u : 1u)
        << method.name << " promises: " << wordsOf(method.promise);
  }
}

}  // namespace
}  // namespace allot::kernels
