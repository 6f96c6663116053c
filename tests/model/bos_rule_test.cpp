// Which token a tokenizer puts in front of a text: against Hugging Face's (chat_cases.json, see
// make_chat_cases.py), and where tokenizer.json does not say.
#include <nlohmann/json.hpp>

#include "tests/results.h"
#include "tests/temp_folder.h"
#include "worker/model/tokenizer.h"

namespace allot {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json golden(const std::string& name) {
  return json::parse(readFile(ALLOT_SOURCE_DIR "/tests/golden/" + name));
}

// Byte-level, with <s> and </s> behind the vocabulary.
json plainFile() {
  const json all = golden("tokenizer_cases.json");
  for (const json& item : all["cases"]) {
    if (item["name"] != "gpt2") continue;
    json file = item["tokenizer"];
    file["model"] = all["model"];
    const size_t size = all["model"]["vocab"].size();
    file["added_tokens"] = {{{"id", size}, {"content", "<s>"}, {"special", true}},
                            {{"id", size + 1}, {"content", "</s>"}, {"special", true}}};
    return file;
  }
  return {};
}

struct Folder {
  void write(const std::string& name, const json& content) const {
    folder.write(name, content.dump());
  }
  // The id, "none", or the error.
  std::string bos() const {
    const auto tokenizer = Tokenizer::load(folder.path() + "/tokenizer.json");
    if (!tokenizer) return tokenizer.error().message;
    const auto id = tokenizer->bosToken();
    return id ? std::to_string(*id) : "none";
  }
  TempFolder folder;
};

TEST(BosRule, PostProcessorsAreHuggingFaces) {
  const json cases = golden("chat_cases.json")["bos"];
  ASSERT_GE(cases.size(), 10u);
  const Folder folder;
  for (const json& item : cases) {
    json file = plainFile();
    file["post_processor"] = item["post_processor"];
    folder.write("tokenizer.json", file);
    EXPECT_EQ(folder.bos(), item["bos"].is_null() ? "none" : item["bos"].dump()) << item;
  }
}

TEST(BosRule, OtherFilesSpeakWhereThereIsNoPostProcessor) {
  const Folder folder;
  const json file = plainFile();
  const json id = file["added_tokens"][0]["id"];
  folder.write("tokenizer.json", file);
  EXPECT_EQ(folder.bos(), "none");
  folder.write("config.json", {{"bos_token_id", id}});
  EXPECT_EQ(folder.bos(), id.dump());
  folder.write("config.json", {{"bos_token_id", 100000}});
  EXPECT_THAT(folder.bos(), HasSubstr("bos_token_id: 100000 is not a token id of 0.."));
  folder.write("config.json", {{"bos_token_id", id}});
  // With a tokenizer_config.json it is that file's to say.
  folder.write("tokenizer_config.json", {{"bos_token", "<s>"}});
  EXPECT_EQ(folder.bos(), "none");
  folder.write("tokenizer_config.json", {{"bos_token", "<s>"}, {"add_bos_token", true}});
  EXPECT_EQ(folder.bos(), id.dump());
  folder.write("tokenizer_config.json",
               {{"bos_token", {{"content", "</s>"}}}, {"add_bos_token", true}});
  EXPECT_EQ(folder.bos(), std::to_string(id.get<int>() + 1));
  folder.write("tokenizer_config.json", {{"add_bos_token", true}});
  EXPECT_THAT(folder.bos(), HasSubstr("bos_token is not an added token"));
  folder.write("tokenizer_config.json", {{"add_bos_token", 1}});
  EXPECT_THAT(folder.bos(), HasSubstr("add_bos_token: 1 is not true or false"));
  // And the post-processor's before all.
  json processed = file;
  processed["post_processor"] = {{"type", "ByteLevel"}};
  folder.write("tokenizer.json", processed);
  EXPECT_EQ(folder.bos(), "none");
}

// Its questions were made with the bos of config.json, and stay so.
TEST(BosRule, TheModelInTheRepositoryHasOne) {
  const auto tokenizer =
      valueOf(Tokenizer::load(ALLOT_SOURCE_DIR "/experiments/models/recall-7m/tokenizer.json"));
  EXPECT_EQ(tokenizer.bosToken(), 0);
}

TEST(BosRule, RefusesWhatItDoesNotDo) {
  struct Bad {
    const char* processor;
    const char* message;
  };
  const Bad kBad[] = {
      {R"({"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["</s>", 1]})",
       "post_processor type \"RobertaProcessing\" is not supported; supported: TemplateProcessing"},
      {R"({"single": []})", "type (missing)"},
      {"7", "type (missing)"},
      {R"({"type": "Sequence"})", "lacks processors"},
      {R"({"type": "Sequence", "processors": [{"type": "Sequence", "processors": []}]})",
       "type \"Sequence\" is not supported"},
      {R"({"type": "TemplateProcessing", "single": "$A"})", "lacks single"},
      {R"({"type": "TemplateProcessing", "single": []})", "is not special tokens around"},
      {R"({"type": "TemplateProcessing", "single": [7]})", "is not special tokens around"},
      {R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}]})",
       "\"<s>\" in front of the text is not supported"},
      {R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}],
           "special_tokens": {"<s>": {"ids": [99999]}}})",
       "\"<s>\" in front of the text is not supported"},
      {R"({"type": "TemplateProcessing",
           "single": [{"SpecialToken": {"id": "<s>"}}, {"SpecialToken": {"id": "<s>"}}],
           "special_tokens": {"<s>": {"ids": [1]}}})",
       "supported: one token of the vocabulary"},
      {R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}],
           "special_tokens": {"<s>": {"ids": [1]}}})",
       "is not special tokens around one Sequence"},
  };
  const Folder folder;
  for (const Bad& bad : kBad) {
    json file = plainFile();
    file["post_processor"] = json::parse(bad.processor);
    folder.write("tokenizer.json", file);
    EXPECT_THAT(folder.bos(), HasSubstr(bad.message)) << bad.processor;
  }
}

}  // namespace
}  // namespace allot
