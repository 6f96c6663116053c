#pragma once
// Finds the token, if any, that a tokenizer puts in front of a text. The tokenizer decides, not
// config.json, which names a bos even for models without one in front (Qwen2).
// A pure function apart from the files that it reads; any thread. Private to worker/model/.
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace allot {

// Returns the token, from the first of these sources that decides it:
//   post_processor of tokenizer.json (`root`, read from `path`): TemplateProcessing with a special
//     token in front of the text, ByteLevel (none), a Sequence of those;
//   add_bos_token of the tokenizer_config.json beside it, with its bos_token;
//   without such a file, bos_token_id of the config.json beside it;
//   else none. Tokens that a template puts behind the text are ignored: a prompt goes on. `added`
// returns the ids of added tokens. Errors (kUsage): a post_processor of another type, one that puts
// several tokens in front, a damaged one.
Result<std::optional<int32_t>> bosRule(
    const nlohmann::json& root, const std::string& path, int64_t vocab_size,
    const std::function<std::optional<int32_t>(std::string_view)>& added);

}  // namespace allot
