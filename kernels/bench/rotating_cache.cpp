#include "kernels/bench/rotating_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>

namespace allot::bench {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Memory::Memory(size_t bytes) : bytes_((bytes + kHugePage - 1) / kHugePage * kHugePage) {
  data_.reset(std::aligned_alloc(kHugePage, bytes_));
  if (!data_) {
    std::fprintf(stderr, "allot-bench: no memory for %zu MiB\n", bytes_ >> 20);
    std::exit(1);
  }
  madvise(data_.get(), bytes_, MADV_HUGEPAGE);
  std::memset(data_.get(), 0, bytes_);
}

void fillNormal(float* to, size_t count, uint64_t seed) {
  static const std::vector<float> list = [] {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> numbers(1 << 20);
    for (float& number : numbers) number = normal(random);
    return numbers;
  }();
  std::mt19937_64 random(seed);
  constexpr size_t kSlice = 4096;
  for (size_t done = 0; done < count; done += kSlice) {
    const size_t from = random() % (list.size() - kSlice);
    std::copy_n(&list[from], std::min(kSlice, count - done), to + done);
  }
}

template <typename T>
T* RotatingCache::allocate(size_t count) {
  memory_.emplace_back(count * sizeof(T));
  return static_cast<T*>(memory_.back().data());
}

kernels::PagedKv RotatingCache::makeLayer(int pages, int page_size, kernels::Element element) {
  const size_t positions = static_cast<size_t>(pages) * kKvHeads * page_size;
  const size_t tiles = positions / kernels::kTileKeys;
  kernels::PagedKv kv;
  kv.element = element;
  kv.keys = allocate<uint8_t>(positions * kHeadDim * kernels::bytesOf(element));
  kv.values = allocate<uint8_t>(positions * kHeadDim * kernels::bytesOf(element));
  kv.pages = pages;
  kv.kv_heads = kKvHeads;
  kv.page_size = page_size;
  kv.head_dim = kHeadDim;
  const int bits[] = {3, 4, 8};
  for (int i = 0; i < 3; ++i) {
    kv.shadows[i].bits = bits[i];
    kv.shadows[i].codes = allocate<uint8_t>(tiles * kv.shadows[i].tileBytes(kHeadDim));
    kv.shadows[i].scales = allocate<float>(positions);
  }
  kv.mean_keys = allocate<float>(static_cast<size_t>(pages) * kKvHeads * kHeadDim);
  kv.bounds = allocate<uint8_t>(tiles * 2 * kHeadDim * kernels::bytesOf(element));
  return kv;
}

size_t RotatingCache::pieceBytes(Read what) const {
  const kernels::PagedKv& kv = layers_[0];
  const size_t numbers = static_cast<size_t>(kv.page_size) * kv.head_dim;
  return what == Read::kCodes ? numbers / 2 : numbers * kernels::bytesOf(kv.element);
}

size_t RotatingCache::bytesOf(Read what) const {
  return table_.size() * kKvHeads * pieceBytes(what);
}

uint64_t RotatingCache::read(Read what) {
  const kernels::PagedKv& kv = next();
  const auto* base = static_cast<const uint8_t*>(kv.keys);
  if (what == Read::kCodes) base = kv.shadow(4)->codes;
  const size_t bytes = pieceBytes(what), pages = table_.size();
  uint64_t total = 0;
  for (size_t piece = 0; piece < pages * kKvHeads; ++piece) {
    size_t at = piece;
    if (what != Read::kKeysAsTheyLie) {
      at = static_cast<size_t>(table_[piece % pages]) * kKvHeads + piece / pages;
    }
    const auto* words = reinterpret_cast<const uint64_t*>(base + at * bytes);
    for (size_t i = 0; i < bytes / sizeof(uint64_t); ++i) total += words[i];
  }
  return total;
}

RotatingCache::RotatingCache(int n, int page_size, int layers, uint64_t seed,
                             kernels::Element element) {
  const int pages = (n + page_size - 1) / page_size;
  table_.resize(static_cast<size_t>(pages));
  std::iota(table_.begin(), table_.end(), 0);
  std::mt19937_64 random(seed);
  std::shuffle(table_.begin(), table_.end(), random);
  layers_.push_back(makeLayer(pages, page_size, element));
  const kernels::PagedKv first = layers_[0];
  const size_t arrays = memory_.size();
  constexpr int kChunk = 1024;
  std::vector<float> keys(static_cast<size_t>(kChunk) * kKvHeads * kHeadDim), values(keys.size());
  for (int32_t start = 0; start < n; start += kChunk) {
    fillNormal(keys.data(), keys.size(), random());
    fillNormal(values.data(), values.size(), random());
    const auto refusal =
        kernels::appendKv(first, {keys.data(), values.data(), table_.data(), &start, 1,
                                  std::min(kChunk, n - start), static_cast<int>(table_.size())});
    if (refusal) {
      std::fprintf(stderr, "allot-bench: %s\n", refusal->c_str());
      std::exit(1);
    }
  }
  for (int layer = 1; layer < layers; ++layer) {
    layers_.push_back(makeLayer(pages, page_size, element));
    for (size_t i = 0; i < arrays; ++i) {
      const Memory& from = memory_[i];
      std::memcpy(memory_[layer * arrays + i].data(), from.data(), from.bytes());
    }
  }
}

}  // namespace allot::bench
