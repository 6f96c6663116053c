#include "worker/model/model_config.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/spec/model_catalogue.h"
#include "tests/results.h"
#include "tests/temp_folder.h"
#include "worker/model/model_digest.h"

namespace allot {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Needs no optional key.
json minimal() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 1000},
          {"hidden_size", 512},
          {"intermediate_size", 1024},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 8},
          {"max_position_embeddings", 4096},
          {"rms_norm_eps", 1e-6}};
}

Result<ModelConfig> load(const json& value) {
  const TempFolder folder;
  folder.write("config.json", value.dump());
  return ModelConfig::load(folder.path());
}

std::string errorOf(const json& value) {
  const auto config = load(value);
  if (config.has_value()) return "loaded";
  EXPECT_EQ(config.error().code, ErrorCode::kUsage);
  return config.error().message;
}

TEST(ModelConfig, Recall7m) {
  const auto config = valueOf(ModelConfig::load(ALLOT_SOURCE_DIR "/experiments/models/recall-7m"));
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.vocab_size, 1024);
  EXPECT_EQ(config.hidden_size, 256);
  EXPECT_EQ(config.intermediate_size, 640);
  EXPECT_EQ(config.layers, 8);
  EXPECT_EQ(config.heads, 8);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 64);  // not hidden_size / heads, which is 32
  EXPECT_EQ(config.rms_norm_eps, 1e-5f);
  EXPECT_EQ(config.rope_theta, 500000.0f);
  EXPECT_EQ(config.max_positions, 8192);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_THAT(config.eos_tokens, ElementsAre(1));
}

// Weights alone are not the model: another rotation or other end tokens give other answers.
TEST(ModelDigest, IsOfTheConfigurationAndTheTokenizer) {
  namespace fs = std::filesystem;
  const fs::path model = ALLOT_SOURCE_DIR "/experiments/models/recall-7m";
  const auto digestWith = [&](const std::string& file, const std::string& from,
                              const std::string& to) {
    const TempFolder folder;
    for (const auto& entry : fs::directory_iterator(model)) {
      if (entry.path().extension() == ".json") {
        fs::copy(entry.path(), fs::path(folder.path()) / entry.path().filename());
      }
    }
    if (!file.empty()) {
      std::string text = readFile(folder.path() + "/" + file);
      const size_t at = text.find(from);
      EXPECT_NE(at, std::string::npos) << from;
      folder.write(file, text.replace(at, from.size(), to));
    }
    const ModelConfig config = valueOf(ModelConfig::load(folder.path()));
    return valueOf(
        modelDigest(folder.path(), config, valueOf(Tokenizer::load(tokenizerPath(folder.path())))));
  };
  const std::string digest = digestWith("", "", "");
  EXPECT_EQ(digest.size(), 64u);
  EXPECT_EQ(digestWith("", "", ""), digest);
  EXPECT_EQ(digestWith("config.json", "{", "{ \"transformers_version\": \"0\","), digest);
  EXPECT_NE(digestWith("config.json", "500000", "400000"), digest);
  EXPECT_NE(digestWith("config.json", "1e-05", "3e-3"), digest);
  EXPECT_NE(digestWith("config.json", "\"eos_token_id\": 1", "\"eos_token_id\": 2"), digest);
  EXPECT_NE(digestWith("tokenizer.json", "{", "{ "), digest);
}

TEST(ModelConfig, DefaultsAreHuggingFaces) {
  json value = minimal();
  value["rope_scaling"] = nullptr;
  const auto config = valueOf(load(value));
  EXPECT_EQ(config.kv_heads, 8);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.rope_theta, 10000.0f);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_THAT(config.eos_tokens, IsEmpty());
}

TEST(ModelConfig, ListsAndNewerKeys) {
  json value = minimal();
  value["eos_token_id"] = {7, 999};
  value["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 250000}};
  const auto config = valueOf(load(value));
  EXPECT_THAT(config.eos_tokens, ElementsAre(7, 999));
  EXPECT_EQ(config.rope_theta, 250000.0f);
}

// As Llama-3.1's, but for what `other` says.
json llama3(const json& other = json::object()) {
  json value = {{"rope_type", "llama3"},   {"rope_theta", 500000.0},
                {"factor", 8.0},           {"low_freq_factor", 1.0},
                {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
  value.update(other);
  return value;
}

TEST(ModelConfig, ScaledPositions) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    json value = minimal();
    value[key] = llama3();
    value["rope_theta"] = 500000.0;
    const auto config = valueOf(load(value));
    EXPECT_EQ(config.rope_theta, 500000.0f);
    EXPECT_EQ(config.rope_scaling.factor, 8.0f);
    EXPECT_EQ(config.rope_scaling.low_frequency, 1.0f);
    EXPECT_EQ(config.rope_scaling.high_frequency, 4.0f);
    EXPECT_EQ(config.rope_scaling.original_positions, 8192);
  }
  EXPECT_EQ(load(minimal())->rope_scaling.factor, 1.0f);
}

TEST(ModelConfig, ScaledByFactorsOrYarn) {
  using Kind = RopeScaling::Kind;
  json value = minimal();
  value["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  EXPECT_EQ(load(value)->rope_scaling.kind, Kind::kLinear);
  EXPECT_EQ(load(value)->rope_scaling.factor, 2.0f);
  EXPECT_EQ(load(value)->max_positions, 4096);
  // Positions grow by the factor unless the file has them so already.
  value["rope_scaling"] = {
      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 4096}};
  const ModelConfig yarn = valueOf(load(value));
  EXPECT_EQ(yarn.rope_scaling.kind, Kind::kYarn);
  EXPECT_EQ(yarn.rope_scaling.low_frequency, 1.0f);
  EXPECT_EQ(yarn.rope_scaling.high_frequency, 32.0f);
  EXPECT_NEAR(yarn.rope_scaling.magnitude, 0.1 * std::log(4.0) + 1, 1e-6);
  EXPECT_EQ(yarn.max_positions, 4 * 4096);
  value["rope_scaling"]["original_max_position_embeddings"] = 512;
  EXPECT_EQ(load(value)->max_positions, 4096);
  value["rope_scaling"]["factor"] = nullptr;
  EXPECT_EQ(load(value)->rope_scaling.factor, 8.0f);
  value["rope_scaling"]["mscale"] = 1.0;
  value["rope_scaling"]["mscale_all_dim"] = 0.5;
  EXPECT_NEAR(load(value)->rope_scaling.magnitude,
              (0.1 * std::log(8.0) + 1) / (0.05 * std::log(8.0) + 1), 1e-6);
  value["rope_scaling"]["attention_factor"] = 1.5;
  value["rope_scaling"]["truncate"] = false;
  value["original_max_position_embeddings"] = 1024;  // which transformers prefers
  const ModelConfig other = valueOf(load(value));
  EXPECT_EQ(other.rope_scaling.magnitude, 1.5f);
  EXPECT_FALSE(other.rope_scaling.whole_channels);
  EXPECT_EQ(other.rope_scaling.original_positions, 1024);
}

TEST(ModelConfig, LayersWithoutPositions) {
  json value = minimal();
  value["num_hidden_layers"] = 5;
  value["no_rope_layers"] = {0, 0, 0, 0, 0};  // says nothing for a Llama
  EXPECT_THAT(load(value)->unrotated, IsEmpty());
  value["architectures"] = {"SmolLM3ForCausalLM"};
  EXPECT_THAT(load(value)->unrotated, ElementsAre(true, true, true, true, true));
  value["no_rope_layers"] = nullptr;
  const ModelConfig config = valueOf(load(value));
  EXPECT_THAT(config.unrotated, ElementsAre(false, false, false, true, false));
  EXPECT_FALSE(config.rotates(3));
  EXPECT_TRUE(config.rotates(4));
  EXPECT_EQ(config.rope_theta, 2e6f);
  EXPECT_TRUE(config.tied_embeddings);
  value["no_rope_layer_interval"] = 2;
  EXPECT_THAT(load(value)->unrotated, ElementsAre(false, true, false, true, false));
  value["no_rope_layers"] = {1, 1, 1, 0};
  EXPECT_EQ(errorOf(value),
            "config.json: no_rope_layers: an array is not a list of 0 or 1 for each of 5 layers");
}

TEST(ModelConfig, EndTokensOfGeneration) {
  json value = minimal();
  value["eos_token_id"] = 1;
  const TempFolder folder;
  folder.write("config.json", value.dump());
  const auto ends = [&](const char* generation) {
    folder.write("generation_config.json", generation);
    return valueOf(ModelConfig::load(folder.path())).eos_tokens;
  };
  EXPECT_THAT(ends(R"({"eos_token_id": [1, 2], "temperature": 0.6})"), ElementsAre(1, 2));
  EXPECT_THAT(ends(R"({"eos_token_id": 7})"), ElementsAre(7));
  EXPECT_THAT(ends(R"({"bos_token_id": 7})"), ElementsAre(1));
  folder.write("generation_config.json", R"({"eos_token_id": 1000})");
  EXPECT_THAT(
      ModelConfig::load(folder.path()),
      isError(HasSubstr("generation_config.json: eos_token_id: 1000 is not a token id of")));
  for (const auto& [text, message] :
       {std::pair{R"({"eos_token_id": []})",
                  "generation_config.json: eos_token_id: the list is empty; name the tokens, or "
                  "remove the key"},
        {"[]", "generation_config.json is not a JSON object"}}) {
    folder.write("generation_config.json", text);
    EXPECT_THAT(ModelConfig::load(folder.path()), isError(message));
  }
  folder.write("generation_config.json", "{");
  EXPECT_THAT(ModelConfig::load(folder.path()), isError(HasSubstr("is not JSON")));
}

TEST(ModelConfig, Families) {
  json value = minimal();
  EXPECT_FALSE(load(value)->qkv_bias);
  value["sliding_window"] = 4096;  // says nothing for a Llama
  EXPECT_EQ(load(value)->sliding_window, 0);
  value["architectures"] = {"MistralForCausalLM"};
  EXPECT_EQ(load(value)->sliding_window, 4096);
  value["sliding_window"] = 0;
  EXPECT_EQ(errorOf(value), "config.json: sliding_window: 0 is out of range 1..67108864");
  value["sliding_window"] = nullptr;
  EXPECT_EQ(load(value)->sliding_window, 0);
  value["architectures"] = {"Qwen2ForCausalLM"};
  value["sliding_window"] = 32768;
  value["use_sliding_window"] = false;
  EXPECT_TRUE(load(value)->qkv_bias);
  EXPECT_EQ(load(value)->sliding_window, 0);
  value["use_sliding_window"] = true;
  EXPECT_EQ(errorOf(value),
            "config.json: use_sliding_window: true is not supported for Qwen2; only models that "
            "attend to all keys are");
  value["architectures"] = {"Qwen3ForCausalLM"};
  EXPECT_EQ(errorOf(value),
            "config.json: use_sliding_window: true is not supported for Qwen3; only models that "
            "attend to all keys are");
}

TEST(ModelConfig, Qwen3sHeadsHave128ChannelsUnlessItSaysOtherwise) {
  json value = minimal();
  EXPECT_FALSE(load(value)->qk_norm);
  EXPECT_EQ(load(value)->head_dim, 64);  // hidden / heads
  value["architectures"] = {"Qwen3ForCausalLM"};
  EXPECT_TRUE(load(value)->qk_norm);
  EXPECT_FALSE(load(value)->qkv_bias);
  EXPECT_EQ(load(value)->head_dim, 128);
  value["num_attention_heads"] = 7;  // which need not divide the hidden size
  value["num_key_value_heads"] = 7;
  EXPECT_EQ(load(value)->head_dim, 128);
  value["head_dim"] = 64;
  EXPECT_EQ(load(value)->head_dim, 64);
  value["head_dim"] = 96;
  EXPECT_EQ(errorOf(value),
            "config.json: head_dim: 96 is not supported by the attention kernels; supported: 64, "
            "128");
  value["head_dim"] = nullptr;
  value["attention_bias"] = true;
  EXPECT_EQ(errorOf(value),
            "config.json: attention_bias: true is not supported; only layers without biases are");
}

TEST(ModelConfig, EveryArchitectureOfTheCatalogueLoadsAndNoOther) {
  for (const std::string& name : architectureNames()) {
    json value = minimal();
    value["architectures"] = {name};
    EXPECT_EQ(valueOf(load(value)).architecture, name);
  }
  json value = minimal();
  value["architectures"] = {"Qwen3MoeForCausalLM"};
  EXPECT_EQ(errorOf(value),
            "config.json: architecture \"Qwen3MoeForCausalLM\" is not supported; supported: "
            "LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, MistralForCausalLM, "
            "SmolLM3ForCausalLM");
}

TEST(ModelConfig, NamesMissingKeysAndFiles) {
  const json all = minimal();
  for (const auto& [key, unused] : all.items()) {
    json value = all;
    value.erase(key);
    EXPECT_EQ(errorOf(value), "config.json lacks " + key);
  }
  const TempFolder folder;
  EXPECT_THAT(ModelConfig::load(folder.path()),
              isError(HasSubstr("the model folder lacks config.json: ")));
  folder.write("config.json", "{");
  EXPECT_THAT(ModelConfig::load(folder.path()).error().message, HasSubstr("is not JSON"));
  EXPECT_THAT(errorOf(json::array()), HasSubstr("is not a JSON object"));
}

TEST(ModelConfig, RefusesByName) {
  struct Bad {
    const char* key;
    json value;
    const char* message;
  };
  const Bad kBad[] = {
      {"architectures", json::array({"GPT2LMHeadModel"}),
       "config.json: architecture \"GPT2LMHeadModel\" is not supported; supported: "
       "LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, MistralForCausalLM, "
       "SmolLM3ForCausalLM"},
      {"architectures", "LlamaForCausalLM",
       "config.json: architectures must be a list of one name; supported: LlamaForCausalLM, "
       "Qwen2ForCausalLM, Qwen3ForCausalLM, MistralForCausalLM, SmolLM3ForCausalLM"},
      {"vocab_size", 0, "config.json: vocab_size: 0 is out of range 1..16777216"},
      {"vocab_size", uint64_t{1} << 63,
       "config.json: vocab_size: 9223372036854775808 is out of range 1..16777216"},
      {"hidden_size", -512, "config.json: hidden_size: -512 is out of range 1..65536"},
      {"hidden_size", 512.0, "config.json: hidden_size: 512.0 is not an integer"},
      {"num_hidden_layers", "2", "config.json: num_hidden_layers: \"2\" is not an integer"},
      {"num_key_value_heads", 3,
       "config.json: num_attention_heads: 8 is not a multiple of num_key_value_heads: 3"},
      {"num_key_value_heads", 16, "config.json: num_key_value_heads: 16 is out of range 1..8"},
      {"num_attention_heads", 7,
       "config.json lacks head_dim, and hidden_size: 512 is not a multiple of "
       "num_attention_heads: 7"},
      {"num_attention_heads", 16,
       "config.json: head_dim: 32 is not supported by the attention kernels; supported: 64, 128"},
      {"rms_norm_eps", 0, "config.json: rms_norm_eps: 0 is not a number of 1e-12..0.1"},
      {"rms_norm_eps", "1e-5", "config.json: rms_norm_eps: \"1e-5\" is not a number of 1e-12..0.1"},
      {"rope_theta", 0.5, "config.json: rope_theta: 0.5 is not a number of 1..1e12"},
      {"rope_scaling", json{{"type", "dynamic"}, {"factor", 2}},
       "config.json: rope_scaling: rope_type \"dynamic\" is not supported; supported: "
       "\"default\", \"linear\", \"llama3\", \"yarn\""},
      {"rope_scaling", json{{"type", "linear"}}, "config.json lacks factor"},
      {"rope_scaling", json{{"rope_type", "yarn"}, {"factor", 0.5}},
       "config.json: factor: 0.5 is not a number of 1..1e6"},
      {"rope_scaling", json{{"rope_type", "yarn"}}, "config.json lacks factor"},
      {"rope_scaling", json{{"rope_type", nullptr}, {"factor", 4.0}},
       "config.json: rope_scaling: rope_type is null beside a factor; write what the factor is of, "
       "or \"default\" without it"},
      {"rope_scaling", json{{"rope_type", "yarn"}, {"factor", nullptr}, {"beta_slow", 64}},
       "config.json: rope_scaling: beta_fast must be above beta_slow"},
      {"rope_scaling", 2, "config.json: rope_scaling: 2 is not an object"},
      {"rope_scaling", json{{"rope_type", "llama3"}}, "config.json lacks factor"},
      {"rope_parameters", llama3({{"factor", 0}}),
       "config.json: factor: 0 is not a number of 1..1e6"},
      {"rope_parameters", llama3({{"high_freq_factor", 1}}),
       "config.json: rope_parameters: high_freq_factor must be above low_freq_factor"},
      {"rope_parameters", llama3({{"original_max_position_embeddings", -8}}),
       "config.json: original_max_position_embeddings: -8 is out of range 1..67108864"},
      {"hidden_act", "gelu",
       "config.json: hidden_act: \"gelu\" is not supported; supported: "
       "\"silu\""},
      {"attention_bias", true,
       "config.json: attention_bias: true is not supported; only layers without biases are"},
      {"quantization_config", json{{"quant_method", "awq"}},
       "config.json: quantization_config: quantised weights are read from GGUF files alone; name "
       "one, or the folder of the model in bfloat16, float16 or float32"},
      {"mlp_bias", 1, "config.json: mlp_bias: 1 is not true or false"},
      {"tie_word_embeddings", "yes",
       "config.json: tie_word_embeddings: \"yes\" is not true or false"},
      {"eos_token_id", json::array({1, -1}),
       "config.json: eos_token_id: -1 is not a token id of 0..999"},
      {"eos_token_id", json(std::vector<int>(65, 1)),
       "config.json: eos_token_id: more than 64 tokens"},
  };
  for (const Bad& bad : kBad) {
    json value = minimal();
    value[bad.key] = bad.value;
    EXPECT_EQ(errorOf(value), bad.message);
  }
}

}  // namespace
}  // namespace allot
