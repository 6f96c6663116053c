#include "worker/model/chat_template.h"

#include <algorithm>
#include <filesystem>

#include "core/spec/model_catalogue.h"
#include "worker/model/gguf.h"
#include "worker/model/gguf_model.h"
#include "worker/model/json_file.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr size_t kMaxConfigBytes = size_t{16} << 20;
constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

// Returns the text of the template that the model publishes; empty: none.
Result<std::string> publishedIn(const nlohmann::json& config, const std::string& path) {
  const nlohmann::json* value = member(config, "chat_template");
  if (value == nullptr) return std::string();
  if (value->is_string()) return value->get<std::string>();
  // Several named templates, for tools and other uses; the one for conversations is "default".
  if (value->is_array()) {
    for (const nlohmann::json& item : *value) {
      const nlohmann::json* name = member(item, "name");
      const nlohmann::json* text = member(item, "template");
      if (name != nullptr && *name == "default" && text != nullptr && text->is_string()) {
        return text->get<std::string>();
      }
    }
  }
  return badInput(path + ": chat_template is neither a text nor a list with one named \"default\"");
}

Result<std::string> publishedTemplate(const std::string& model) {
  if (isGguf(model)) {
    ALLOT_ASSIGN(const Gguf gguf, Gguf::open(model));
    const auto* text = gguf.find<std::string>("tokenizer.chat_template");
    return text == nullptr ? std::string() : *text;
  }
  std::error_code ignored;
  const std::string own = (fs::path(model) / "chat_template.jinja").string();
  if (fs::exists(own, ignored)) return readTextFile(own, kMaxTemplateBytes);
  const std::string path = (fs::path(model) / "tokenizer_config.json").string();
  if (!fs::exists(path, ignored)) return std::string();
  ALLOT_ASSIGN(const nlohmann::json config, readJsonFile(path, kMaxConfigBytes));
  return publishedIn(config, path);
}

// Adds the special tokens that a file of a model folder names, "bos_token" and others, to `tokens`.
// A token that is null there has no text, and templates see it as not defined.
Status readTokens(const std::string& path, ordered_json* tokens,
                  std::vector<std::string>* unknown) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  ALLOT_ASSIGN(const nlohmann::json config, readJsonFile(path, kMaxConfigBytes));
  if (!config.is_object()) return {};
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token") || tokens->contains(key)) continue;
    const nlohmann::json* content = value.is_object() ? member(value, "content") : &value;
    if (value.is_null()) std::erase(*unknown, key);
    if (content == nullptr || !content->is_string()) continue;
    (*tokens)[key] = *content;
    std::erase(*unknown, key);
  }
  return {};
}

Status readTokens(const std::string& model, const Tokenizer& tokenizer, ordered_json* tokens,
                  std::vector<std::string>* unknown) {
  *unknown = {"bos_token", "eos_token"};
  if (isGguf(model)) {
    ALLOT_ASSIGN(const Gguf gguf, Gguf::open(model));
    const auto* texts = gguf.find<std::vector<std::string>>("tokenizer.ggml.tokens");
    for (const char* name : {"bos", "eos"}) {
      const auto* id = gguf.find<int64_t>(std::string("tokenizer.ggml.") + name + "_token_id");
      if (texts == nullptr || id == nullptr || *id < 0 || static_cast<size_t>(*id) >= texts->size())
        continue;
      (*tokens)[std::string(name) + "_token"] = (*texts)[static_cast<size_t>(*id)];
      std::erase(*unknown, std::string(name) + "_token");
    }
  } else {
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
      ALLOT_TRY(readTokens((fs::path(model) / name).string(), tokens, unknown));
    }
  }
  const auto bos = tokenizer.bosToken();
  if (bos && std::erase(*unknown, "bos_token") > 0)
    (*tokens)["bos_token"] = tokenizer.decode({*bos}, false);
  return {};
}

// What to do about a template that cannot be executed.
std::string wayOut() {
  std::string text = "; choose another spec.model.chatTemplate:";
  for (const std::string& name : chatTemplateChoices()) {
    if (name != "auto") text += (text.ends_with(":") ? " " : ", ") + name;
  }
  return text;
}

ordered_json message(const char* role, std::string_view content) {
  return {{"role", role}, {"content", std::string(content)}};
}

}  // namespace

// A template of a name: that of the model of that family, for one question with an optional system
// prompt.
struct ChatTemplate::Family {
  std::string name;
  std::string source;
  std::string bos = {};  // empty: none
  std::vector<std::string> marks = {};
  std::string end_of_turn;
};

const std::vector<ChatTemplate::Family>& ChatTemplate::families() {
  static const std::vector<Family> all = [] {
    const auto chatMl = [](std::string name, const std::string& system,
                           const std::string& thought = "") {
      const std::string standard = "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\n" +
                                   system + "<|im_end|>\n' }}{% endif %}";
      return Family{.name = std::move(name),
                    .source = (system.empty() ? "" : standard) +
                              "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + "
                              "m.content + '<|im_end|>\n' }}{% endfor %}"
                              "{{ '<|im_start|>assistant\n" +
                              thought + "' }}",
                    .marks = {"<|im_start|>", "<|im_end|>"},
                    .end_of_turn = "<|im_end|>"};
    };
    return std::vector<Family>{
        {.name = "llama-3",
         .source = "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + "
                   "'<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
                   "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}",
         .bos = "<|begin_of_text|>",
         .marks = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
         .end_of_turn = "<|eot_id|>"},
        chatMl("qwen2", "You are a helpful assistant."),
        chatMl("qwen3", ""),
        // A model that is shown an empty thought answers at once.
        chatMl("qwen3-no-think", "", "<think>\n\n</think>\n\n"),
        {.name = "deepseek",
         .source = "{{ bos_token }}{% for m in messages %}{{ m.content if m.role == 'system' else "
                   "'<｜User｜>' + m.content }}{% endfor %}{{ '<｜Assistant｜><think>\n' }}",
         .bos = "<｜begin▁of▁sentence｜>",
         .marks = {"<｜User｜>", "<｜Assistant｜>"},
         .end_of_turn = "<｜end▁of▁sentence｜>"},
        {.name = "mistral",
         .source = "{{ bos_token + '[INST] ' }}{% for m in messages %}{{ m.content + ('\n\n' if "
                   "m.role == "
                   "'system' else ' [/INST]') }}{% endfor %}",
         .bos = "<s>",
         .end_of_turn = "</s>"},
        chatMl("chatml", "You are a helpful AI assistant named SmolLM, trained by Hugging Face")};
  }();
  return all;
}

Result<ChatTemplate> ChatTemplate::choose(const std::string& name, const std::string& model_path,
                                          const Tokenizer& tokenizer) {
  ChatTemplate chosen;
  if (name == "rendered") {
    chosen.name_ = name;
    chosen.specials_ = Specials::kTokens;
    const auto published = choose("auto", model_path, tokenizer);
    if (published) chosen.end_of_turn_ = published->end_of_turn_;
    // Whoever renders prompts may do so because the published template cannot be executed.
    for (const Family& family : families()) {
      if (!chosen.end_of_turn_) chosen.end_of_turn_ = tokenizer.addedIdOf(family.end_of_turn);
    }
    return chosen;
  }
  chosen.bos_ = tokenizer.bosToken();
  if (name == "none") return chosen;
  std::string source;
  if (name.empty() || name == "auto") {
    ALLOT_ASSIGN(source, publishedTemplate(model_path));
    if (source.empty()) return chosen;
    chosen.name_ = "published";
    chosen.place_ = "spec.model.chatTemplate: the chat template that " + model_path + " publishes";
    ALLOT_TRY(readTokens(model_path, tokenizer, &chosen.tokens_, &chosen.unknown_));
  } else {
    const auto& all = families();
    const auto family =
        std::find_if(all.begin(), all.end(), [&](const Family& f) { return f.name == name; });
    if (family == all.end()) {
      std::string allowed;
      for (const std::string& known : chatTemplateChoices())
        allowed += (allowed.empty() ? "" : ", ") + known;
      return badInput("spec.model.chatTemplate: " + inQuotes(name) +
                      " is not known; allowed: " + allowed);
    }
    chosen.name_ = name;
    chosen.place_ = "spec.model.chatTemplate: " + name;
    std::vector<std::string> required = family->marks;
    required.push_back(family->end_of_turn);
    if (!family->bos.empty()) required.push_back(family->bos);
    for (const std::string& token : required) {
      if (tokenizer.addedIdOf(token)) continue;
      return badInput(chosen.place_ + ": the model's tokenizer has no " + token +
                      " among its added tokens; choose another template, or none");
    }
    source = family->source;
    chosen.tokens_["bos_token"] = family->bos;
    chosen.end_of_turn_ = tokenizer.addedIdOf(family->end_of_turn);
  }
  auto parsed = jinja::Template::parse(source);
  if (!parsed) {
    return badInput(chosen.place_ + " cannot be executed: line " +
                    std::to_string(parsed.error().line) + ": " + parsed.error().message +
                    " (not supported, or not Jinja)" + wayOut());
  }
  chosen.template_ = std::move(*parsed);
  ALLOT_TRY(chosen.run(ordered_json::array({message("user", "a")}), true));
  if (!chosen.end_of_turn_) ALLOT_TRY(chosen.findEndOfTurn(tokenizer));
  return chosen;
}

Result<std::vector<jinja::Span>> ChatTemplate::run(const ordered_json& messages, bool asks) const {
  // As transformers' apply_chat_template, which has tools and documents whether there are any or
  // not.
  ordered_json variables = tokens_;
  variables["messages"] = messages;
  variables["tools"] = nullptr;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = asks;
  auto spans = template_->render(variables, unknown_);
  if (spans) return std::move(*spans);
  const jinja::Failure& failure = spans.error();
  constexpr const char* kReasons[] = {"not supported, or not Jinja",
                                      "not defined",
                                      "wrong for Jinja",
                                      "refused",
                                      "not supported",
                                      "too much"};
  return badInput(place_ + " cannot be executed: line " + std::to_string(failure.line) + ": " +
                  failure.message + " (" + kReasons[static_cast<int>(failure.kind)] + ")" +
                  wayOut());
}

// Finds the token behind an answer, if the template shows one.
Status ChatTemplate::findEndOfTurn(const Tokenizer& tokenizer) {
  const auto spans =
      run(ordered_json::array({message("user", "a"), message("assistant", "b")}), false);
  if (!spans) return {};  // a template for questions alone
  for (size_t i = spans->size(); i-- > 0;) {
    if (!(*spans)[i].data) continue;
    if (i + 1 == spans->size() || !(*spans)[i].text.ends_with("b")) return {};
    std::string_view behind = (*spans)[i + 1].text;
    behind.remove_prefix(std::min(behind.find_first_not_of(" \n"), behind.size()));
    if (behind.empty()) return {};
    end_of_turn_ = tokenizer.markAt(behind);
    return {};
  }
  return {};
}

Result<ChatTemplate::Prompt> ChatTemplate::prompt(const Tokenizer& tokenizer,
                                                  std::string_view system, std::string_view user,
                                                  std::string_view assistant_prefix) const {
  std::vector<jinja::Span> spans;
  std::vector<Tokenizer::Part> parts;
  if (none()) {
    parts = {{system, specials_}, {system.empty() ? "" : "\n\n", specials_}, {user, specials_}};
  } else {
    ordered_json messages = ordered_json::array();
    if (!system.empty()) messages.push_back(message("system", system));
    messages.push_back(message("user", user));
    ALLOT_ASSIGN(spans, run(messages, true));
    for (const jinja::Span& span : spans)
      parts.push_back({span.text, span.data ? specials_ : Specials::kTokens});
  }
  parts.push_back({assistant_prefix, specials_});
  Prompt prompt;
  for (const Tokenizer::Part& part : parts) prompt.text += part.text;
  prompt.ids = tokenizer.encode(parts);
  if (none()) {
    if (bos_) prompt.ids.insert(prompt.ids.begin(), *bos_);
    return prompt;
  }
  const std::string bos = tokens_.value("bos_token", "");
  const bool has_bos = !bos.empty() && prompt.text.starts_with(bos) && !prompt.ids.empty() &&
                       tokenizer.addedIdOf(bos) == prompt.ids.front();
  if (has_bos) prompt.text.erase(0, bos.size());
  return prompt;
}

size_t marksInData(const Tokenizer& tokenizer, std::string_view text,
                   const std::vector<int32_t>& ids) {
  const auto spelled = [&](int32_t id) { return tokenizer.decode({id}, false); };
  size_t in_text = 0, tokens = 0;
  for (size_t at = 0; at < text.size();) {
    const auto mark = tokenizer.markAt(text.substr(at));
    in_text += mark.has_value();
    at += mark ? std::max<size_t>(1, spelled(*mark).size()) : 1;
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string token = spelled(ids[i]);
    if (token.empty() || tokenizer.markAt(token) != ids[i]) continue;
    // A bos that was put in front is not in the text.
    tokens += i > 0 || (text.starts_with(token) &&
                        !tokenizer.decode({ids.begin() + 1, ids.end()}, false).starts_with(token));
  }
  return in_text > tokens ? in_text - tokens : 0;
}

}  // namespace allot
