#include "tests/fuzz/model_files.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf.h"
#include "model/model_config.h"
#include "model/safetensors.h"
#include "model/tokenizer.h"
#include "tests/temp_folder.h"

namespace allot::fuzz {
namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

bool feedTokenizer(const std::string& path) {
  const auto tokenizer = Tokenizer::load(path);
  if (!tokenizer) return false;
  // Whatever the vocabulary, ids are its own, and decoding them does no harm.
  for (const std::string_view text :
       {"the rain in 1234 towns, isn't it?\n\n", " \xe2\x96\x81<s>\xf0\x9f\x99\x82\xff\xc3", ""}) {
    const std::vector<int32_t> ids = tokenizer->encode(text);
    for (const int32_t id : ids) {
      check(id >= 0 && static_cast<size_t>(id) < tokenizer->vocabSize());
    }
    tokenizer->decode(ids);
    tokenizer->decode(ids, false);
  }
  return true;
}

bool feedSafetensors(const std::string& folder) {
  const auto file = Safetensors::open(folder);
  if (!file) return false;
  for (const std::string& name : file->names()) {
    check(file->contains(name));
    // Of a shape that is not the tensor's nothing is handed out.
    const auto view = file->tensor(name, {2, 3});
    if (!view) continue;
    std::vector<float> numbers(6);
    toFloat(*view, numbers.data());
  }
  return !file->digest().empty();
}

bool feedGguf(const std::string& path) {
  const auto gguf = Gguf::open(path);
  if (!gguf) return false;
  (void)ModelConfig::load(path);
  feedTokenizer(path);
  const auto tensor = gguf->tensor("t", {1, 256});
  if (tensor) {
    std::vector<float> numbers(256);
    toFloat(*tensor, numbers.data());
  }
  return true;
}

bool feedConfig(const std::string& folder) {
  const auto config = ModelConfig::load(folder);
  if (!config) return false;
  check(config->heads > 0 && config->kv_heads > 0 && config->heads % config->kv_heads == 0);
  check(config->layers > 0 && config->head_dim > 0 && config->vocab_size > 0);
  check(config->sliding_window >= 0 && config->rope_scaling.factor >= 1);
  return true;
}

}  // namespace

bool feedModelFile(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  if (size == 0) return false;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 't':
      return feedTokenizer(folder.write("tokenizer.json", bytes));
    case 's':
      folder.write("model.safetensors", bytes);
      return feedSafetensors(folder.path());
    case 'c':
      folder.write("config.json", bytes);
      return feedConfig(folder.path());
    case 'g':
      return feedGguf(folder.write("model.gguf", bytes));
    default:
      return false;
  }
}

}  // namespace allot::fuzz
