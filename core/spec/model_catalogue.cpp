#include "core/spec/model_catalogue.h"

namespace allot {
namespace {

std::string row(std::string_view name, std::string_view models, std::string_view special) {
  return "| `" + std::string(name) + "` | " + std::string(models) + " | " + std::string(special) +
         " |\n";
}

}  // namespace

const std::vector<ArchitectureInfo>& architectureCatalogue() {
  static const std::vector<ArchitectureInfo> all = {
      {"LlamaForCausalLM", "llama", "Llama 2 and 3.x, Yi, SmolLM2",
       "`rope_scaling` of types linear, llama3 and yarn, here and below"},
      {"Qwen2ForCausalLM", "qwen2", "Qwen2, Qwen2.5, DeepSeek-R1-Distill-Qwen",
       "biases of queries, keys and values; `use_sliding_window` must be false"},
      {"Qwen3ForCausalLM", "qwen3", "Qwen3",
       "norms of each head's queries and keys; `use_sliding_window` must be false"},
      {"MistralForCausalLM", "", "Mistral 7B", "`sliding_window`, where it is set"},
      {"SmolLM3ForCausalLM", "smollm3", "SmolLM3",
       "no positions in every fourth layer, or where `no_rope_layers` says; "
       "`use_sliding_window` must be false"},
  };
  return all;
}

const std::vector<ChatTemplateInfo>& chatTemplateCatalogue() {
  static const std::vector<ChatTemplateInfo> all = {
      {"llama-3", "Llama 3, 3.1, 3.2, 3.3 Instruct",
       "without the dates that 3.1 and later write into the system turn"},
      {"qwen2", "Qwen2, Qwen2.5 Instruct", "ChatML with Qwen2's default system prompt"},
      {"qwen3", "Qwen3", "ChatML without a system prompt of its own; the model thinks first"},
      {"qwen3-no-think", "Qwen3",
       "the answer begins with an empty `<think>` block, as `enable_thinking=False` has it"},
      {"deepseek", "DeepSeek-R1-Distill-Qwen and -Llama", "the answer begins with `<think>`"},
      {"mistral", "Mistral 7B Instruct v0.1 to v0.3",
       "the system prompt stands in the question's turn; its marks are plain text up to v0.2, "
       "which a question can hold as well"},
      {"chatml", "SmolLM2 Instruct", "ChatML with SmolLM2's default system prompt"},
  };
  return all;
}

std::vector<std::string> architectureNames() {
  std::vector<std::string> names;
  for (const ArchitectureInfo& info : architectureCatalogue()) names.emplace_back(info.name);
  return names;
}

std::vector<std::string> chatTemplateChoices() {
  std::vector<std::string> names = {"auto", "none", "rendered"};
  for (const ChatTemplateInfo& info : chatTemplateCatalogue()) names.emplace_back(info.name);
  return names;
}

std::string architecturesMarkdown() {
  std::string table =
      "| architecture | GGUF | models, for example | what is special |\n"
      "| --- | --- | --- | --- |\n";
  for (const ArchitectureInfo& info : architectureCatalogue()) {
    const std::string gguf = info.gguf.empty() ? "" : "`" + std::string(info.gguf) + "`";
    table += row(info.name, gguf + " | " + std::string(info.models), info.special);
  }
  return table;
}

std::string chatTemplatesMarkdown() {
  std::string table = "| template | models, for example | what is special |\n| --- | --- | --- |\n";
  for (const ChatTemplateInfo& info : chatTemplateCatalogue()) {
    table += row(info.name, info.models, info.special);
  }
  return table;
}

}  // namespace allot
