#include "cli/table_notes.h"

#include <nlohmann/json.hpp>

namespace allot {
namespace {

std::string listed(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    if (!name.empty()) text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

// Returns the member `holm` of a difference if it is there.
const nlohmann::json* holmIn(const nlohmann::json& difference) {
  const auto found = difference.is_object() ? difference.find("holm") : difference.end();
  return found != difference.end() && found->is_object() ? &*found : nullptr;
}

}  // namespace

void TableNotes::addDifference(const nlohmann::json& difference, const std::string& family) {
  if (!difference.is_object()) return;
  differences_.insert(difference.value("interval", ""));
  if (const auto* holm = holmIn(difference)) {
    families_[family] = holm->at("family").get<uint64_t>();
  }
}

std::string TableNotes::text() const {
  const std::string of_accuracies = listed(accuracies_), of_differences = listed(differences_);
  std::string text;
  if (!of_accuracies.empty()) text += "95 % intervals: " + of_accuracies;
  if (!of_differences.empty()) {
    text +=
        (text.empty() ? "95 % intervals of differences: " : "; of differences: ") + of_differences;
  }
  if (!text.empty()) text += "\n";
  std::string families;
  for (const auto& [family, size] : families_) {
    families += (families.empty() ? "" : ", ") + std::to_string(size) + " " + family;
  }
  if (families.empty()) return text;
  return text + "* differs also by Holm's rule, which asks all comparisons at once: " + families +
         "\n";
}

std::string holmMark(const nlohmann::json& difference) {
  const auto* holm = holmIn(difference);
  return holm != nullptr && holm->at("differs").get<bool>() ? kHolmMark : "";
}

}  // namespace allot
