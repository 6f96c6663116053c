// Where a worker computes: what is refused, and with which words.
#include "worker/engine/engine_settings.h"

#include <gmock/gmock.h>

#include "tests/results.h"
#include "worker/engine/engine.h"

namespace allot {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

v1::Spec specOf(const std::string& device, const std::string& method = "s2anta-sys") {
  v1::Spec spec;
  spec.mutable_model()->set_device(device);
  spec.mutable_attention()->set_decode(method);
  return spec;
}

ModelConfig shape(int64_t heads, int64_t kv_heads, int64_t head_dim) {
  ModelConfig config;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = head_dim;
  return config;
}

TEST(DeviceChoice, TheCpuIsAlwaysThere) {
  EXPECT_EQ(valueOf(chooseDevice(specOf("cpu"), shape(8, 2, 64))), Device::kCpu);
}

TEST(DeviceChoice, BFloat16IsForAGpu) {
  v1::Spec spec = specOf("cpu");
  spec.mutable_model()->set_dtype("bfloat16");
  EXPECT_THAT(chooseDevice(spec, shape(8, 2, 64)),
              isError(StartsWith("spec.model.dtype: bfloat16 is for a GPU")));
  spec.mutable_model()->set_device("auto");
  const auto chosen = chooseDevice(spec, shape(8, 2, 64));
  if (!cudaUnavailable()) {
    EXPECT_EQ(*chosen, Device::kCuda);
  } else {
    ASSERT_FALSE(chosen);
    EXPECT_THAT(chosen.error().message, HasSubstr("set it to float32, for the CPU"));
  }
}

// A GPU has no float32 and no fp8 cache, and where there is none that is why.
TEST(DeviceChoice, KeysAndValuesInFloat32AndFp8AreForTheCpu) {
  v1::Spec spec = specOf("auto");
  for (const char* dtype : {"float32", "fp8", "bfloat16", ""}) {
    spec.mutable_model()->set_kv_dtype(dtype);
    const auto chosen = chooseDevice(spec, shape(8, 2, 64));
    ASSERT_TRUE(chosen) << dtype;
    const bool narrow = *dtype == '\0' || std::string(dtype) == "bfloat16";
    const bool gpu = !cudaUnavailable() && narrow;
    EXPECT_EQ(*chosen, gpu ? Device::kCuda : Device::kCpu) << dtype;
  }
  for (const std::string dtype : {"float32", "fp8"}) {
    spec.mutable_model()->set_kv_dtype(dtype);
    const std::string why = "spec.model.kvDtype: " + dtype +
                            " is for the CPU alone, a GPU keeps keys and values in bfloat16";
    spec.mutable_model()->set_dtype("float32");
    spec.mutable_model()->set_device("cuda");
    EXPECT_THAT(chooseDevice(spec, shape(8, 2, 64)),
                isError("spec.model.device: cuda: " + why + "; or set it to cpu or auto"));
    spec.mutable_model()->set_dtype("bfloat16");
    spec.mutable_model()->set_device("auto");
    EXPECT_THAT(chooseDevice(spec, shape(8, 2, 64)), isError(HasSubstr(why)));
  }
}

TEST(DeviceChoice, WithoutAGpuAutoIsTheCpuAndCudaIsRefusedWithTheMend) {
  const auto why = cudaUnavailable();
  if (!why) GTEST_SKIP() << "needs a machine without a usable GPU";
  EXPECT_EQ(valueOf(chooseDevice(specOf("auto"), shape(8, 2, 64))), Device::kCpu);
  EXPECT_THAT(chooseDevice(specOf("cuda"), shape(8, 2, 64)),
              isError(ErrorCode::kUsage,
                      "spec.model.device: cuda: " + *why + "; or set it to cpu or auto"));
  EXPECT_EQ(freeMemory(Device::kCuda), 0u);
}

TEST(DeviceChoice, AnEngineIsRefusedBeforeItsWeightsAreRead) {
  if (!cudaUnavailable()) GTEST_SKIP() << "needs a machine without a usable GPU";
  v1::Experiment experiment;
  *experiment.mutable_spec() = specOf("cuda");
  EXPECT_THAT(Engine::load(experiment, {.model_folder = std::string(ALLOT_SOURCE_DIR) +
                                                        "/experiments/models/recall-7m"}),
              isError(StartsWith("spec.model.device: cuda: ")));
}

TEST(DeviceChoice, ModelsOfOtherShapesAreNotForTheGpu) {
  EXPECT_FALSE(cudaUnsupported(shape(32, 8, 128)));
  EXPECT_FALSE(cudaUnsupported(shape(16, 1, 64)));
  EXPECT_THAT(cudaUnsupported(shape(8, 2, 96)).value_or(""), HasSubstr("this model's 96 and 4"));
  EXPECT_THAT(cudaUnsupported(shape(32, 1, 64)).value_or(""), HasSubstr("64 and 32"));
}

}  // namespace
}  // namespace allot
