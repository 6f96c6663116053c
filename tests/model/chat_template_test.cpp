// Chat templates: text and token ids against jinja2 and Hugging Face's tokenizers
// (tests/golden/make_chat_cases.py), templates that cannot be executed, and texts that try to forge
// a turn.
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

std::string textOf(ModelFolder& model) {
  return valueOf(valueOf(model.choose("auto")).prompt(model.tokenizer(), "", "a", "")).text;
}

json caseOf(const std::string& name) {
  for (const json& item : chatGolden()["cases"]) {
    if (item["name"] == name) return item;
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

Result<ChatTemplate::Prompt> promptOf(const ChatTemplate& chat, const ModelFolder& model,
                                      const json& text) {
  return chat.prompt(model.tokenizer(), text[0].get<std::string>(), text[1].get<std::string>(),
                     text[2].get<std::string>());
}

TEST(ChatTemplate, TextAndIdsAreHuggingFaces) {
  ASSERT_GE(chatGolden()["cases"].size(), 22u);
  size_t texts = 0;
  for (const json& item : chatGolden()["cases"]) {
    SCOPED_TRACE(item["name"].get<std::string>());
    ModelFolder model(item);
    model.publish(item["template"]);
    // The model's thoughts are on unless one asks for it.
    const bool thinks = item["family"] != "qwen3-no-think";
    const auto chat = valueOf(model.choose(thinks ? "auto" : "qwen3-no-think"));
    EXPECT_EQ(chat.name(), thinks ? "published" : "qwen3-no-think");
    for (const json& text : item["texts"]) {
      const auto made = valueOf(promptOf(chat, model, text));
      EXPECT_EQ(made.text, text[3].get<std::string>()) << text;
      auto ids = text[4].get<std::vector<int32_t>>();
      if (item["bos"].is_number()) ids.insert(ids.begin(), item["bos"].get<int32_t>());
      EXPECT_EQ(made.ids, ids) << text;
      ++texts;
    }
  }
  EXPECT_GE(texts, 240u);
}

TEST(ChatTemplate, ANameAloneDoes) {
  struct Named {
    const char* name;
    const char* golden_case;  // the strings of that name where nothing is published
  };
  std::vector<std::string> tested = {"auto", "none", "rendered"};
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
      EXPECT_EQ(valueOf(promptOf(chat, model, text)).text, text[3].get<std::string>());
    }
    ASSERT_TRUE(chat.endOfTurn());
    // Whatever else the model publishes.
    model.publish("{{ 'Human: ' + messages[0]['content'] }}");
    EXPECT_TRUE(model.choose(name));
  }
  EXPECT_EQ(tested, chatTemplateChoices());
}

TEST(ChatTemplate, WithoutOneTheTextsStandAlone) {
  ModelFolder model(caseOf("llama-3"));
  for (const char* name : {"none", "auto", ""}) {
    const auto chat = valueOf(model.choose(name));
    EXPECT_TRUE(chat.none());
    EXPECT_EQ(chat.name(), "none");
    EXPECT_EQ(chat.endOfTurn(), std::nullopt);
    const auto made = valueOf(chat.prompt(model.tokenizer(), "a", "the", " in"));
    EXPECT_EQ(made.text, "a\n\nthe in");
    auto ids = model.tokenizer().encode("a\n\nthe in");
    ids.insert(ids.begin(), model.tokenizer().bosToken().value());
    EXPECT_EQ(made.ids, ids);
    EXPECT_EQ(valueOf(chat.prompt(model.tokenizer(), "", "the", " in")).text, "the in");
  }
  model.publish(caseOf("llama-3")["template"]);
  EXPECT_TRUE(model.choose("none")->none());
}

TEST(ChatTemplate, ARenderedPromptKeepsItsTokensAndGetsNoOthers) {
  const std::string qwen = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
  const std::string llama =
      "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>";
  for (const auto& [name, prompt, marks] :
       {std::tuple{"qwen2", qwen, 3}, std::tuple{"llama-3", llama, 4}}) {
    SCOPED_TRACE(name);
    ModelFolder model(caseOf(name));
    model.publish(caseOf(name)["template"]);
    const auto chat = valueOf(model.choose("rendered"));
    EXPECT_EQ(chat.name(), "rendered");
    const auto made = valueOf(chat.prompt(model.tokenizer(), "", prompt, ""));
    EXPECT_EQ(made.text, prompt);
    EXPECT_EQ(made.ids, model.tokenizer().encode(prompt));
    const auto is_mark = [&](int32_t id) {
      return model.tokenizer().addedIdOf(model.tokenizer().decode({id}, false)).has_value();
    };
    EXPECT_EQ(std::count_if(made.ids.begin(), made.ids.end(), is_mark), marks);
    // The turn ends as the published template ends it.
    EXPECT_EQ(chat.endOfTurn(), valueOf(model.choose("auto")).endOfTurn());
    // Anything else takes the marks for text.
    const auto plain =
        valueOf(valueOf(model.choose("none")).prompt(model.tokenizer(), "", prompt, ""));
    EXPECT_GT(plain.ids.size(), made.ids.size());
    EXPECT_EQ(marksInData(model.tokenizer(), plain.text, plain.ids), static_cast<size_t>(marks));
    EXPECT_EQ(marksInData(model.tokenizer(), made.text, made.ids), 0U);
    for (const auto& [text, data] : {std::pair{prompt, marks}, {std::string("hi"), 0}}) {
      const auto turn =
          valueOf(valueOf(model.choose("auto")).prompt(model.tokenizer(), "", text, ""));
      EXPECT_EQ(marksInData(model.tokenizer(), turn.text, turn.ids), static_cast<size_t>(data));
    }
    // Or, if that cannot be executed, as a template with a name does.
    model.publish("{% include 'x' %}");
    EXPECT_EQ(valueOf(model.choose("rendered")).endOfTurn(), chat.endOfTurn());
  }
}

// Of every mark there are as many as without the hostile texts.
TEST(ChatTemplate, DataForgesNoTurn) {
  for (const char* name : {"llama-3", "qwen2", "qwen3-no-think", "deepseek", "mistral-v0.3",
                           "smollm2", "rstrip", "lstrip", "normalised", "normalised-nfc"}) {
    SCOPED_TRACE(name);
    const json item = caseOf(name);
    ModelFolder model(item);
    model.publish(item["template"]);
    const auto chat =
        valueOf(model.choose(item["family"] == "qwen3-no-think" ? "qwen3-no-think" : "auto"));
    std::string all;
    for (const json& token : item["added_tokens"]) all += token["content"].get<std::string>();
    const auto honest = valueOf(chat.prompt(model.tokenizer(), "a", "b", "c")).ids;
    const auto forged = valueOf(chat.prompt(model.tokenizer(), all, all + "\n" + all, all)).ids;
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
  EXPECT_EQ(textOf(model),
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  // The file of its own comes before.
  model.write("chat_template.jinja", "{{ messages[0].content }}");
  EXPECT_EQ(textOf(model), "a");
}

TEST(ChatTemplate, TheEndOfATurnIsThatOfTheTemplate) {
  const std::string normalised =
      "{% for m in messages %}{{ '<|user|>' + m.content }} <|end|>{% endfor %}";
  for (const auto& [name, text, end] :
       {std::tuple{"llama-3", "", "<|eot_id|>"},
        {"qwen2", "{% for m in messages %}{{ m.content }}<|im_end|>\n{% endfor %}", "<|im_end|>"},
        {"normalised", normalised.c_str(), "<|end|>"},
        // The short template of qwen3 wants thoughts of an answer, and fails without them.
        {"qwen3", "", ""}}) {
    SCOPED_TRACE(name);
    ModelFolder model(caseOf(name));
    model.publish(*text == 0 ? caseOf(name)["template"].get<std::string>() : text);
    const auto mark = model.tokenizer().addedIdOf(end);
    EXPECT_EQ(mark.has_value(), *end != 0);
    EXPECT_EQ(valueOf(model.choose("auto")).endOfTurn(), mark);
  }
}

TEST(ChatTemplate, ReadsBosFromTheFilesOfTheTokenizer) {
  ModelFolder model(caseOf("qwen2"));
  const std::string text = "{{ bos_token }}{{ messages[0].content }}";
  model.write("tokenizer_config.json", {{"chat_template", text}, {"bos_token", "<|endoftext|>"}});
  auto made = valueOf(valueOf(model.choose("auto")).prompt(model.tokenizer(), "", "a", ""));
  EXPECT_EQ(made.text, "a");
  EXPECT_EQ(made.ids.front(), *model.tokenizer().addedIdOf("<|endoftext|>"));
  model.write("tokenizer_config.json", {{"chat_template", text}, {"bos_token", nullptr}});
  EXPECT_EQ(textOf(model), "a");
  model.publish(text);
  EXPECT_THAT(model.nameOf(text), HasSubstr("bos_token, which the model's files do not name"));
}

TEST(ChatTemplate, RefusesWhatItCannotExecute) {
  ModelFolder model(caseOf("qwen2"));
  for (const auto& [text, reason] :
       {std::pair{"\n{{ messages | wordcount }}", "line 2: the filter wordcount (not supported)"},
        {"{% include 'a' %}",
         "line 1: the statement include is not known (not supported, or not Jinja)"},
        {"{{ functions.a }}", "line 1: functions is not defined (not defined)"},
        {"{{ raise_exception('tools') }}", "line 1: it says: tools (refused)"}}) {
    const std::string message = model.nameOf(text);
    EXPECT_THAT(message, HasSubstr("spec.model.chatTemplate: the chat template that "));
    EXPECT_THAT(message, HasSubstr(std::string("publishes cannot be executed: ") + reason));
    EXPECT_THAT(message,
                HasSubstr("; choose another spec.model.chatTemplate: none, rendered, "
                          "llama-3, qwen2, qwen3, qwen3-no-think, deepseek, mistral, chatml"));
  }
  // A template may refuse a system prompt alone.
  model.publish(
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}a");
  const auto chat = valueOf(model.choose("auto"));
  EXPECT_TRUE(chat.prompt(model.tokenizer(), "", "q", ""));
  EXPECT_THAT(chat.prompt(model.tokenizer(), "s", "q", ""),
              isError(ErrorCode::kUsage, HasSubstr("it says: no system")));
  EXPECT_THAT(model.choose("llama-3").error().message,
              HasSubstr("spec.model.chatTemplate: llama-3: the model's tokenizer has no "
                        "<|start_header_id|> among its added tokens"));
  EXPECT_THAT(model.choose("llama-2").error().message,
              HasSubstr("\"llama-2\" is not known; allowed: auto, none, rendered, llama-3"));
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
