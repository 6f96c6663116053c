#include "worker/model/tokenizer.h"

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "tests/results.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kModelFolder = ALLOT_SOURCE_DIR "/experiments/models/recall-7m/";

json readJson(const std::string& path) {
  std::ifstream file(path);
  json value = json::parse(file, nullptr, false);
  EXPECT_FALSE(value.is_discarded()) << path;
  return value;
}

// The tokenizers of tests/golden/tokenizer_cases.json, which share one vocabulary. The variable is
// for a larger file (see make_tokenizer_cases.py).
const json& golden() {
  static const json kGolden = [] {
    const char* other = std::getenv("ALLOT_TOKENIZER_CASES");
    return readJson(other != nullptr ? other
                                     : ALLOT_SOURCE_DIR "/tests/golden/tokenizer_cases.json");
  }();
  return kGolden;
}

// A golden case's tokenizer.json.
json fileOfCase(const json& golden_case) {
  json file = golden_case["tokenizer"];
  json model = golden()["model"];
  model["ignore_merges"] = file["model"]["ignore_merges"];
  if (file["model"]["merges_as_strings"] == true) {
    for (json& merge : model["merges"]) {
      merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    }
  }
  const json renamed = file["model"].value("renamed", json::object());
  for (const auto& [from, to] : renamed.items()) {
    model["vocab"][to.get<std::string>()] = model["vocab"][from];
    model["vocab"].erase(from);
  }
  file["model"] = model;
  return file;
}

json fileOf(const std::string& name) {
  for (const json& golden_case : golden()["cases"]) {
    if (golden_case["name"] == name) return fileOfCase(golden_case);
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

Result<Tokenizer> load(const json& file) {
  const TempFolder folder;
  return Tokenizer::load(folder.write("tokenizer.json", file.dump()));
}

std::string errorOf(const json& file) {
  const Result<Tokenizer> loaded = load(file);
  if (loaded.has_value()) return "loaded";
  EXPECT_EQ(loaded.error().code, ErrorCode::kUsage);
  return loaded.error().message;
}

TEST(Tokenizer, RecallGoldenIdsAndRoundTrip) {
  const auto tokenizer = valueOf(Tokenizer::load(std::string(kModelFolder) + "tokenizer.json"));
  const json cases = readJson(std::string(kModelFolder) + "golden.json")["tokenizer"];
  ASSERT_GE(cases.size(), 5u);
  for (const json& item : cases) {
    const auto text = item["text"].get<std::string>();
    const auto ids = item["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(text), ids) << text;
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
  EXPECT_EQ(tokenizer.vocabSize(), 1024u);
  EXPECT_EQ(tokenizer.idOf("<|eos|>"), 1);
  EXPECT_EQ(tokenizer.idOf("no such token"), std::nullopt);
}

// How many different texts a golden case has.
size_t textsOf(const json& golden_case) {
  std::set<std::string> texts;
  for (const json& item : golden_case["texts"]) texts.insert(item[0].get<std::string>());
  return texts.size();
}

TEST(Tokenizer, MatchesHuggingFaceOnEveryVariant) {
  ASSERT_GE(golden()["cases"].size(), 22u);
  const std::set<std::string> kFamilies = {"llama3", "qwen2-nfc", "smollm2"};
  size_t families = 0;
  for (const json& golden_case : golden()["cases"]) {
    SCOPED_TRACE(golden_case["name"].get<std::string>());
    const auto tokenizer = valueOf(load(fileOfCase(golden_case)));
    for (const json& item : golden_case["texts"]) {
      EXPECT_EQ(tokenizer.encode(item[0].get<std::string>()), item[1].get<std::vector<int32_t>>())
          << item[0];
    }
    if (kFamilies.contains(golden_case["name"])) {
      EXPECT_GE(textsOf(golden_case), 200u);
      ++families;
    }
  }
  EXPECT_EQ(families, kFamilies.size());
}

// Tokenizers with byte fallback, as Llama-2's and Mistral's (make_metaspace_cases.py).
const json& metaspaceGolden() {
  static const json kGolden = readJson(ALLOT_SOURCE_DIR "/tests/golden/metaspace_cases.json");
  return kGolden;
}

json metaspaceFile(const json& golden_case) {
  json file = golden_case["tokenizer"];
  file["model"] = metaspaceGolden()["model"];
  return file;
}

TEST(Tokenizer, MatchesHuggingFaceOnByteFallback) {
  ASSERT_EQ(metaspaceGolden()["cases"].size(), 5u);
  for (const json& golden_case : metaspaceGolden()["cases"]) {
    SCOPED_TRACE(golden_case["name"].get<std::string>());
    const auto tokenizer = valueOf(load(metaspaceFile(golden_case)));
    for (const json& item : golden_case["texts"]) {
      const auto ids = item[1].get<std::vector<int32_t>>();
      EXPECT_EQ(tokenizer.encode(item[0].get<std::string>()), ids) << item[0];
      EXPECT_EQ(tokenizer.decode(ids), item[2].get<std::string>()) << item[0];
    }
    const bool family = golden_case["name"] == "llama2" || golden_case["name"] == "mistral";
    EXPECT_GE(textsOf(golden_case), family ? 200u : 70u);
  }
}

// Normalised tokens, tokens that take blanks, single words (make_added_token_cases.py).
TEST(Tokenizer, MatchesHuggingFaceOnAddedTokens) {
  const json cases = readJson(ALLOT_SOURCE_DIR "/tests/golden/added_token_cases.json");
  ASSERT_EQ(cases.size(), 6u);
  for (const json& added_case : cases) {
    const auto name = added_case["case"].get<std::string>();
    SCOPED_TRACE(name);
    const json& of_file = metaspaceGolden()["cases"];
    const auto found = std::find_if(of_file.begin(), of_file.end(),
                                    [&](const json& one) { return one["name"] == name; });
    json file = found == of_file.end() ? fileOf(name) : metaspaceFile(*found);
    file["added_tokens"] = added_case["added_tokens"];
    const auto tokenizer = valueOf(load(file));
    EXPECT_GE(textsOf(added_case), 90u);
    for (const json& item : added_case["texts"]) {
      EXPECT_EQ(tokenizer.encode(item[0].get<std::string>()), item[1].get<std::vector<int32_t>>())
          << item[0];
    }
  }
}

TEST(Tokenizer, ByteFallbackKeepsBytesThatAreNotText) {
  const auto tokenizer = valueOf(load(metaspaceFile(metaspaceGolden()["cases"][0])));
  const std::string bytes = "the \xc3 rain\xff\xe2\x96";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes)), bytes);
}

TEST(Tokenizer, RefusesBadPartsOfByteFallback) {
  struct Bad {
    const char* pointer;
    const char* value;
    const char* message;
  };
  const Bad kBad[] = {
      {"/model/vocab", R"({"<0x00>": 0})", "no token for byte 0x01 (\"<0x01>\")"},
      {"/model/byte_fallback", "1", "byte_fallback: 1 is not true or false"},
      {"/normalizer", "null", "neither normalizer nor pre_tokenizer writes spaces as U+2581"},
      {"/normalizer", R"({"type": "NFKC"})", "normalizer type \"NFKC\" is not supported"},
      {"/normalizer/normalizers/1/content", R"("_")", "normalizer type \"Replace\""},
      {"/pre_tokenizer", R"({"type": "ByteLevel"})", "pre_tokenizer type \"ByteLevel\""},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "\u2581"})", "no normalizer"},
      {"/decoder/decoders/3/start", "2", "decoder type \"Strip\" is not supported here"},
      {"/decoder", R"({"type": "Metaspace"})", "decoder type \"Metaspace\""},
  };
  const json good = metaspaceFile(metaspaceGolden()["cases"][0]);
  ASSERT_EQ(errorOf(good), "loaded");
  for (const Bad& bad : kBad) {
    json file = good;
    file[json::json_pointer(bad.pointer)] = json::parse(bad.value);
    EXPECT_THAT(errorOf(file), HasSubstr(bad.message)) << bad.pointer << " = " << bad.value;
  }
  json file = metaspaceFile(metaspaceGolden()["cases"][2]);
  file["pre_tokenizer"]["prepend_scheme"] = "last";
  EXPECT_THAT(errorOf(file), HasSubstr("prepend_scheme: \"last\" is not supported"));
}

TEST(Tokenizer, DecodeGivesBackAnyBytes) {
  std::mt19937 random(7);
  for (const char* name : {"llama3", "qwen2", "gpt2", "digits", "whole"}) {
    const auto tokenizer = valueOf(load(fileOf(name)));
    for (int i = 0; i < 300; ++i) {
      std::string bytes(random() % 40, '\0');
      for (char& byte : bytes) {
        // Mostly lead and continuation bytes and white space: broken and whole characters.
        const unsigned kind = random() % 4;
        byte = static_cast<char>(kind == 0   ? random() % 256
                                 : kind == 1 ? 0x20
                                             : 0xbe + random() % 64);
      }
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes), false), bytes) << name;
    }
  }
}

TEST(Tokenizer, BrokenUtf8LeavesTheTextAroundItAlone) {
  const auto tokenizer = valueOf(load(fileOf("llama3")));
  std::vector<int32_t> expected = tokenizer.encode("the rain");
  expected.push_back(*tokenizer.idOf("Ã"));  // byte 0xc3, which begins a character
  for (const int32_t id : tokenizer.encode(" the<|eot|>")) expected.push_back(id);
  EXPECT_EQ(tokenizer.encode("the rain\xc3 the<|eot|>"), expected);
}

TEST(Tokenizer, SkipsSpecialTokensOnlyWhenAsked) {
  const auto tokenizer = valueOf(load(fileOf("qwen2")));
  const std::vector<int32_t> ids = tokenizer.encode("a<|eot|>b<tool>c");
  EXPECT_EQ(ids.size(), 5u);
  EXPECT_EQ(tokenizer.decode(ids), "ab<tool>c");
  EXPECT_EQ(tokenizer.decode(ids, false), "a<|eot|>b<tool>c");
  EXPECT_EQ(tokenizer.decode({-1, 1 << 30, ids[0]}), "a");  // ids that no token has
}

// Half a million bytes in one piece: seconds if merging were quadratic, minutes in a debug build.
TEST(Tokenizer, OneLongPiece) {
  json file = fileOf("whole");
  const auto tokenizer = valueOf(load(file));
  std::string text;
  while (text.size() < (1u << 19)) text += "the rain in the town is on the other line";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  // A long run of spaces before a letter makes the patterns look back.
  const auto llama = valueOf(load(fileOf("llama3")));
  const std::string spaces = std::string(200000, ' ') + "the";
  const std::vector<int32_t> ids = llama.encode(spaces);
  EXPECT_EQ(llama.decode(ids), spaces);
  EXPECT_EQ(ids.back(), llama.encode(" the").back());
}

TEST(Tokenizer, ComposesWhereTheFileSaysNfc) {
  json file = fileOf("qwen2");
  const auto plain = load(file);
  file["normalizer"] = {{"type", "NFC"}};
  const auto composing = load(file);
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  const auto sequence = load(file);
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  const auto empty = load(file);
  ASSERT_TRUE(plain && composing && sequence && empty);
  const std::string apart = "the cafe\u0301 e\u0323\u0302<|eot|>\u0301",
                    whole = "the café ệ<|eot|>\u0301";
  EXPECT_EQ(composing->encode(apart), plain->encode(whole));
  EXPECT_EQ(sequence->encode(apart), plain->encode(whole));
  EXPECT_EQ(empty->encode(apart), plain->encode(apart));
  EXPECT_NE(plain->encode(apart), plain->encode(whole));
  // Bytes that are not text keep the characters around them apart.
  const std::string broken = "e\xff\u0301\xc3";
  EXPECT_EQ(composing->decode(composing->encode(broken)), broken);
  // Marks in the worst order: hours if putting them in order were quadratic.
  std::string marks = "a";
  for (int i = 0; i < 200000; ++i) marks += i % 2 == 0 ? "\u0323" : "\u0316\u0301";
  EXPECT_FALSE(composing->encode(marks).empty());
}

// Hugging Face's `tokenizers` 0.23 leaves such bytes out, or writes unk_token.
TEST(Tokenizer, BytesThatTheVocabularyLacks) {
  json file = fileOf("gpt2");
  file.erase("added_tokens");  // whose ids follow the size of the vocabulary
  const auto whole = valueOf(load(file));
  json& vocab = file["model"]["vocab"];
  vocab.erase("\u0104");  // byte 0x04
  vocab.erase("\u0106");  // byte 0x06
  const auto lacking = load(file);
  const int unknown = 5;
  file["model"]["unk_token"] = vocab.items().begin().key();
  vocab[vocab.items().begin().key()] = unknown;
  for (auto& [token, id] : vocab.items()) {
    if (id == unknown && file["model"]["unk_token"].get<std::string>() != token)
      vocab[token] = 1 << 20;
  }
  const auto named = load(file);
  file["model"]["fuse_unk"] = true;
  const auto fused = load(file);
  ASSERT_TRUE(lacking.has_value() && named.has_value() && fused.has_value());
  std::vector<int32_t> expected = whole.encode("the");
  const std::vector<int32_t> rest = whole.encode(" rain");
  const auto with = [&](std::vector<int32_t> between) {
    std::vector<int32_t> ids = expected;
    ids.insert(ids.end(), between.begin(), between.end());
    ids.insert(ids.end(), rest.begin(), rest.end());
    return ids;
  };
  EXPECT_EQ(lacking->encode("the\x04\x06 rain"), with({}));
  EXPECT_EQ(named->encode("the\x04\x06 rain"), with({unknown, unknown}));
  EXPECT_EQ(fused->encode("the\x04\x06 rain"), with({unknown}));
}

TEST(Tokenizer, NamesWhatTheFileLacks) {
  const TempFolder folder;
  EXPECT_THAT(Tokenizer::load(folder.path() + "/tokenizer.json"),
              isError(ErrorCode::kUsage, StartsWith("the model folder lacks tokenizer.json: ")));
  EXPECT_THAT(Tokenizer::load(folder.write("tokenizer.json", "{\"model\": ")),
              isError(HasSubstr("is not JSON")));
  EXPECT_FALSE(Tokenizer::load(folder.path()).has_value());

  EXPECT_THAT(errorOf(json::array()), HasSubstr("is not a JSON object"));
  EXPECT_THAT(errorOf(json::object()), HasSubstr("model is missing"));
  json file = fileOf("gpt2");
  file["model"].erase("merges");
  EXPECT_THAT(errorOf(file), HasSubstr("has no merges"));
  file["model"].erase("vocab");
  EXPECT_THAT(errorOf(file), HasSubstr("has no vocab"));
  file["model"]["type"] = "Unigram";
  EXPECT_THAT(errorOf(file), HasSubstr("model type \"Unigram\" is not supported"));
}

struct BadFile {
  const char* pointer;  // what is replaced in the file of case gpt2
  const char* value;
  const char* message;
};

TEST(Tokenizer, RefusesBadParts) {
  const BadFile kBad[] = {
      {"/model/vocab/!", "-1", "the id of \"!\" is -1, not an integer of 0..16777215"},
      {"/model/vocab/!", "99999999999999999999", "not an integer"},
      {"/model/vocab/!", "18446744073709551615", "not an integer"},
      {"/model/vocab/!", "1.5", "not an integer"},
      {"/model/vocab/!", "5", "is the id of another token too"},
      {"/model/vocab", R"({"a": 0})", "no token for byte 0x0a (\"\\u010a\")"},
      {"/model/merges/0", R"("zq zq")", "(\"zq\", \"zq\") needs \"zq\", which is not in the vocab"},
      {"/model/merges/1", R"(["~", "~"])", "model.merges[1] (\"~\", \"~\") needs \"~~\""},
      {"/model/merges/0", R"("a b c")", "is neither"},
      {"/model/merges/0", R"(["a"])", "is neither"},
      {"/model/merges/0", "7", "model.merges[0]: 7 is neither"},
      {"/model/end_of_word_suffix", R"("</w>")", "model.end_of_word_suffix: \"</w>\""},
      {"/model/dropout", "0.1", "model.dropout: 0.1 is not supported"},
      {"/model/ignore_merges", "1", "ignore_merges: 1 is not true or false"},
      {"/pre_tokenizer", R"({"type": "Metaspace"})",
       "type \"Metaspace\" is not supported; supported: Sequence, Split, Digits, ByteLevel"},
      {"/pre_tokenizer", "null", "pre_tokenizer has no ByteLevel step"},
      {"/pre_tokenizer", R"({"type": "Digits", "individual_digits": true})", "no ByteLevel step"},
      {"/pre_tokenizer", R"({"type": "ByteLevel"})", "ByteLevel lacks add_prefix_space"},
      {"/pre_tokenizer", R"({"type": "Split", "behavior": "Eaten"})", "behavior: \"Eaten\""},
      {"/pre_tokenizer", R"({"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "a("}})",
       "the pattern \"a(\" is not understood at byte 2: missing closing parenthesis"},
      {"/pre_tokenizer", R"({"type": "Split", "behavior": "Isolated", "pattern": "a"})",
       "pattern must be"},
      {"/normalizer", R"({"type": "Lowercase"})", "normalizer type \"Lowercase\""},
      {"/decoder", R"({"type": "Metaspace"})", "decoder type \"Metaspace\""},
      {"/added_tokens/0/id", "0", "id 0 is the id of another token too"},
      {"/added_tokens/0/id", "9000", " has id 9000, but would become the next one, "},
      {"/added_tokens/0/id", "-5", "id: -5; must be an integer"},
      {"/added_tokens/0/content", R"("")", "lacks content"},
      {"/added_tokens/1/content", R"("<tool>")", "\"<tool>\" is there twice"},
      {"/added_tokens/0/content", R"("!")", "but "},
      {"/added_tokens/0/lstrip", "1", "lstrip: 1 is not true or false"},
      {"/added_tokens", "{}", "added_tokens is not a list"},
  };
  const json good = fileOf("gpt2");
  ASSERT_EQ(errorOf(good), "loaded");
  for (const BadFile& bad : kBad) {
    json file = good;
    file[json::json_pointer(bad.pointer)] = json::parse(bad.value);
    EXPECT_THAT(errorOf(file), HasSubstr(bad.message)) << bad.pointer << " = " << bad.value;
  }
}

TEST(Tokenizer, RefusesADeepSequence) {
  json file = fileOf("gpt2");
  for (int i = 0; i < 20; ++i) {
    file["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers", json::array({file["pre_tokenizer"]})}};
  }
  EXPECT_THAT(errorOf(file), HasSubstr("nested too deeply"));
}

// What means another thing in PCRE2 than in Oniguruma is refused, and only that.
TEST(Tokenizer, RefusesPatternsThatWouldMeanAnotherThing) {
  const auto withPattern = [](const char* pattern) {
    json file = fileOf("gpt2");
    const json split = {
        {"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", pattern}}}};
    file["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers", json::array({split, file["pre_tokenizer"]})}};
    return errorOf(file);
  };
  EXPECT_THAT(withPattern(R"(\w+)"), HasSubstr(R"(uses "\\w", which is not supported)"));
  EXPECT_THAT(withPattern(R"(a[^\W\d])"), HasSubstr(R"(uses "\\W")"));
  EXPECT_THAT(withPattern(" ?[^(\\s|[.,!?])]+"), HasSubstr("uses \"[\""));  // BLOOM's
  EXPECT_THAT(withPattern("[a-z&&a-f]"), HasSubstr("uses \"&&\""));
  EXPECT_THAT(withPattern("(?m:.)"), HasSubstr("uses \"(?m\""));
  // DeepSeek's and GPT-4o's classes; an escaped backslash before a letter.
  EXPECT_EQ(withPattern(R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[\p{L}\p{M}]+)"),
            "loaded");
  EXPECT_EQ(withPattern(R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}]*(?i:'s|'t)?|[\r\n/]*)"), "loaded");
  EXPECT_EQ(withPattern(R"(\\w|[]a]b&&c)"), "loaded");
}

// A pattern of exponential cost ends at PCRE2's limit, and the text is still tokenised.
TEST(Tokenizer, SurvivesAnExponentialPattern) {
  json file = fileOf("gpt2");
  const json split = {
      {"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "(a+)+$|(?:aa|a)+?!"}}}};
  file["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", json::array({split, file["pre_tokenizer"]})}};
  const auto tokenizer = valueOf(load(file));
  const std::string text = std::string(60, 'a') + "b";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

// Damaged files are refused or work; a crash or a sanitizer's finding fails the test.
TEST(Tokenizer, DamagedFiles) {
  const std::string good[] = {fileOf("llama3").dump(),
                              metaspaceFile(metaspaceGolden()["cases"][2]).dump()};
  std::mt19937 random(7);
  const TempFolder folder;
  for (int i = 0; i < 600; ++i) {
    std::string bytes = good[i % 2];
    for (int change = 0; change < 3; ++change) {
      bytes[random() % bytes.size()] = "\"{}[],:0-1a\\x"[random() % 13];
    }
    if (i % 5 == 0) bytes.resize(random() % bytes.size());
    const auto tokenizer = Tokenizer::load(folder.write("tokenizer.json", bytes));
    if (tokenizer.has_value()) tokenizer->encode("the rain in 1234 towns, isn't it?<|eot|>\n\xff");
  }
}

}  // namespace
}  // namespace allot
