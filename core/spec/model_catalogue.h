#pragma once
// The catalogue of models: the architectures of model folders, and the chat templates of
// instruction-tuned models. The code that reads and runs models is in worker/model. Constants and
// pure functions, any thread.
#include <string>
#include <string_view>
#include <vector>

namespace allot {

struct ArchitectureInfo {
  std::string_view name;    // of config.json's "architectures"
  std::string_view gguf;    // general.architecture of a GGUF file; "": GGUF files are refused
  std::string_view models;  // examples
  std::string_view special;
};

struct ChatTemplateInfo {
  std::string_view name;  // a value of spec.model.chatTemplate
  std::string_view models;
  std::string_view special;
};

const std::vector<ArchitectureInfo>& architectureCatalogue();
const std::vector<ChatTemplateInfo>& chatTemplateCatalogue();

std::vector<std::string> architectureNames();
// Returns the values of spec.model.chatTemplate: auto, none and the names of the catalogue.
std::vector<std::string> chatTemplateChoices();

// Return the tables that docs/models.md has at its marks "models" and "chat templates".
std::string architecturesMarkdown();
std::string chatTemplatesMarkdown();

}  // namespace allot
