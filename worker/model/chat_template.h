#pragma once
// ChatTemplate: formats a question as an instruction-tuned model was trained to see it, as turns
// with marks around them.
//
// It executes a Jinja template, as transformers does: the one that the model publishes, or one that
// is kept here under a name. A template that cannot be executed is refused with its line. The
// texts of a question are followed through the template: only what the template itself writes can
// be a special token. Immutable; any thread.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "worker/model/jinja.h"
#include "worker/model/tokenizer.h"

namespace allot {

class ChatTemplate {
 public:
  struct Prompt {
    std::string text;          // without bos
    std::vector<int32_t> ids;  // with bos, if there is one
  };

  // Returns the template of `name`, which is spec.model.chatTemplate: auto (or empty), none,
  // rendered, llama-3, qwen2, qwen3, qwen3-no-think, deepseek, mistral or chatml.
  // auto is the template that the model publishes in chat_template.jinja or tokenizer_config.json
  // beside the weights, or in a GGUF file's metadata. A model that publishes no template gets none.
  // Errors (kUsage): the published template cannot be executed, a published file is damaged, the
  // tokenizer lacks a token of a named template.
  static Result<ChatTemplate> choose(const std::string& name, const std::string& model_path,
                                     const Tokenizer& tokenizer);

  // "published", "none", "rendered" or a template's name
  const std::string& name() const { return name_; }
  bool none() const { return !template_; }

  // Returns the prompt. Without a template: bos if the tokenizer puts one in front, system, an
  // empty line, user, assistant_prefix. Similar text to a special token in the three arguments
  // stays text. Of "rendered" it becomes the token, and no bos is put in front.
  // Errors (kUsage): the template refuses the question, or fails at it.
  // Requires: `tokenizer` is the one that choose() got.
  Result<Prompt> prompt(const Tokenizer& tokenizer, std::string_view system, std::string_view user,
                        std::string_view assistant_prefix) const;
  // Returns the token that ends the assistant's turn; it counts beside the model's eos. Where a
  // model of "rendered" publishes no template that shows one, it is that of a named template.
  std::optional<int32_t> endOfTurn() const { return end_of_turn_; }

 private:
  struct Family;

  static const std::vector<Family>& families();
  Result<std::vector<jinja::Span>> run(const nlohmann::ordered_json& messages, bool asks) const;
  Status findEndOfTurn(const Tokenizer& tokenizer);

  std::string name_ = "none";
  std::string place_;  // for messages: what is wrong where
  std::optional<jinja::Template> template_;
  nlohmann::ordered_json tokens_ = nlohmann::ordered_json::object();  // bos_token, eos_token, ...
  std::vector<std::string> unknown_;                                  // of these, those not known
  std::optional<int32_t> bos_;                                        // without a template
  Specials specials_ = Specials::kText;                               // in the texts of a question
  std::optional<int32_t> end_of_turn_;
};

// Returns how many special tokens a prompt's text spells that are not among its ids: text in data.
size_t marksInData(const Tokenizer& tokenizer, std::string_view text,
                   const std::vector<int32_t>& ids);

}  // namespace allot
