#include "store/archive/archive_csv.h"

#include <charconv>
#include <ctime>
#include <vector>

#include "core/learning/policy.h"
#include "core/spec/choices.h"

namespace allot::archive {
namespace {

std::string number(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

std::string number(uint64_t value) { return std::to_string(value); }

// Returns "2031-05-04T12:30:59.123Z"; "" for a time out of range.
std::string time(uint64_t unix_ms) {
  const auto seconds = static_cast<time_t>(unix_ms / 1000);
  tm parts{};
  char text[64];
  if (gmtime_r(&seconds, &parts) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts) == 0) {
    return "";
  }
  char fraction[8];
  std::snprintf(fraction, sizeof fraction, ".%03uZ", static_cast<unsigned>(unix_ms % 1000));
  return std::string(text) + fraction;
}

// Returns "3 2 0 0".
std::string schedule(const google::protobuf::RepeatedField<uint32_t>& samples) {
  std::string text;
  for (const uint32_t n : samples) text += (text.empty() ? "" : " ") + std::to_string(n);
  return text;
}

std::string row(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) line += (&cell == cells.data() ? "" : ",") + cell;
  return line + "\n";
}

// Returns the value of the i-th result; 0 in a hostile record with fewer values than results.
double at(const google::protobuf::RepeatedField<double>& values, int i) {
  return i < values.size() ? values.Get(i) : 0;
}

}  // namespace

std::string csvCell(std::string_view text) {
  std::string cell;
  bool quoted = false;
  if (!text.empty() && std::string_view("=+-@\t\r\n").find(text[0]) != std::string_view::npos) {
    cell = "'";
  }
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"') cell += '"';
    cell += byte < 0x20 || byte == 0x7f ? ' ' : c;
    quoted = quoted || c == '"' || c == ',';
  }
  return quoted ? "\"" + cell + "\"" : cell;
}

std::string updatesHeader(int layers) {
  std::string line =
      "version,mean_reward,mean_lag_updates,effective_sample_size_ratio,step_kl_nats,"
      "entropy_nats,gradient_norm,episodes,committed";
  for (int l = 0; l < layers; ++l) line += ",probability_" + std::to_string(l);
  return line + "\n";
}

std::string updatesRow(const v1::IterationRecord& record) {
  std::vector<std::string> cells = {
      number(record.version()),          number(record.mean_reward()),
      number(record.mean_lag_updates()), number(record.effective_sample_size_ratio()),
      number(record.step_kl_nats()),     number(record.entropy_nats()),
      number(record.gradient_norm()),    number(static_cast<uint64_t>(record.results_size())),
      time(record.committed_unix_ms())};
  for (const double p : layerShares(record.policy())) {
    cells.push_back(number(p));
  }
  return row(cells);
}

std::string episodesHeader() {
  return "ticket,result_id,consumed_by_version,policy_version,lag_updates,reward,weight,baseline,"
         "seconds,worker,device,schedule\n";
}

std::string episodesRows(const v1::IterationRecord& record) {
  std::string rows;
  for (int i = 0; i < record.results_size(); ++i) {
    const v1::EpisodeResult& result = record.results(i);
    rows += row({number(result.ticket()), csvCell(result.result_id()), number(record.version()),
                 number(result.policy_version()),
                 number(record.version() - 1 - result.policy_version()), number(result.reward()),
                 number(at(record.weights(), i)), number(at(record.baselines(), i)),
                 number(result.seconds()), csvCell(result.worker()), csvCell(result.device()),
                 schedule(result.schedule())});
  }
  return rows;
}

std::string evaluationsHeader() {
  return "unit_id,policy_version,method,schedule_name,total_budget,schedule,chunk,first_question,"
         "n,score_sum,seconds,worker,measure,prefill,repeat,answer_tokens,prompt_tokens\n";
}

std::string evaluationsRow(const v1::EvaluationResult& result) {
  const v1::EvaluationUnit& unit = result.unit();
  double sum = 0;
  uint64_t tokens = 0;
  for (const v1::QuestionScore& score : result.scores()) {
    sum += score.score();
    tokens += score.tokens();
  }
  return row({csvCell(unit.unit_id()), number(unit.policy_version()), csvCell(unit.method()),
              csvCell(unit.schedule_name()), number(unit.total_budget()), schedule(unit.schedule()),
              number(uint64_t{unit.chunk()}), number(uint64_t{unit.first_question()}),
              number(static_cast<uint64_t>(result.scores_size())), number(sum),
              number(result.seconds()), csvCell(result.worker()), csvCell(unit.measure()),
              csvCell(prefillOf(unit)), number(uint64_t{unit.repeat()}), number(tokens),
              number(result.prefill().tokens())});
}

}  // namespace allot::archive
