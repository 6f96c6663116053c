#pragma once
// Reads from a GGUF file what a Hugging Face folder has: the configuration, tokenizer.json's
// content, and tensors by their Hugging Face names. Pure functions of the file; any thread. Private
// to worker/model/.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/result.h"
#include "worker/model/gguf.h"
#include "worker/model/model_config.h"

namespace allot {

// Returns true if a model path is one GGUF file and not a folder.
bool isGguf(const std::string& path);

// Returns the configuration. general.architecture must be llama (Llama, Mistral, Yi, SmolLM2) or
// qwen2; others are refused by name. Errors (kUsage) name the key.
Result<ModelConfig> ggufConfig(const Gguf& gguf);

// Returns the tokenizer in tokenizer.json's form, so that one reader checks both.
Result<nlohmann::json> ggufTokenizer(const Gguf& gguf);

// Appends the tensor with this Hugging Face name to `out`, as float32, rows in Hugging Face's
// order.
Status appendGgufTensor(const Gguf& gguf, const ModelConfig& config, const std::string& name,
                        const std::vector<int64_t>& shape, std::vector<float>* out);

}  // namespace allot
