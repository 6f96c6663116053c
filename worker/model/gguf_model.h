#pragma once
// What a GGUF file holds in place of a Hugging Face folder: the configuration, tokenizer.json's
// content, and tensors by their Hugging Face names. Pure functions of the file; any thread. Private
// to worker/model/.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/result.h"
#include "worker/model/gguf.h"
#include "worker/model/model_config.h"

namespace allot {

// Whether a model path is one GGUF file rather than a folder.
bool isGguf(const std::string& path);

// general.architecture llama (Llama, Mistral, Yi, SmolLM2) or qwen2. Errors (kUsage) name the key;
// an unsupported architecture is refused by name.
Result<ModelConfig> ggufConfig(const Gguf& gguf);

// In tokenizer.json's form, so that one reader checks both.
Result<nlohmann::json> ggufTokenizer(const Gguf& gguf);

// Appends the tensor of that Hugging Face name to `out`, as float32, rows in Hugging Face's order.
Status appendGgufTensor(const Gguf& gguf, const ModelConfig& config, const std::string& name,
                        const std::vector<int64_t>& shape, std::vector<float>* out);

}  // namespace allot
