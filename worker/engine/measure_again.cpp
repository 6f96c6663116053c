#include "worker/engine/measure_again.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "store/archive/exact_json.h"

namespace allot {
namespace {

using nlohmann::json;
using Asked = std::variant<Engine::Episode, v1::EvaluationUnit>;

Error atLine(const LineReader& in, const std::string& fault) {
  return {ErrorCode::kData, in.path() + ": line " + std::to_string(in.number()) + ": " + fault};
}

// Reads the message that stands under `key`.
Status readMessage(const json& line, const char* key, google::protobuf::Message* message) {
  return parseExactJson(line[key].dump(), message);
}

Result<Asked> parseAsked(const std::string& text) {
  const json line = json::parse(text, nullptr, false);
  if (line.is_object() && line.size() == 1 && line.contains("unit")) {
    v1::EvaluationUnit unit;
    ALLOT_TRY(readMessage(line, "unit", &unit));
    if (measureOf(unit) != Measure::kAccuracy) {
      return fail(ErrorCode::kData, "is a unit of another measure than accuracy");
    }
    return unit;
  }
  if (line.is_object() && line.size() == 1 && line.contains("episode")) {
    v1::EpisodeResult result;
    ALLOT_TRY(readMessage(line, "episode", &result));
    Engine::Episode episode{
        result.ticket(), {result.schedule().begin(), result.schedule().end()}, {}};
    for (const v1::QuestionScore& score : result.scores()) {
      episode.questions.push_back(score.question());
    }
    if (episode.questions.empty()) return fail(ErrorCode::kData, "has no questions");
    return episode;
  }
  return fail(ErrorCode::kData, "is neither an episode nor a unit");
}

size_t questionsOf(const Asked& asked) {
  if (const auto* episode = std::get_if<Engine::Episode>(&asked)) return episode->questions.size();
  return std::get<v1::EvaluationUnit>(asked).question_count();
}

bool together(const Asked& a, const Asked& b) {
  if (a.index() != b.index()) return false;
  const auto* unit = std::get_if<v1::EvaluationUnit>(&a);
  return !unit || answeredTogether(*unit, std::get<v1::EvaluationUnit>(b));
}

template <typename Results>
Status write(const Results& results, std::ostream* out) {
  for (const auto& result : results) {
    v1::EvaluationResult told;
    *told.mutable_scores() = result.scores();
    if constexpr (requires { result.answers(); }) {
      if (result.has_answers()) *told.mutable_answers() = result.answers();
    }
    ALLOT_ASSIGN(const std::string line, exactJson(told));
    *out << line << '\n';
  }
  // Flushed: the caller shows the progress.
  if (out->flush()) return {};
  return fail(ErrorCode::kIo, "the answers cannot be written: is the disk full?");
}

template <typename T>
std::vector<T> allOf(std::vector<Asked> batch) {
  std::vector<T> items;
  for (Asked& asked : batch) items.push_back(std::get<T>(std::move(asked)));
  return items;
}

Status answer(Engine* engine, std::vector<Asked> batch, std::ostream* out) {
  if (std::holds_alternative<Engine::Episode>(batch.front())) {
    ALLOT_ASSIGN(const auto results, engine->answerUnder(allOf<Engine::Episode>(std::move(batch))));
    return write(results, out);
  }
  ALLOT_ASSIGN(const auto results,
               engine->evaluateTogether(allOf<v1::EvaluationUnit>(std::move(batch))));
  return write(results, out);
}

}  // namespace

Result<v1::Experiment> readAskedExperiment(LineReader* in) {
  ALLOT_ASSIGN(const auto text, in->next());
  const json line = json::parse(text.value_or(""), nullptr, false);
  if (!line.is_object() || line.size() != 1 || !line.contains("experiment")) {
    return tl::unexpected(atLine(*in, "is no experiment"));
  }
  v1::Experiment experiment;
  const Status read = readMessage(line, "experiment", &experiment);
  if (!read) return tl::unexpected(atLine(*in, read.error().message));
  return experiment;
}

Status measureAgain(Engine* engine, const std::string& build, LineReader* in, std::ostream* out) {
  ALLOT_ASSIGN(const std::string facts, exactJson(engine->facts()));
  *out << json{{"facts", json::parse(facts)},
               {"build", build},
               {"arithmetic", engine->arithmetic()}}
              .dump()
       << std::endl;
  std::vector<Asked> batch;
  size_t questions = 0;
  while (true) {
    ALLOT_ASSIGN(const auto text, in->next());
    std::optional<Asked> asked;
    if (text) {
      auto parsed = parseAsked(*text);
      if (!parsed) return tl::unexpected(atLine(*in, parsed.error().message));
      asked = std::move(*parsed);
    }
    const bool fits = asked && !batch.empty() && together(batch.front(), *asked) &&
                      questions + questionsOf(*asked) <= engine->rowsAtOnce();
    if (!fits && !batch.empty()) {
      ALLOT_TRY(answer(engine, std::exchange(batch, {}), out));
      questions = 0;
    }
    if (!asked) return {};
    questions += questionsOf(*asked);
    batch.push_back(std::move(*asked));
  }
}

}  // namespace allot
