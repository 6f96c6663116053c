#include "worker/engine/schedule_answers.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/learning/questions.h"
#include "core/spec/choices.h"
#include "core/spec/spec_rules.h"
#include "worker/engine/policy_file.h"
#include "worker/model/decoder.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr size_t kMostOfLine = size_t{1} << 20;
constexpr size_t kMostSpelled = 4096;  // questions of a line

struct AskedAnswer {
  SampleSchedule schedule;
  uint64_t set = 0;
  bool held_out = false;
  std::vector<uint32_t> spell;
  std::string method;
};

// The questions of "spell", and the settings of their answers.
Status readSpelling(const json& value, AskedAnswer* asked) {
  if (value.contains("set") || value.contains("heldOut")) {
    return badInput("spell names the questions itself: leave out set and heldOut");
  }
  const json& questions = value["spell"];
  if (!questions.is_array() || questions.empty() || questions.size() > kMostSpelled) {
    return badInput("spell is no list of 1 to " + std::to_string(kMostSpelled) + " questions");
  }
  for (const json& question : questions) {
    if (!question.is_number_unsigned() || question > UINT32_MAX) {
      return badInput("spell: " + question.dump().substr(0, 40) + " is no question's number");
    }
    asked->spell.push_back(question);
  }
  if (!value.contains("method") || !value["method"].is_string()) {
    return badInput("method, what the questions of spell are answered by, is missing");
  }
  asked->method = value["method"];
  return {};
}

// The schedule of a line: written in it, or of a policy.
Result<SampleSchedule> readScheduleOf(const json& value, const Engine& engine, bool any_model) {
  if (value.contains("policy")) {
    if (value.contains("schedule")) return badInput("policy has the schedule: leave out schedule");
    if (!value["policy"].is_string()) return badInput("policy is no path of a policy.json");
    std::optional<uint64_t> budget;
    if (value.contains("totalBudget")) budget = value["totalBudget"].get<uint64_t>();
    return readPolicySchedule(value["policy"], budget, engine.facts(), any_model);
  }
  if (value.contains("totalBudget")) return badInput("totalBudget chooses a schedule of policy");
  if (!value.contains("schedule") || !value["schedule"].is_array()) {
    return badInput("schedule, a list of the draws of each layer, is missing");
  }
  SampleSchedule schedule;
  for (const json& samples : value["schedule"]) {
    if (!samples.is_number_unsigned() || samples > kMaxBudget) {
      return badInput("schedule: " + samples.dump().substr(0, 40) + " is not in 0.." +
                      std::to_string(kMaxBudget));
    }
    schedule.push_back(samples);
  }
  return schedule;
}

Result<AskedAnswer> readLine(const std::string& line, const Engine& engine, bool any_model) {
  const ModelConfig& model = engine.decoder().config();
  if (line.size() > kMostOfLine) return badInput("it is longer than a MiB");
  const json value = json::parse(line, nullptr, false);
  if (!value.is_object()) {
    return badInput(R"(it is no JSON object such as {"schedule": [4, 2, 1, 1], "set": 0})");
  }
  AskedAnswer asked;
  for (const auto& [key, of] : value.items()) {
    const bool known = key == "schedule" || key == "set" || key == "heldOut" || key == "spell" ||
                       key == "method" || key == "policy" || key == "totalBudget";
    if (!known) return badInput("unknown key " + json(key).dump());
    if ((key == "set" || key == "totalBudget") && !of.is_number_unsigned()) {
      return badInput(key + " is no number from 0 on");
    }
    if (key == "heldOut" && !of.is_boolean()) return badInput("heldOut is neither true nor false");
  }
  if (value.contains("spell")) {
    ALLOT_TRY(readSpelling(value, &asked));
  } else if (value.contains("method")) {
    return badInput("method is for the questions of spell");
  }
  const bool has_schedule = value.contains("schedule") || value.contains("policy");
  if (!asked.spell.empty() && !has_schedule) return asked;
  ALLOT_ASSIGN(asked.schedule, readScheduleOf(value, engine, any_model));
  if (entriesPerLayer(asked.schedule.size(), model) == 0) {
    return badInput("schedule has " + std::to_string(asked.schedule.size()) +
                    " entries, the model " + std::to_string(model.layers) + " layers of " +
                    std::to_string(model.kv_heads) + " KV heads and " +
                    std::to_string(model.heads) +
                    " query heads: write one for each layer, KV head or query head");
  }
  asked.set = value.value("set", uint64_t{0});
  asked.held_out = value.value("heldOut", false);
  return asked;
}

Result<json> answerHeldOut(const v1::Spec& spec, const SampleSchedule& schedule, Engine* engine) {
  v1::EvaluationUnit unit;
  unit.set_unit_id("schedule");
  unit.set_method(spec.attention().decode());
  unit.set_prefill(spec.attention().prefill());
  *unit.mutable_schedule() = {schedule.begin(), schedule.end()};
  unit.set_chunk(kMostChunkQuestions);  // none of the first, whose prompts are measured
  unit.set_question_count(spec.task().held_out_questions());
  ALLOT_ASSIGN(const v1::EvaluationResult result, engine->evaluate(unit));
  double sum = 0;
  for (const v1::QuestionScore& score : result.scores()) sum += score.score();
  return json{{"reward", sum / result.scores_size()}, {"questions", result.scores_size()}};
}

Result<json> spelled(const AskedAnswer& asked, Engine* engine) {
  ALLOT_ASSIGN(const auto answers, engine->spell(asked.spell, asked.method, asked.schedule));
  json list = json::array();
  for (const Engine::Spelled& answer : answers) {
    list.push_back({{"question", answer.question},
                    {"score", answer.score},
                    {"prompt", answer.prompt},
                    {"tokens", answer.tokens}});
  }
  return json{{"answers", std::move(list)}};
}

Result<json> answerOne(const v1::Spec& spec, const AskedAnswer& asked, uint64_t ticket,
                       Engine* engine) {
  if (!asked.spell.empty()) return spelled(asked, engine);
  if (asked.held_out) return answerHeldOut(spec, asked.schedule, engine);
  const Engine::Episode episode{
      ticket, asked.schedule,
      episodeQuestions(runStreams(spec), asked.set, spec.rollout().questions_per_episode(),
                       spec.task().train_questions())};
  ALLOT_ASSIGN(const auto results, engine->answerUnder({episode}));
  return json{{"reward", results.front().reward()}};
}

}  // namespace

Status answerSchedules(const v1::Experiment& experiment, Engine* engine, std::istream* in,
                       std::ostream* out, bool any_model) {
  const v1::Spec& spec = experiment.spec();
  std::string line;
  for (uint64_t number = 0; std::getline(*in, line); ++number) {
    const std::string where = "line " + std::to_string(number + 1) + " of the input: ";
    const auto asked = readLine(line, *engine, any_model);
    if (!asked) return badInput(where + asked.error().message);
    ALLOT_ASSIGN(const json answer, answerOne(spec, *asked, number, engine));
    *out << answer.dump() << std::endl;  // flushed: the caller waits for it
    if (!*out) return fail(ErrorCode::kIo, "the answers cannot be written: is the disk full?");
  }
  return {};
}

}  // namespace allot
