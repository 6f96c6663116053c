#pragma once
// Which token, if any, a tokenizer puts in front of a text: the rule is the tokenizer's, not
// config.json's, which names a bos even where none is put in front (Qwen2).
// A pure function but for the files it reads; any thread. Private to worker/model/.
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace allot {

// The first of these that speaks of it:
//   post_processor of tokenizer.json (`root`, read from `path`): TemplateProcessing with a special
//     token in front of the text, ByteLevel (none), a Sequence of those;
//   add_bos_token of the tokenizer_config.json beside it, with its bos_token;
//   where there is no such file, bos_token_id of the config.json beside it;
// else none. What a template puts behind the text is left out: a prompt goes on. `added` gives the
// ids of added tokens. Errors (kUsage): a post_processor of another type, one that puts several
// tokens in front, a damaged one.
Result<std::optional<int32_t>> bosRule(
    const nlohmann::json& root, const std::string& path, int64_t vocab_size,
    const std::function<std::optional<int32_t>(std::string_view)>& added);

}  // namespace allot
