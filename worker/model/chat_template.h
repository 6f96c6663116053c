#pragma once
// ChatTemplate: how an instruction-tuned model wants a question put, as it was trained: turns with
// marks around them. Fixed strings chosen by name, not a template engine.
//
// The strings are those of the models' published templates for one question with an optional system
// prompt, and the beginning of the answer. One is left out on purpose: Llama-3.1's and later
// templates write a knowledge cut-off and a date into the system turn; here, as in RULER, Llama-3's
// plain form is used for all of them. Immutable; any thread.
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
  // `name` is spec.model.chatTemplate: auto (or empty), none, llama-3, qwen2, qwen3,
  // qwen3-no-think, deepseek, mistral or chatml. auto recognises the template that the model
  // publishes (chat_template.jinja or tokenizer_config.json beside its weights, a GGUF file's
  // metadata) by its marks; a model that publishes none gets none. Qwen3's, which has a switch for
  // it, is qwen3, where the model thinks before it answers, as published. Templates of one name
  // differ a little from model to model (the default system prompt; Mistral's spaces; whether
  // DeepSeek's answer begins with <think>): the published one decides where it is of that name,
  // else the name's most usual strings are taken. Errors (kUsage): auto meets a template that it
  // does not recognise, a published file is damaged, the tokenizer lacks a token of the template.
  static Result<ChatTemplate> choose(const std::string& name, const std::string& model_path,
                                     const Tokenizer& tokenizer);

  const std::string& name() const { return name_; }  // never "auto"
  bool none() const { return name_ == "none"; }

  // The prompt as text, without bos. An empty `system` is none, and the template's default takes
  // its place if it has one. With none(): system, an empty line, user, assistant_prefix.
  std::string render(std::string_view system, std::string_view user,
                     std::string_view assistant_prefix) const;
  // The same as token ids, without bos (see bosToken). Only the template's own marks become special
  // tokens: what looks like one in the three texts is encoded as text. `tokenizer` is choose's.
  std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view system,
                              std::string_view user, std::string_view assistant_prefix) const;

  // Whether the published template begins with bos.
  bool addsBos() const { return !none() && bos_.has_value(); }
  // The token to put in front of encode's: the template's bos; with none(), the tokenizer's.
  std::optional<int32_t> bosToken() const { return bos_; }
  // The token that ends the assistant's turn; it counts beside the model's own eos.
  std::optional<int32_t> endOfTurn() const { return end_of_turn_; }

 private:
  // What stands around the texts; special tokens are written out. Of a system prompt and a
  // question:
  //   before_system SYSTEM after_system QUESTION after_user ANSWER'S BEGINNING
  // and of a question alone:
  //   before_user QUESTION after_user ANSWER'S BEGINNING
  struct Form {
    std::string before_system;
    std::string after_system;
    std::string before_user;
    std::string after_user;
    std::string default_system;
    bool trims = false;  // white space around system prompt and question is left out
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
