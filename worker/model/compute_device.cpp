#include "worker/model/compute_device.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "worker/model/decoder_backend.h"

namespace allot {
namespace {

// The most query heads a KV head of kernels/cuda (cuda_decode.h).
constexpr int64_t kLargestGroup = 16;

// Returns the number behind `key` in a file of "key number" lines or, without a key, in its first
// line. Returns 0 if it is missing or not a number ("max").
size_t numberIn(const char* path, const std::string& key = "") {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, key.size(), key) != 0) continue;
    return std::strtoull(line.c_str() + key.size(), nullptr, 10);
  }
  return 0;
}

size_t availableMemory() { return numberIn("/proc/meminfo", "MemAvailable:") << 10; }

// Returns the rest of a container's memory limit, at least 1, for control groups of version 2; 0:
// no limit. Files that are cached and inactive do not count as used.
size_t leftOfGroup() {
  const size_t limit = numberIn("/sys/fs/cgroup/memory.max");
  if (limit == 0) return 0;
  const size_t taken = numberIn("/sys/fs/cgroup/memory.current");
  const size_t cached = numberIn("/sys/fs/cgroup/memory.stat", "inactive_file ");
  const size_t held = taken - std::min(taken, cached);
  return limit - std::min(limit - 1, held);
}

}  // namespace

std::optional<std::string> cudaUnsupported(const ModelConfig& config) {
  const int64_t group = config.heads / config.kv_heads;
  if ((config.head_dim == 64 || config.head_dim == 128) && group <= kLargestGroup) return {};
  return "the GPU decodes heads of 64 or 128 channels, at most " + std::to_string(kLargestGroup) +
         " a KV head, not this model's " + std::to_string(config.head_dim) + " and " +
         std::to_string(group);
}

std::string cpuArithmetic() {
  std::string text = "portable";
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) text = "x86-64-v3";
  if (__builtin_cpu_supports("avx512vl")) text = "x86-64-v4";
  if (__builtin_cpu_supports("avx512vnni")) text += " with VNNI";
#endif
  // Looked up by name: LibTorch links it, and another build of LibTorch may have another BLAS.
  const auto core = reinterpret_cast<char* (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  const auto threads = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_num_threads"));
  if (!core || !threads) return text + ", another BLAS";
  return text + ", OpenBLAS " + core() + " with " + std::to_string(threads()) +
         (threads() == 1 ? " thread" : " threads");
}

size_t freeMemory(Device device) {
  if (device == Device::kCuda) return freeCudaMemory();
  size_t free = availableMemory();
  if (const size_t left = leftOfGroup(); left > 0) free = free > 0 ? std::min(free, left) : left;
  return free;
}

size_t weightBytes(const ModelConfig& config, Device device, WeightType type) {
  const int64_t heads = config.heads + 2 * config.kv_heads;
  const int64_t layer = config.hidden_size *
                        ((heads + config.heads) * config.head_dim + 3 * config.intermediate_size);
  const int64_t tables = config.vocab_size * config.hidden_size;
  // On the CPU matrices lie in two layouts (weights.h); tied embeddings are the rows of the head.
  const int64_t copies = device == Device::kCuda ? 1 : 2;
  const int64_t numbers =
      copies * config.layers * layer + tables * (config.tied_embeddings ? copies : copies + 1);
  return static_cast<size_t>(numbers) * (type == WeightType::kFloat32 ? sizeof(float) : 2);
}

Status checkWeightsFit(const ModelConfig& config, Device device, WeightType type) {
  const bool cuda = device == Device::kCuda;
  const size_t needed = weightBytes(config, device, type);
  const size_t free = freeMemory(device);
  if (free == 0 || needed <= free) return {};
  const auto gib = [](size_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
    return std::string(text);
  };
  return badInput("the model's weights take " + gib(needed) + ", and only " + gib(free) + " of " +
                  (cuda ? "the GPU's memory" : "memory") + " are free: " +
                  (cuda && type == WeightType::kFloat32
                       ? "set spec.model.dtype to bfloat16, or have fewer workers share the GPU"
                       : "use a machine with more, or fewer workers on this one"));
}

}  // namespace allot
