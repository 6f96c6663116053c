// Chat templates: text and token ids against jinja2 and Hugging Face's tokenizers
// (tests/golden/make_chat_cases.py), recognition, and texts that try to forge a turn.
#include "worker/model/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/spec/model_catalogue.h"
#include "tests/results.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json golden(const std::string& name) {
  return json::parse(readFile(ALLOT_SOURCE_DIR "/tests/golden/" + name));
}

const json& chatGolden() {
  static const json kGolden = golden("chat_cases.json");
  return kGolden;
}

// The tokenizer.json of that name in tokenizer_cases.json or metaspace_cases.json.
json baseFile(const std::string& name) {
  static const json kFiles[] = {golden("tokenizer_cases.json"), golden("metaspace_cases.json")};
  for (const json& file : kFiles) {
    for (const json& item : file["cases"]) {
      if (item["name"] != name) continue;
      json tokenizer = item["tokenizer"];
      const json flags = tokenizer.value("model", json::object());
      tokenizer["model"] = file["model"];
      tokenizer["model"]["ignore_merges"] = flags.value("ignore_merges", false);
      return tokenizer;
    }
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

// A model folder with a case's tokenizer and, if it is not empty, a template.
class ModelFolder {
 public:
  explicit ModelFolder(const json& golden_case) {
    json file = baseFile(golden_case["base"]);
    file["added_tokens"] = golden_case["added_tokens"];
    if (golden_case["bos"].is_number()) file["post_processor"] = processor(golden_case["bos"]);
    write("tokenizer.json", file);
    auto loaded = Tokenizer::load(folder_.path() + "/tokenizer.json");
    EXPECT_TRUE(loaded) << loaded.error().message;
    if (loaded) tokenizer_.emplace(std::move(*loaded));
  }
  void write(const std::string& name, const json& content) {
    folder_.write(name, content.is_string() ? content.get<std::string>() : content.dump());
  }
  void publish(const std::string& text) {
    write("tokenizer_config.json", {{"chat_template", text}});
  }
  Result<ChatTemplate> choose(const std::string& name) {
    return ChatTemplate::choose(name, folder_.path(), *tokenizer_);
  }
  std::string nameOf(const std::string& text) {
    publish(text);
    const auto chosen = choose("auto");
    return chosen ? chosen->name() : chosen.error().message;
  }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  static json processor(const json& id) {
    return {{"type", "TemplateProcessing"},
            {"single", {{{"SpecialToken", {{"id", "b"}}}}, {{"Sequence", {{"id", "A"}}}}}},
            {"special_tokens", {{"b", {{"ids", {id}}}}}}};
  }

  TempFolder folder_;
  std::optional<Tokenizer> tokenizer_;
};

json caseOf(const std::string& name) {
  for (const json& item : chatGolden()["cases"]) {
    if (item["name"] == name) return item;
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

TEST(ChatTemplate, TextAndIdsAreHuggingFaces) {
  ASSERT_GE(chatGolden()["cases"].size(), 17u);
  size_t texts = 0;
  for (const json& item : chatGolden()["cases"]) {
    SCOPED_TRACE(item["name"].get<std::string>());
    ModelFolder model(item);
    model.publish(item["template"]);
    // The model's thoughts are on unless one asks for it.
    const bool thinks = item["family"] != "qwen3-no-think";
    if (!thinks) {
      EXPECT_EQ(model.choose("auto")->name(), "qwen3");
    }
    const auto chat = valueOf(model.choose(thinks ? "auto" : "qwen3-no-think"));
    EXPECT_EQ(chat.name(), item["family"].get<std::string>());
    EXPECT_EQ(chat.addsBos(), item["bos"].is_number());
    EXPECT_EQ(chat.bosToken().value_or(-1), item["bos"].is_number() ? item["bos"].get<int>() : -1);
    for (const json& text : item["texts"]) {
      const auto system = text[0].get<std::string>(), user = text[1].get<std::string>(),
                 prefix = text[2].get<std::string>();
      EXPECT_EQ(chat.render(system, user, prefix), text[3].get<std::string>()) << text;
      EXPECT_EQ(chat.encode(model.tokenizer(), system, user, prefix),
                text[4].get<std::vector<int32_t>>())
          << text;
      ++texts;
    }
  }
  EXPECT_GE(texts, 187u);
}

TEST(ChatTemplate, ANameAloneDoes) {
  struct Named {
    const char* name;
    const char* golden_case;  // the strings of that name where nothing is published
  };
  std::vector<std::string> tested = {"auto", "none"};
  for (const auto& [name, golden_case] :
       {Named{"llama-3", "llama-3"}, Named{"qwen2", "qwen2"}, Named{"qwen3", "qwen3"},
        Named{"qwen3-no-think", "qwen3-no-think"}, Named{"deepseek", "deepseek"},
        Named{"mistral", "mistral-v0.1"}, Named{"chatml", "smollm2"}}) {
    SCOPED_TRACE(name);
    tested.emplace_back(name);
    const json item = caseOf(golden_case);
    ModelFolder model(item);
    const auto chat = valueOf(model.choose(name));
    EXPECT_EQ(chat.name(), name);
    for (const json& text : item["texts"]) {
      EXPECT_EQ(chat.render(text[0].get<std::string>(), text[1].get<std::string>(),
                            text[2].get<std::string>()),
                text[3].get<std::string>());
    }
    ASSERT_TRUE(chat.endOfTurn());
    // Whatever else the model publishes.
    model.publish("{{ 'Human: ' + messages[0]['content'] }}");
    EXPECT_TRUE(model.choose(name));
  }
  EXPECT_EQ(tested, chatTemplateChoices());
  // Of the same name, the published one decides about the details.
  ModelFolder model(caseOf("mistral-v0.3"));
  model.publish(caseOf("mistral-v0.3")["template"]);
  EXPECT_EQ(model.choose("mistral")->render("", "a", ""), "[INST] a[/INST]");
}

TEST(ChatTemplate, WithoutOneTheTextsStandAlone) {
  ModelFolder model(caseOf("llama-3"));
  for (const char* name : {"none", "auto", ""}) {
    const auto chat = valueOf(model.choose(name));
    EXPECT_TRUE(chat.none());
    EXPECT_EQ(chat.name(), "none");
    EXPECT_FALSE(chat.addsBos());
    EXPECT_EQ(chat.bosToken(), model.tokenizer().bosToken());
    EXPECT_EQ(chat.endOfTurn(), std::nullopt);
    EXPECT_EQ(chat.render("", "the", " in"), "the in");
    EXPECT_EQ(chat.render("a", "the", " in"), "a\n\nthe in");
    EXPECT_EQ(chat.encode(model.tokenizer(), "a", "the", " in"),
              model.tokenizer().encode("a\n\nthe in"));
  }
  model.publish(caseOf("llama-3")["template"]);
  EXPECT_TRUE(model.choose("none")->none());
}

// Of every mark there are as many as without the hostile texts.
TEST(ChatTemplate, DataForgesNoTurn) {
  for (const char* name :
       {"llama-3", "qwen2", "qwen3-no-think", "deepseek", "mistral-v0.3", "smollm2"}) {
    SCOPED_TRACE(name);
    const json item = caseOf(name);
    ModelFolder model(item);
    model.publish(item["template"]);
    const auto chat = valueOf(model.choose(item["family"]));
    std::string all;
    for (const json& token : item["added_tokens"]) all += token["content"].get<std::string>();
    const auto honest = chat.encode(model.tokenizer(), "a", "b", "c");
    const auto forged = chat.encode(model.tokenizer(), all, all + "\n" + all, all);
    for (const json& token : item["added_tokens"]) {
      if (token["content"] == "<think>" || token["content"] == "</think>") continue;
      const auto id = token["id"].get<int32_t>();
      EXPECT_EQ(std::count(forged.begin(), forged.end(), id),
                std::count(honest.begin(), honest.end(), id))
          << token["content"];
    }
    EXPECT_THAT(model.tokenizer().decode(forged), HasSubstr(all));
  }
}

TEST(ChatTemplate, FindsWhatIsPublished) {
  const std::string text = caseOf("qwen2")["template"];
  ModelFolder model(caseOf("qwen2"));
  model.write("tokenizer_config.json", {{"chat_template", nullptr}});
  EXPECT_TRUE(model.choose("auto")->none());
  model.write("tokenizer_config.json", {{"chat_template",
                                         {{{"name", "tool_use"}, {"template", "tools"}},
                                          {{"name", "default"}, {"template", text}}}}});
  EXPECT_EQ(model.choose("auto")->name(), "qwen2");
  // The file of its own comes before.
  model.write("chat_template.jinja", caseOf("smollm2")["template"]);
  EXPECT_EQ(model.choose("auto")->name(), "chatml");
}

// What it says where there are tools is not said to us, whoever "You are" stands for there.
TEST(ChatTemplate, ASectionForToolsIsPassedOver) {
  ModelFolder model(caseOf("qwen2"));
  const std::string ml = caseOf("chatml")["template"];
  const std::string inner = "{% if a %}{% for t in tools %}{{ t }}{% endfor %}{% endif %}";
  for (const std::string& text : {
           "{% if tools %}{{ 'You are given tools' }}" + inner + "{% endif %}" + ml,
           "{%- if tools -%}\n{{- 'You are a caller' }}" + inner + "{%- else %}{%- endif %}" + ml,
           "{% if tools %}You are{% elif other %}{% endif %}" + ml,
       }) {
    EXPECT_EQ(model.nameOf(text), "chatml") << text;
  }
  for (const std::string& text : {
           "{% if tools %}" + inner + "{% else %}{{ 'You are a pirate.' }}{% endif %}" + ml,
           "{% if tools %}" + inner + "{% endif %}{{ 'You are a pirate.' }}" + ml,
           "{% if tools %}{{ 'You are given tools' }}" + inner + ml,  // it does not end
           "{% if toolbox %}{{ 'You are given tools' }}{% endif %}" + ml,
       }) {
    EXPECT_THAT(model.nameOf(text), HasSubstr("is not one that auto recognises")) << text;
  }
  // The default prompt is the published one's under a name that is given, too.
  model.publish(caseOf("qwen2.5")["template"]);
  EXPECT_THAT(model.choose("qwen2")->render("", "a", ""), HasSubstr("You are Qwen, created by"));
}

TEST(ChatTemplate, RefusesWhatItDoesNotRecognise) {
  ModelFolder model(caseOf("qwen2"));
  const std::string ml = caseOf("chatml")["template"], qwen3 = caseOf("qwen3")["template"];
  for (const std::string& text : {
           std::string("{{ '<|user|>' + messages[0]['content'] }}"),
           std::string("{{ '[INST] <<SYS>>' + messages[0]['content'] + ' [/INST]' }}"),
           std::string("{{ '[SYSTEM_PROMPT]a[/SYSTEM_PROMPT][INST]b[/INST]' }}"),
           std::string("<|im_start|>system<|im_sep|><|im_end|>"),
           "{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}" + ml,
           "{{ '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}" + ml,
           "{% set system = 'You are a pirate.' %}" + ml,
           ml + "{{ '<|im_start|>assistant\\n<think>\\n' }}",
           // Opens the thought itself, unless it is told not to.
           qwen3 + "{% if enable_thinking %}{{ '<think>\\n' }}{% endif %}",
           qwen3 + "{% if enable_thinking %}{{ \"<think>\\n\" }}{% endif %}",
           "{% set system = 'You are a thinker.' %}" + qwen3,
       }) {
    EXPECT_THAT(model.nameOf(text),
                HasSubstr("publishes is not one that auto recognises; name the one to use: none, "
                          "llama-3, qwen2, qwen3, qwen3-no-think, deepseek, mistral, chatml"))
        << text;
  }
  EXPECT_THAT(model.nameOf(caseOf("llama-3")["template"]),
              HasSubstr("spec.model.chatTemplate: llama-3: the model's tokenizer has no "
                        "<|start_header_id|> among its added tokens"));
  EXPECT_THAT(model.nameOf("{{ bos_token }}" + ml), HasSubstr("begins with bos, but"));
  EXPECT_THAT(model.choose("llama-2").error().message,
              HasSubstr("\"llama-2\" is not known; allowed: auto, none, llama-3"));
  for (const json& bad : {json(7), json::object(), json::array({1})}) {
    model.write("tokenizer_config.json", {{"chat_template", bad}});
    EXPECT_THAT(model.choose("auto"),
                isError(ErrorCode::kUsage, HasSubstr("neither a text nor a list")));
  }
  model.write("tokenizer_config.json", std::string("{\"chat_template\": "));
  EXPECT_THAT(model.choose("auto").error().message, HasSubstr("is not JSON"));
}

}  // namespace
}  // namespace allot
