// Files of a model folder that would take all memory, all time or the stack: each is refused by a
// sentence that names the file and the field.
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/results.h"
#include "tests/temp_folder.h"
#include "worker/model/chat_template.h"
#include "worker/model/model_config.h"
#include "worker/model/safetensors.h"
#include "worker/model/tokenizer.h"

namespace allot {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

const std::string kModel = ALLOT_SOURCE_DIR "/experiments/models/recall-7m";

// Deep enough to end any recursion's stack, in a file of a few MB.
std::string deep(size_t levels = 1'900'000) {
  return std::string(levels, '[') + std::string(levels, ']');
}

// The JSON of an object whose member `key` is replaced by `value`.
std::string with(const std::string& object, const std::string& key, const std::string& value) {
  json fields = json::parse(object);
  fields[key] = "@here@";
  std::string text = fields.dump();
  const std::string mark = "\"@here@\"";
  return text.replace(text.find(mark), mark.size(), value);
}

template <typename T>
std::string errorOf(const Result<T>& result) {
  if (result.has_value()) return "taken";
  EXPECT_EQ(result.error().code, ErrorCode::kUsage);
  return result.error().message;
}

testing::Matcher<std::string> tooDeep(const std::string& file, const std::string& key) {
  return AllOf(HasSubstr(file), HasSubstr("\"" + key + "\""),
               HasSubstr("nested deeper than 64 levels"));
}

TEST(HostileFiles, DeepConfig) {
  for (const char* key : {"eos_token_id", "architectures", "unknown"}) {
    const TempFolder folder;
    const std::string bytes = with(readFile(kModel + "/config.json"), key, deep());
    const std::string path = folder.write("config.json", bytes);
    EXPECT_THAT(errorOf(ModelConfig::load(folder.path())), tooDeep(path, key));
  }
}

TEST(HostileFiles, DeepTokenizer) {
  const json bytes_only = json::parse(readFile(kModel + "/tokenizer.json"));
  json fallback = bytes_only;
  fallback["model"]["byte_fallback"] = true;
  for (const json& whole : {bytes_only, fallback}) {
    for (const char* key : {"normalizer", "pre_tokenizer", "decoder", "added_tokens"}) {
      const TempFolder folder;
      const std::string path =
          folder.write("tokenizer.json", with(whole.dump(), key, deep(400'000)));
      EXPECT_THAT(errorOf(Tokenizer::load(path)), tooDeep(path, key));
    }
  }
}

TEST(HostileFiles, DeepTokenizerConfig) {
  const auto tokenizer = valueOf(Tokenizer::load(kModel + "/tokenizer.json"));
  const TempFolder folder;
  const std::string path =
      folder.write("tokenizer_config.json", with("{}", "chat_template", deep()));
  EXPECT_THAT(errorOf(ChatTemplate::choose("auto", folder.path(), tokenizer)),
              tooDeep(path, "chat_template"));
}

TEST(HostileFiles, DeepSafetensors) {
  const TempFolder folder;
  const std::string header = with("{}", "weight", deep());
  const uint64_t size = header.size();
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  const std::string path = folder.write("model.safetensors", bytes + header);
  EXPECT_THAT(errorOf(Safetensors::open(folder.path())), tooDeep(path, "weight"));

  const TempFolder other;
  const std::string index =
      other.write("model.safetensors.index.json", with("{}", "weight_map", deep()));
  EXPECT_THAT(errorOf(Safetensors::open(other.path())), tooDeep(index, "weight_map"));
}

// Brackets within texts are no levels, and what a model folder has is far from the limit.
TEST(HostileFiles, DeepTextIsNoDeepFile) {
  const TempFolder folder;
  folder.write("config.json",
               with(readFile(kModel + "/config.json"), "comment",
                    json(std::string(1000, '[') + "\"\\" + std::string(99, '{')).dump()));
  EXPECT_TRUE(ModelConfig::load(folder.path()).has_value());
  folder.write("config.json", with(readFile(kModel + "/config.json"), "comment", deep(63)));
  EXPECT_TRUE(ModelConfig::load(folder.path()).has_value());
}

TEST(HostileFiles, WidthsThatTheKernelsDoNotTake) {
  const TempFolder folder;
  const std::string path =
      folder.write("config.json", with(readFile(kModel + "/config.json"), "hidden_size", "72"));
  EXPECT_THAT(errorOf(ModelConfig::load(folder.path())),
              AllOf(HasSubstr("config.json: hidden_size: 72"), HasSubstr("multiple of 16")));
}

}  // namespace
}  // namespace allot
