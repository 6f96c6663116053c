#pragma once
// Attention states of recall-7m, recorded by tests/golden/make_recall_states.py: see there.
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace allot::kernels {

// One layer during the last `steps` steps of one question.
struct RecallBlock {
  uint32_t layer = 0, steps = 0, key_count = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::vector<float> queries;        // [steps, heads, head_dim]
  std::vector<float> keys, values;   // [key_count, kv_heads, head_dim], as appendKv takes them
  int length(uint32_t step) const {  // keys that the step sees
    return static_cast<int>(key_count - steps + 1 + step);
  }
};

// Empty if the file is not what it should be.
inline std::vector<RecallBlock> readRecallStates(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char magic[8] = {};
  uint32_t count = 0;
  file.read(magic, sizeof magic).read(reinterpret_cast<char*>(&count), sizeof count);
  if (!file || std::memcmp(magic, "QKV-bf16", sizeof magic) != 0) return {};
  std::vector<RecallBlock> blocks(count);
  for (RecallBlock& block : blocks) {
    file.read(reinterpret_cast<char*>(&block), 6 * sizeof(uint32_t));
    block.queries.resize(size_t{block.steps} * block.heads * block.head_dim);
    file.read(reinterpret_cast<char*>(block.queries.data()),
              static_cast<std::streamsize>(block.queries.size() * sizeof(float)));
    for (std::vector<float>* list : {&block.keys, &block.values}) {
      list->resize(size_t{block.key_count} * block.kv_heads * block.head_dim);
      std::vector<uint16_t> bits(list->size());
      file.read(reinterpret_cast<char*>(bits.data()),
                static_cast<std::streamsize>(bits.size() * sizeof(uint16_t)));
      for (size_t i = 0; i < bits.size(); ++i) {
        const size_t d = i % block.head_dim, j = i / block.head_dim % block.key_count;
        const size_t h = i / block.head_dim / block.key_count;
        const uint32_t wide = uint32_t{bits[i]} << 16;
        std::memcpy(&(*list)[(j * block.kv_heads + h) * block.head_dim + d], &wide, sizeof wide);
      }
    }
  }
  if (!file || file.peek() != std::ifstream::traits_type::eof()) return {};
  return blocks;
}

}  // namespace allot::kernels
