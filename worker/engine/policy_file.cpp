#include "worker/engine/policy_file.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>

#include "core/files/files.h"
#include "core/spec/spec_rules.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr uint64_t kMostBytes = uint64_t{64} << 20;
constexpr size_t kDigestShown = 12;

std::string textIn(const json& of, const char* key) {
  const auto found = of.find(key);
  return found != of.end() && found->is_string() ? found->get<std::string>() : "";
}

// Returns how the policy's model differs from this one; "" if nothing is known to differ.
std::string difference(const json& policy, const v1::ModelFacts& model) {
  const auto made_for = policy.find("model");
  if (made_for == policy.end() || !made_for->is_object()) return "";
  bool known = false;
  for (const auto& [key, what, own] :
       {std::tuple{"weights_sha256", "weights", &model.weights_sha256()},
        {"model_sha256", "configuration and tokenizer", &model.model_sha256()}}) {
    const std::string digest = textIn(*made_for, key);
    if (digest.empty() || own->empty()) continue;
    known = true;
    if (digest == *own) continue;
    return std::string("the SHA-256 of its ") + what + " is " + digest.substr(0, kDigestShown) +
           ", this model's " + own->substr(0, kDigestShown);
  }
  if (known) return "";
  for (const auto& [key, what, own] : {std::tuple{"layers", "layers", model.layers()},
                                       {"heads", "heads", model.heads()},
                                       {"kv_heads", "KV heads", model.kv_heads()}}) {
    const auto number = made_for->find(key);
    if (number == made_for->end() || !number->is_number_unsigned()) continue;
    if (number->get<uint64_t>() == own) continue;
    return "it has " + number->dump() + " " + what + ", this model " + std::to_string(own);
  }
  return "";
}

// Returns the schedules by total budget. Throws json::exception.
std::map<uint64_t, SampleSchedule> schedulesIn(const json& policy) {
  std::map<uint64_t, SampleSchedule> schedules;
  const auto add = [&](const json& row) {
    SampleSchedule schedule;
    for (const json& entry : row.at("learned_schedule")) {
      if (!entry.is_number_unsigned() || entry > kMaxBudget) {
        throw json::other_error::create(501, "draws", nullptr);
      }
      schedule.push_back(entry);
    }
    if (!schedule.empty()) schedules[row.at("total_budget").get<uint64_t>()] = schedule;
  };
  add(policy);
  for (const json& row : policy.value("frontier", json::array())) add(row);
  return schedules;
}

}  // namespace

Result<SampleSchedule> readPolicySchedule(const std::string& given,
                                          std::optional<uint64_t> total_budget,
                                          const v1::ModelFacts& model, bool any_model) {
  std::error_code ignored;
  const std::string path =
      std::filesystem::is_directory(given, ignored) ? given + "/policy.json" : given;
  ALLOT_ASSIGN(const std::string text, readWholeFile(path, kMostBytes));
  const json policy = json::parse(text, nullptr, false);
  std::map<uint64_t, SampleSchedule> schedules;
  uint64_t own = 0;
  try {
    schedules = schedulesIn(policy);
    own = policy.at("total_budget").get<uint64_t>();
  } catch (const json::exception&) {
    return badInput(path + ": is no policy.json as `allot run` or `allot export` writes it");
  }
  const std::string differs = difference(policy, model);
  if (!differs.empty() && !any_model) {
    return badInput(path + ": was made for another model: " + differs +
                    "; --any-model takes it all the same");
  }
  const auto found = schedules.find(total_budget.value_or(own));
  if (found != schedules.end()) return found->second;
  std::string budgets;
  for (const auto& [budget, schedule] : schedules) {
    budgets += (budgets.empty() ? "" : ", ") + std::to_string(budget);
  }
  if (budgets.empty()) return badInput(path + ": holds no learned schedule");
  return badInput(path + ": has schedules for the total budgets " + budgets + ", not for " +
                  std::to_string(total_budget.value_or(own)));
}

}  // namespace allot
