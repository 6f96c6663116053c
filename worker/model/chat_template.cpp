#include "worker/model/chat_template.h"

#include <algorithm>
#include <filesystem>

#include "core/utf8.h"
#include "worker/model/gguf.h"
#include "worker/model/gguf_model.h"
#include "worker/model/json_file.h"

namespace allot {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxConfigBytes = size_t{16} << 20;
constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

constexpr const char* kQwen2System = "You are a helpful assistant.";
constexpr const char* kQwen25System =
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
constexpr const char* kSmolLmSystem =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

void eraseAll(std::string& text, std::string_view part) {
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos;) text.erase(at, part.size());
}

// The white space that Python's str.strip removes; templates trim with it.
bool isSpace(std::string_view character) {
  if (character.size() == 1) {
    const char c = character[0];
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1c' && c <= '\x1f');
  }
  static constexpr std::string_view kSpaces =
      "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029"
      "\u202f\u205f\u3000";
  return character == "\xc2\x85" || has(kSpaces, character);
}

std::string_view trimmed(std::string_view text) {
  size_t bytes = 0;
  while ((bytes = utf8Length(text)) > 0 && isSpace(text.substr(0, bytes))) {
    text.remove_prefix(bytes);
  }
  for (;;) {
    size_t begin = text.size();
    while (begin > 0 && text.size() - begin < 3 &&
           (static_cast<unsigned char>(text[--begin]) & 0xc0) == 0x80) {
    }
    const std::string_view last = text.substr(begin);
    if (last.empty() || utf8Length(last) != last.size() || !isSpace(last)) return text;
    text.remove_suffix(last.size());
  }
}

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

// Returns the words of a Jinja tag ("if", "tools"), and the end of the tag.
struct Tag {
  std::vector<std::string> words;
  size_t end = 0;
};

Tag tagAt(const std::string& source, size_t at) {
  const size_t close = std::min(source.find("%}", at), source.size());
  Tag tag{{}, std::min(close + 2, source.size())};
  std::string word;
  for (size_t i = at + 2; i <= close; ++i) {
    const char c = i < close ? source[i] : ' ';
    if (c != ' ' && c != '\n' && c != '-') {
      word += c;
    } else if (!word.empty()) {
      tag.words.push_back(std::move(word));
      word.clear();
    }
  }
  return tag;
}

// Removes the parts of a template that are for tools; our questions have none.
std::string withoutTools(const std::string& source) {
  std::string kept;
  size_t from = 0;  // of the kept text
  int depth = -1;   // of blocks within the block for tools; -1: outside
  for (size_t at = 0; (at = source.find("{%", at)) != std::string::npos;) {
    const Tag tag = tagAt(source, at);
    const std::string first = tag.words.empty() ? "" : tag.words[0];
    if (depth < 0) {
      if (tag.words == std::vector<std::string>{"if", "tools"}) {
        kept.append(source, from, at - from);
        depth = 0;
      }
    } else if (depth == 0 && (first == "else" || first == "elif" || first == "endif")) {
      from = at;
      depth = -1;
    } else if (first == "if" || first == "for") {
      ++depth;
    } else if (first == "endif" || first == "endfor") {
      --depth;
    }
    at = tag.end;
  }
  if (depth >= 0) return source;  // it does not end
  return kept.append(source, from);
}

// Returns ChatML's default system prompt in a template; nothing if it is not one of the known ones.
std::optional<std::string> chatMlSystem(const std::string& published) {
  std::string source = withoutTools(published);
  std::string found;
  for (const char* known : {kQwen25System, kSmolLmSystem, kQwen2System}) {
    if (!has(source, known)) continue;
    if (found.empty()) found = known;
    eraseAll(source, known);
  }
  if (has(source, "You are")) return std::nullopt;
  // Written into the turn itself; a quote or brace there is the end of the template's literal.
  constexpr std::string_view kOpen = "<|im_start|>system";
  for (size_t at = 0; (at = source.find(kOpen, at)) != std::string::npos;) {
    at += kOpen.size();
    std::string_view rest = std::string_view(source).substr(at);
    if (rest.starts_with("\\n")) rest.remove_prefix(1);
    if (!rest.empty()) rest.remove_prefix(1);
    const bool literal = !rest.empty() && !has("'\"{", rest.substr(0, 1));
    if (literal && !rest.starts_with("<|im_end|>")) return std::nullopt;
  }
  return found;
}

// Returns true if a system prompt is plain text in front of the turns, without its own turn: Yi's
// ChatML.
bool writesSystemBare(const std::string& published) {
  const std::string source = withoutTools(published);
  if (has(source, "<|im_start|>system")) return false;
  for (const char* bare : {"{{ system_message }}", "{{- system_message }}", "{{system_message}}"}) {
    if (has(source, bare)) return true;
  }
  return false;
}

}  // namespace

struct ChatTemplate::Family {
  std::string name;
  Form form;
  std::string bos = {};  // empty: the tokenizer's, if any at all
  bool adds_bos = false;
  std::vector<std::string> marks = {};
  std::vector<std::string> optional_marks = {};  // text in a tokenizer that lacks them
  std::string end_of_turn;
};

struct ChatTemplate::Published {
  std::string name;
  Form form;
  bool adds_bos = false;
};

struct ChatTemplate::Piece {
  std::string text;
  std::optional<int32_t> token;  // a special token rather than text
};

const std::vector<ChatTemplate::Family>& ChatTemplate::families() {
  static const std::vector<Family> all = [] {
    const std::string user = "<|start_header_id|>user<|end_header_id|>\n\n";
    const std::string answer = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n";
    const auto chatMl = [](std::string name, const char* system) {
      return Family{.name = std::move(name),
                    .form = {"<|im_start|>system\n", "<|im_end|>\n<|im_start|>user\n",
                             "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", system},
                    .marks = {"<|im_start|>", "<|im_end|>"},
                    .end_of_turn = "<|im_end|>"};
    };
    // A model that is shown an empty thought answers at once.
    Family noThoughts = chatMl("qwen3-no-think", "");
    noThoughts.form.after_user += "<think>\n\n</think>\n\n";
    noThoughts.optional_marks = {"<think>", "</think>"};
    return std::vector<Family>{
        {.name = "llama-3",
         .form = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>" + user, user,
                  answer, "", true},
         .bos = "<|begin_of_text|>",
         .adds_bos = true,
         .marks = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
         .end_of_turn = "<|eot_id|>"},
        chatMl("qwen2", kQwen2System),
        chatMl("qwen3", ""),
        noThoughts,
        {.name = "deepseek",
         .form = {"", "<｜User｜>", "<｜User｜>", "<｜Assistant｜><think>\n", ""},
         .bos = "<｜begin▁of▁sentence｜>",
         .adds_bos = true,
         .marks = {"<｜User｜>", "<｜Assistant｜>"},
         .end_of_turn = "<｜end▁of▁sentence｜>"},
        {.name = "mistral",
         .form = {"[INST] ", "\n\n", "[INST] ", " [/INST]", ""},
         .bos = "<s>",
         .adds_bos = true,
         .optional_marks = {"[INST]", "[/INST]"},
         .end_of_turn = "</s>"},
        chatMl("chatml", kSmolLmSystem)};
  }();
  return all;
}

std::optional<ChatTemplate::Published> ChatTemplate::recognise(const std::string& source) {
  const auto of = [](const std::string& name) {
    const auto& all = families();
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Family& f) { return f.name == name; });
    return Published{name, found->form, found->adds_bos};
  };
  if (has(source, "<｜User｜>") && has(source, "<｜Assistant｜>")) {
    Published deepseek = of("deepseek");
    // In its first release the model opens its thoughts itself.
    if (!has(source, "<｜Assistant｜><think>")) deepseek.form.after_user = "<｜Assistant｜>";
    return deepseek;
  }
  if (has(source, "<|start_header_id|>") && has(source, "<|eot_id|>")) return of("llama-3");
  if (has(source, "<|im_start|>") && has(source, "<|im_end|>")) {
    // Phi-4's separator, or answers that begin with a thought (QwQ's).
    for (const char* other : {"<|im_sep|>", "assistant\\n<think>", "assistant\n<think>",
                              "'<think>\\n'", "\"<think>\\n\""}) {
      if (has(source, other)) return std::nullopt;
    }
    const auto system = chatMlSystem(source);
    if (!system) return std::nullopt;
    const bool switches =
        has(source, "enable_thinking") && has(source, "<think>\\n\\n</think>\\n\\n");
    Published chat = of(*system == kQwen2System || *system == kQwen25System ? "qwen2"
                        : switches && system->empty()                       ? "qwen3"
                                                                            : "chatml");
    chat.form.default_system = *system;
    if (writesSystemBare(source)) {
      chat.form.before_system.clear();
      chat.form.after_system = chat.form.before_user;
    }
    chat.adds_bos = has(source, "bos_token");
    return chat;
  }
  // Not Llama-2's, nor Mistral's newer ones with a turn for the system prompt.
  if (has(source, "[INST]") && has(source, "[/INST]") && !has(source, "<<SYS>>") &&
      !has(source, "[SYSTEM_PROMPT]")) {
    Published mistral = of("mistral");
    Form& form = mistral.form;
    if (has(source, "\" [INST] ") || has(source, "' [INST] ")) {
      form.before_system = form.before_user = " [INST] ";  // 7B-v0.2 as revised
    } else if (has(source, "\"[INST]\"") || has(source, "'[INST]'")) {
      form.before_system = form.before_user = "[INST]";  // Nemo's
      form.after_user = "[/INST]";
    } else if (has(source, "\"[/INST]") || has(source, "'[/INST]")) {
      form.after_user = "[/INST]";  // 7B-v0.3
    }
    return mistral;
  }
  return std::nullopt;
}

Result<ChatTemplate> ChatTemplate::choose(const std::string& name, const std::string& model_path,
                                          const Tokenizer& tokenizer) {
  ChatTemplate chosen;
  chosen.bos_ = tokenizer.bosToken();
  if (name == "none") return chosen;
  ALLOT_ASSIGN(const std::string source, publishedTemplate(model_path));
  const bool automatic = name.empty() || name == "auto";
  if (automatic && source.empty()) return chosen;
  const std::optional<Published> published = recognise(source);
  const std::string wanted = automatic && published ? published->name : name;
  std::string choices;
  for (const Family& family : families()) {
    choices += ", " + family.name;
    if (family.name != wanted) continue;
    const bool own = published && published->name == wanted;
    chosen.name_ = wanted;
    chosen.form_ = own ? published->form : family.form;
    ALLOT_TRY(chosen.lookUp(family, own ? published->adds_bos : family.adds_bos, tokenizer));
    return chosen;
  }
  if (!automatic) {
    return badInput("spec.model.chatTemplate: " + inQuotes(name) +
                    " is not known; allowed: auto, none" + choices);
  }
  return badInput("spec.model.chatTemplate: the chat template that " + model_path +
                  " publishes is not one that auto recognises; name the one to use: none" +
                  choices);
}

Status ChatTemplate::lookUp(const Family& family, bool adds_bos, const Tokenizer& tokenizer) {
  const auto required = [&](const std::string& token) -> Result<int32_t> {
    if (const auto id = tokenizer.addedIdOf(token)) return *id;
    return badInput("spec.model.chatTemplate: " + family.name + ": the model's tokenizer has no " +
                    token + " among its added tokens; choose another template, or none");
  };
  for (const std::string& mark : family.marks) {
    ALLOT_ASSIGN(const int32_t id, required(mark));
    marks_.push_back({mark, id});
  }
  for (const std::string& mark : family.optional_marks) {
    if (const auto id = tokenizer.addedIdOf(mark)) marks_.push_back({mark, *id});
  }
  ALLOT_ASSIGN(end_of_turn_, required(family.end_of_turn));
  if (!adds_bos) {
    bos_.reset();
  } else if (!family.bos.empty()) {
    ALLOT_ASSIGN(bos_, required(family.bos));
  } else if (!bos_) {
    return badInput("spec.model.chatTemplate: " + family.name +
                    ": the model's template begins with bos, but its tokenizer has no rule that "
                    "says which token that is; choose none");
  }
  return {};
}

std::vector<ChatTemplate::Piece> ChatTemplate::pieces(std::string_view system,
                                                      std::string_view user,
                                                      std::string_view assistant_prefix) const {
  std::vector<Piece> all;
  const auto addText = [&](std::string_view text) {
    if (text.empty()) return;
    if (all.empty() || all.back().token) all.emplace_back();
    all.back().text += text;
  };
  const auto addForm = [&](std::string_view form) {
    while (!form.empty()) {
      const Mark* next = nullptr;
      size_t at = form.size();
      for (const Mark& mark : marks_) {
        if (const size_t found = form.find(mark.text); found < at) next = &mark, at = found;
      }
      addText(form.substr(0, at));
      if (next == nullptr) return;
      all.push_back({next->text, next->id});
      form.remove_prefix(at + next->text.size());
    }
  };
  if (none()) {
    addText(system);
    if (!system.empty()) addText("\n\n");
    addText(user);
    addText(assistant_prefix);
    return all;
  }
  if (system.empty()) system = form_.default_system;
  if (!system.empty()) {
    addForm(form_.before_system);
    addText(form_.trims ? trimmed(system) : system);
    addForm(form_.after_system);
  } else {
    addForm(form_.before_user);
  }
  addText(form_.trims ? trimmed(user) : user);
  addForm(form_.after_user);
  addText(assistant_prefix);
  return all;
}

std::string ChatTemplate::render(std::string_view system, std::string_view user,
                                 std::string_view assistant_prefix) const {
  std::string text;
  for (const Piece& piece : pieces(system, user, assistant_prefix)) text += piece.text;
  return text;
}

std::vector<int32_t> ChatTemplate::encode(const Tokenizer& tokenizer, std::string_view system,
                                          std::string_view user,
                                          std::string_view assistant_prefix) const {
  std::vector<int32_t> ids;
  bool begins = !addsBos();
  for (const Piece& piece : pieces(system, user, assistant_prefix)) {
    if (piece.token) {
      ids.push_back(*piece.token);
    } else {
      const auto text = tokenizer.encode(piece.text, Specials::kText, begins);
      ids.insert(ids.end(), text.begin(), text.end());
    }
    begins = false;
  }
  return ids;
}

}  // namespace allot
