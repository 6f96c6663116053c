#include "worker/engine/profile_text.h"

#include <nlohmann/json.hpp>

namespace allot {

ProfileText::ProfileText(const ProfileKind& kind, const ProfileFacts& facts) {
  addText("kind", kind.kind);
  addText("build", facts.build);
  addText("weightsSha256", facts.weights_sha256);
  addText("task", facts.task);
  add("contextTokens", std::to_string(facts.context_tokens));
  add("prompts", std::to_string(facts.prompts));
  add("seed", std::to_string(facts.seed));
  addText("datasetSha256", facts.dataset_sha256);
}

void ProfileText::add(const std::string& key, const std::string& json) {
  text_.append(text_.empty() ? "{\n" : ",\n")
      .append("  \"")
      .append(key)
      .append("\": ")
      .append(json);
}

void ProfileText::addText(const std::string& key, const std::string& text) {
  add(key, nlohmann::json(text).dump());
}

}  // namespace allot
