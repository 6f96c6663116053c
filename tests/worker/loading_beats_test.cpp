// What a run hears of a worker that loads its model, or that ended with an error.
#include "worker/loop/loading_beats.h"

#include <gmock/gmock.h>

#include <atomic>
#include <fstream>

#include "core/worker_beats.h"
#include "store/memory/memory_store.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

class LoadingBeatsTest : public testing::Test {
 protected:
  static v1::WorkerBeat named(const char* name) {
    v1::WorkerBeat beat;
    beat.set_worker(name);
    return beat;
  }
  std::vector<v1::WorkerBeat> beats() { return *openMemoryStore(server_)->listWorkers(); }

  std::atomic<uint64_t> now_{1000};
  std::shared_ptr<MemoryServer> server_ =
      std::make_shared<MemoryServer>([this] { return now_.load(); });
};

TEST_F(LoadingBeatsTest, ComeAgainAndAgainUntilTheModelIsLoaded) {
  std::atomic<uint64_t> asked{0};
  {
    const LoadingBeats loading(
        openMemoryStore(server_), named("w"),
        [&] {
          return LoadedBytes{100 * ++asked, 1000};
        },
        [&] { return now_.load(); }, std::chrono::milliseconds(1));
    while (asked < 3) std::this_thread::yield();
  }  // from here on the server is this thread's alone
  const uint64_t sent = asked;
  ASSERT_EQ(beats().size(), 1u);
  const v1::WorkerBeat beat = beats()[0];
  EXPECT_EQ(beat.state(), "loading");
  EXPECT_EQ(beat.loaded_bytes(), 100 * sent);
  EXPECT_EQ(beat.total_bytes(), 1000u);
  EXPECT_EQ(beat.seen_unix_ms(), 1000u);
  EXPECT_TRUE(isAlive(beat));
  EXPECT_EQ(asked, sent);
  now_ += 45'000;
  EXPECT_TRUE(beats().empty());
}

TEST_F(LoadingBeatsTest, AModelThatIsLoadedAtOnceWaitsForNoBeat) {
  const auto start = std::chrono::steady_clock::now();
  {
    const LoadingBeats loading(
        openMemoryStore(server_), named("w"), [] { return LoadedBytes{}; },
        [] { return uint64_t{1}; }, std::chrono::hours(1));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(10));
  EXPECT_EQ(beats().size(), 1u);
}

TEST_F(LoadingBeatsTest, AFailureIsToldForTenMinutesAndIsNotAlive) {
  const auto store = openMemoryStore(server_);
  beatFailure(store.get(), named("w"), "spec.model.path: there is no folder x", 7);
  const v1::WorkerBeat beat = beats()[0];
  EXPECT_EQ(beat.state(), "failed");
  EXPECT_FALSE(isAlive(beat));
  EXPECT_EQ(beat.seen_unix_ms(), 7u);
  EXPECT_EQ(whyNobodyCanWork(beats()),
            "no worker is alive; the last one ended: spec.model.path: there is no folder x");
  now_ += 599'999;
  EXPECT_EQ(beats().size(), 1u);
  now_ += 1;
  EXPECT_TRUE(beats().empty());
}

TEST(WeightFiles, CountTheBytesOfAFolderOrOfOneFile) {
  const TempFolder temp;
  const auto write = [&](const std::string& name, size_t bytes) {
    std::ofstream(temp.path() + "/" + name) << std::string(bytes, 'x');
  };
  write("model-1.safetensors", 3000);
  write("model-2.safetensors", 500);
  write("tokenizer.json", 70'000);
  EXPECT_EQ(WeightFiles(temp.path()).loaded().total, 3500u);
  EXPECT_EQ(WeightFiles(temp.path() + "/model-2.safetensors").loaded().total, 500u);
  EXPECT_EQ(WeightFiles(temp.path() + "/gone").loaded().total, 0u);
  EXPECT_LE(WeightFiles(temp.path()).loaded().loaded, 3500u);
}

}  // namespace
}  // namespace allot
