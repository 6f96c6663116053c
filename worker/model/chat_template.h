#pragma once
// ChatTemplate: formats a question as an instruction-tuned model was trained to see it, as turns
// with marks around them. It has fixed strings chosen by name and is no template engine.
//
// The strings are those of the models' published templates, for one question with an optional
// system prompt and the beginning of the answer. One part is left out on purpose. Templates of
// Llama-3.1 and later write a knowledge cut-off and a date into the system turn. Here, as in RULER,
// all of them use Llama-3's plain form. Immutable; any thread. plain form is used for all of them.
// Immutable; any thread.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "worker/model/tokenizer.h"

namespace allot {

class ChatTemplate {
 public:
  // Returns the template of `name`, which is spec.model.chatTemplate: auto (or empty), none,
  // llama-3, qwen2, qwen3, qwen3-no-think, deepseek, mistral or chatml.
  // auto recognises the template that the model publishes by its marks. It reads
  // chat_template.jinja or tokenizer_config.json beside the weights, or a GGUF file's metadata. A
  // model that publishes no template gets none. Qwen3's template, which can switch thinking off,
  // becomes qwen3: the model thinks before it answers, as published.
  // Templates of one name differ a little from model to model: in the default system prompt, in
  // Mistral's spaces, in whether DeepSeek's answer begins with <think>. The published template
  // decides if it is of the wanted name, else the usual strings of the name are used.
  // Errors (kUsage): auto does not recognise the template, a published file is damaged, the
  // tokenizer lacks a token of the template.
  static Result<ChatTemplate> choose(const std::string& name, const std::string& model_path,
                                     const Tokenizer& tokenizer);

  const std::string& name() const { return name_; }  // never "auto"
  bool none() const { return name_ == "none"; }

  // Returns the prompt as text, without bos. An empty `system` is replaced by the template's
  // default if it has one. With none(): system, an empty line, user, assistant_prefix.
  std::string render(std::string_view system, std::string_view user,
                     std::string_view assistant_prefix) const;
  // Returns the prompt as token ids, without bos (see bosToken). Only the template's own marks
  // become special tokens; similar text in the three arguments is encoded as text.
  // Requires: `tokenizer` is the one that choose() got.
  std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view system,
                              std::string_view user, std::string_view assistant_prefix) const;

  // Returns true if the published template begins with bos.
  bool addsBos() const { return !none() && bos_.has_value(); }
  // Returns the token to put in front of encode(): the template's bos; with none(), the
  // tokenizer's.
  std::optional<int32_t> bosToken() const { return bos_; }
  // Returns the token that ends the assistant's turn; it counts beside the model's eos.
  std::optional<int32_t> endOfTurn() const { return end_of_turn_; }

 private:
  // The strings around the texts; special tokens are written out. With a system prompt:
  //   before_system SYSTEM after_system QUESTION after_user BEGINNING OF THE ANSWER
  // and without one:
  //   before_user QUESTION after_user BEGINNING OF THE ANSWER
  //   before_user QUESTION after_user ANSWER'S BEGINNING
  struct Form {
    std::string before_system;
    std::string after_system;
    std::string before_user;
    std::string after_user;
    std::string default_system;
    bool trims = false;  // removes white space around system prompt and question
  };
  struct Mark {
    std::string text;
    int32_t id;
  };
  struct Family;
  struct Published;
  struct Piece;

  static const std::vector<Family>& families();
  static std::optional<Published> recognise(const std::string& source);
  Status lookUp(const Family& family, bool adds_bos, const Tokenizer& tokenizer);
  std::vector<Piece> pieces(std::string_view system, std::string_view user,
                            std::string_view assistant_prefix) const;

  std::string name_ = "none";
  Form form_;
  std::vector<Mark> marks_;  // the special tokens in form_
  std::optional<int32_t> bos_;
  std::optional<int32_t> end_of_turn_;
};

}  // namespace allot
