#pragma once
// RotatingCache: the KV caches of several layers. Steps take the layers in turn, so that each step
// reads memory that has left the processor's caches, as in a model. Owned by one thread.
#include <cstdint>
#include <memory>
#include <vector>

#include "allot/kernels/paged_kv.h"

namespace allot::bench {

// The shapes of one attention layer of Llama-3.1-8B.
constexpr int kHeads = 32, kKvHeads = 8, kHeadDim = 128, kModelLayers = 32;

// Zeroed memory in huge pages, if the system has them: a step reads hundreds of megabytes. The
// program ends if there is too little memory.
class Memory {
 public:
  explicit Memory(size_t bytes);
  void* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  std::unique_ptr<void, Free> data_;
  size_t bytes_;
};

class RotatingCache {
 public:
  // Makes `layers` caches of n keys each, with shadows of 3, 4 and 8 bits and bounds. All have the
  // same normal numbers and one page table, whose pages are in random order.
  RotatingCache(int n, int page_size, int layers, uint64_t seed, kernels::Element element);

  // Returns the next layer's cache.
  const kernels::PagedKv& next() { return layers_[turn_++ % layers_.size()]; }
  const std::vector<int32_t>& pageTable() const { return table_; }

  // Reads the next layer's keys in the order of memory, or its keys or 4-bit codes head by head in
  // the order of the page table. Returns a sum, which keeps the compiler from removing the reads.
  enum class Read { kKeysAsTheyLie, kKeys, kCodes };
  uint64_t read(Read what);
  size_t bytesOf(Read what) const;  // that read() reads

 private:
  // Returns the bytes of one KV head of one page.
  size_t pieceBytes(Read what) const;
  kernels::PagedKv makeLayer(int pages, int page_size, kernels::Element element);
  template <typename T>
  T* allocate(size_t count);

  std::vector<Memory> memory_;
  std::vector<kernels::PagedKv> layers_;
  std::vector<int32_t> table_;
  size_t turn_ = 0;
};

// Writes `count` normal numbers of variance 1: slices of one list from random places.
void fillNormal(float* to, size_t count, uint64_t seed);

}  // namespace allot::bench
