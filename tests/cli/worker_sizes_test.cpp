// How many workers a machine holds, and what each has for keys and values.
#include "cli/preflight.h"
#include "tests/results.h"

namespace allot {
namespace {

TEST(WorkerSizes, AreWhatFitsBesideEachOther) {
  const auto sizes = [](WorkerNeeds needs, unsigned workers = 0, uint64_t kv_mib = 0) {
    return sizeWorkers(needs, workers, kv_mib).value();
  };
  // A small model: a worker a core, and half of what is free for keys and values.
  const WorkerNeeds small{.cores = 4, .free_mib = 8200, .weights_mib = 50, .least_kv_mib = 3};
  EXPECT_EQ(sizes(small).workers, 4u);
  EXPECT_EQ(sizes(small).kv_mib, 1000u);
  EXPECT_FALSE(sizes(small).by_memory);
  EXPECT_EQ(sizes(small, 2, 77).workers, 2u);
  EXPECT_EQ(sizes(small, 2, 77).kv_mib, 77u);
  // 1.5 billion parameters on two cores and 24 GiB: one, with half of what its weights leave.
  const WorkerNeeds large{.cores = 2, .free_mib = 23000, .weights_mib = 13000, .least_kv_mib = 120};
  EXPECT_EQ(sizes(large).workers, 1u);
  EXPECT_EQ(sizes(large).kv_mib, 5000u);
  EXPECT_TRUE(sizes(large).by_memory);
  EXPECT_EQ(sizes(large, 2).workers, 2u);  // as asked for, with the least
  EXPECT_EQ(sizes(large, 2).kv_mib, 120u);
  const WorkerNeeds gpu{
      .gpu = true, .cores = 16, .free_mib = 80000, .weights_mib = 16000, .least_kv_mib = 1200};
  EXPECT_EQ(sizes(gpu).workers, 1u);  // and one copy of the weights
  EXPECT_EQ(sizes(gpu).kv_mib, 32000u);
  EXPECT_EQ(sizes(gpu, 2).kv_mib, 12000u);
  // Each of four GPUs is as one alone; a fifth worker shares one's memory, and all have as much.
  WorkerNeeds gpus = gpu;
  gpus.gpus = 4;
  EXPECT_EQ(sizes(gpus).workers, 4u);
  EXPECT_EQ(sizes(gpus).kv_mib, 32000u);
  EXPECT_FALSE(sizes(gpus).by_memory);
  EXPECT_EQ(sizes(gpus, 2).kv_mib, 32000u);
  EXPECT_EQ(sizes(gpus, 5).kv_mib, 12000u);
  // On a CPU beside GPUs that are not used they are no matter.
  EXPECT_EQ(sizes({.gpus = 4, .cores = 2, .free_mib = 8200}).workers, 2u);
  // Where not even one fits it is tried: what is free is a guess.
  EXPECT_EQ(sizes({.cores = 2, .free_mib = 10, .weights_mib = 13000, .least_kv_mib = 3}).workers,
            1u);
  EXPECT_EQ(sizes({}).kv_mib, 64u);
  EXPECT_THAT(sizeWorkers(small, 0, 2),
              isError(ErrorCode::kUsage, HasSubstr("raise --kv-memory to at least 3")));
}

TEST(WorkerSizes, EachWorkerHasAGpuOfItsOwnAsFarAsTheyGo) {
  using Gpus = std::vector<std::string>;
  const auto none = std::nullopt;
  EXPECT_EQ(gpusOfWorkers(4, none, 4), (Gpus{"0", "1", "2", "3"}));
  EXPECT_EQ(gpusOfWorkers(4, none, 2), (Gpus{"0", "1"}));
  EXPECT_EQ(gpusOfWorkers(2, none, 5), (Gpus{"0", "1", "0", "1", "0"}));
  // Of those that are named, as they are named.
  EXPECT_EQ(gpusOfWorkers(2, "5,3", 2), (Gpus{"5", "3"}));
  EXPECT_EQ(gpusOfWorkers(2, "GPU-8932f937,MIG-d80c6f9e", 3),
            (Gpus{"GPU-8932f937", "MIG-d80c6f9e", "GPU-8932f937"}));
  // CUDA sees those before the first that is none.
  EXPECT_EQ(gpusOfWorkers(2, "1,2,-1,3", 3), (Gpus{"1", "2", "1"}));
  // Nothing to choose: the environment stays as it is.
  EXPECT_EQ(gpusOfWorkers(1, none, 3), Gpus{});
  EXPECT_EQ(gpusOfWorkers(1, "7", 3), Gpus{});
  EXPECT_EQ(gpusOfWorkers(0, none, 2), Gpus{});
  // More are seen than are named, as where something translates the variable: by number.
  EXPECT_EQ(gpusOfWorkers(2, "all", 2), (Gpus{"0", "1"}));
  EXPECT_EQ(gpusText(4, 4), "4 GPUs, a worker on each");
  EXPECT_EQ(gpusText(4, 1), "4 GPUs, of which 1 is used");
  EXPECT_EQ(gpusText(2, 5), "2 GPUs, which the 5 workers go round");
  EXPECT_EQ(gpusText(1, 5), "");
}

}  // namespace
}  // namespace allot
