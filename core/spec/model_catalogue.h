#pragma once
// The catalogue of models: which architectures a model folder can be of, and in which turns an
// instruction-tuned model can be asked. Without the code that reads or runs them (worker/model), so
// that the spec's check, the command line and the documents can speak of them; tests of
// worker/model hold the two together. Constants and pure functions, any thread.
#include <string>
#include <string_view>
#include <vector>

namespace allot {

struct ArchitectureInfo {
  std::string_view name;    // of config.json's "architectures"
  std::string_view gguf;    // general.architecture of a GGUF file; "": not from GGUF
  std::string_view models;  // for example
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
// The values of spec.model.chatTemplate: auto, none and all of the catalogue.
std::vector<std::string> chatTemplateChoices();

// The tables of docs/models.md, between its marks "models" and "chat templates".
std::string architecturesMarkdown();
std::string chatTemplatesMarkdown();

}  // namespace allot
