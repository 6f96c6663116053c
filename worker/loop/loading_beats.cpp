#include "worker/loop/loading_beats.h"

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "core/worker_beats.h"

namespace allot {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestReason = 1000;

uint64_t mappedBytes() {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word) {
    uint64_t kib = 0;
    if (word == "RssFile:" && file >> kib) return kib << 10;
  }
  return 0;
}

bool holdsWeights(const fs::path& file) {
  return file.extension() == ".safetensors" || file.extension() == ".gguf";
}

}  // namespace

LoadingBeats::LoadingBeats(std::unique_ptr<WorkSource> store, v1::WorkerBeat beat,
                           std::function<LoadedBytes()> loaded, std::function<uint64_t()> unix_now,
                           std::chrono::milliseconds every)
    : store_(std::move(store)),
      beat_(std::move(beat)),
      loaded_(std::move(loaded)),
      unix_now_(std::move(unix_now)) {
  beat_.set_state(std::string(wordOf(WorkerState::kLoading)));
  thread_ = std::jthread([this, every](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    do send();
    while (!stopped.wait_for(lock, stop, every, [&] { return stop.stop_requested(); }));
  });
}

void LoadingBeats::send() {
  const LoadedBytes bytes = loaded_();
  beat_.set_loaded_bytes(bytes.loaded);
  beat_.set_total_bytes(bytes.total);
  beat_.set_seen_unix_ms(unix_now_());
  (void)store_->beat({.beat = beat_, .ttl_ms = kBeatTtlMs});
}

WeightFiles::WeightFiles(const std::string& model) : before_(mappedBytes()) {
  std::error_code ignored;
  if (fs::is_regular_file(model, ignored)) total_ = fs::file_size(model, ignored);
  for (const auto& entry : fs::directory_iterator(model, ignored)) {
    if (holdsWeights(entry.path())) total_ += entry.file_size(ignored);
  }
}

LoadedBytes WeightFiles::loaded() const {
  const uint64_t now = mappedBytes();
  return {std::min(total_, now - std::min(now, before_)), total_};
}

void beatFailure(WorkSource* store, v1::WorkerBeat beat, const std::string& why,
                 uint64_t unix_now_ms) {
  beat.set_state(std::string(wordOf(WorkerState::kFailed)));
  beat.set_last_error(why.substr(0, kLongestReason));
  beat.set_seen_unix_ms(unix_now_ms);
  (void)store->beat({.beat = std::move(beat), .ttl_ms = kFailureKeptMs});
}

}  // namespace allot
