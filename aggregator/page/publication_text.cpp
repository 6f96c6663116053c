#include "aggregator/page/publication_text.h"

#include <spdlog/fmt/fmt.h>

#include <utility>
#include <vector>

#include "core/printable.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr char kNotMeasured[] = "no layer is measured yet";

// Returns the name in a row's `key`; "" if the row has none.
std::string nameIn(const json& row, const char* key) {
  const json name = row.value(key, json());
  return name.is_string() ? printable(name.get<std::string>(), 100) : "";
}

// Returns the name of what a candidate has to beat; "" if a price is not measured yet. Runs by an
// earlier build have no such key, and uniform.
std::string rivalOf(const json& row) {
  return row.contains("rival") ? nameIn(row, "rival") : "uniform";
}

// Returns the name of the published schedule if it is not the rival and nothing is claimed of it.
std::string guessOf(const json& row) {
  const std::string published = nameIn(row, "published");
  return row.value("claim", json()).is_object() || published == rivalOf(row) ? "" : published;
}

}  // namespace

std::string publicationText(const json& row) {
  if (row.value("beats_uniform", json()).is_null()) return "";
  std::string rival = rivalOf(row);
  if (rival.empty()) return kNotMeasured;
  const json price = row.value("rival_price_share", json());
  if (price.is_number()) rival += fmt::format(" ({:.2f} %)", 100 * price.get<double>());
  const json claim = row.value("claim", json());
  if (claim.is_object()) {
    return fmt::format("better than {} by {:.3f}, at least {:.3f}, on {} fresh questions", rival,
                       claim.at("mean").get<double>(), claim.at("low").get<double>(),
                       claim.at("questions").get<uint64_t>());
  }
  const std::string guess = guessOf(row);
  if (guess.empty()) return rival + ": no other is known to be better";
  return guess + ": the best guess, not confirmed to be better than " + rival;
}

std::string publicationsText(const json& frontier, const std::string& unit) {
  std::vector<std::pair<std::string, std::string>> groups;  // what is known, the budgets
  for (const json& row : frontier) {
    if (row.value("beats_uniform", json()).is_null()) continue;
    const std::string rival = rivalOf(row), guess = guessOf(row);
    std::string known = rival + ", no other is known to be better";
    if (rival.empty()) known = kNotMeasured;
    if (row.value("claim", json()).is_object()) known = "confirmed to be better than " + rival;
    if (!guess.empty())
      known = guess + ", the best guess, not confirmed to be better than " + rival;
    const std::string budget = std::to_string(row.at("total_budget").get<uint64_t>()) + unit;
    if (groups.empty() || groups.back().first != known) {
      groups.emplace_back(known, budget);
    } else {
      groups.back().second += ", " + budget;
    }
  }
  std::string text;
  for (const auto& [known, budgets] : groups) {
    text += (text.empty() ? "at " : "; at ") + budgets + ": " + known;
  }
  return text;
}

}  // namespace allot
