#pragma once
// The digest of a model's configuration and tokenizer, beside that of its weights. Pure functions;
// any thread.
#include <string>

#include "core/result.h"
#include "worker/model/model_config.h"
#include "worker/model/tokenizer.h"

namespace allot {

// Returns the SHA-256, in hex, of all that ModelConfig::load returned for the model at `path`, the
// token in front of texts, and the bytes of tokenizer.json. The digest of a GGUF file's weights
// covers its tokenizer. kUsage and kIo: tokenizer.json cannot be read.
Result<std::string> modelDigest(const std::string& path, const ModelConfig& config,
                                const Tokenizer& tokenizer);

}  // namespace allot
