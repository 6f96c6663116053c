#pragma once
// Reads from a GGUF file what a Hugging Face folder has: the configuration, tokenizer.json's
// content, and tensors by their Hugging Face names. Any thread. Private to worker/model/.
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/result.h"
#include "worker/model/gguf.h"
#include "worker/model/model_config.h"

namespace allot {

// Returns true if the path ends with ".gguf" and is a plain file.
bool isGguf(const std::string& path);

// Returns the configuration. general.architecture must be llama (Llama, Mistral, Yi, SmolLM2),
// qwen2, qwen3 or smollm3; others are refused by name. Errors (kUsage) name the key: one that is
// missing or of another type, or one of the architecture that is neither read nor harmless.
Result<ModelConfig> ggufConfig(const Gguf& gguf);

// Returns the tokenizer in tokenizer.json's form, so that one reader checks both. kUsage names a
// key.
Result<nlohmann::json> ggufTokenizer(const Gguf& gguf);

// Appends the tensor with this Hugging Face name to `out`, as float32, rows in Hugging Face's
// order. Errors: those of Gguf::tensor().
Status appendGgufTensor(const Gguf& gguf, const ModelConfig& config, const std::string& name,
                        const std::vector<int64_t>& shape, std::vector<float>* out);

// Checks that the tensor with this Hugging Face name is there. Errors: those of Gguf::tensor().
Status checkGgufTensor(const Gguf& gguf, const std::string& name,
                       const std::vector<int64_t>& shape);

// Checks that the file has no tensors beside those of the Hugging Face names. kUsage names one.
Status checkNoOthers(const Gguf& gguf, const std::set<std::string>& names);

// Returns true if the file has the tensor with this Hugging Face name.
bool hasGgufTensor(const Gguf& gguf, const std::string& name);

}  // namespace allot
