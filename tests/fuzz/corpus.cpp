// fuzz-corpus replay DIR: feeds every file below DIR; one that is called accepted-* must be
// accepted. fuzz-corpus make DIR: writes the inputs that fuzzing starts from.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "tests/fuzz/harness.h"

namespace allot::fuzz {
namespace {

namespace fs = std::filesystem;

int replay(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& item : fs::recursive_directory_iterator(folder)) {
    if (item.is_regular_file()) files.push_back(item.path());
  }
  std::sort(files.begin(), files.end());
  size_t counts[3] = {};
  for (const fs::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const Verdict verdict = feed(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    ++counts[static_cast<size_t>(verdict)];
    if (path.filename().string().starts_with("accepted-") && verdict != Verdict::kAccepted) {
      std::fprintf(stderr, "%s is not accepted any more: make the corpus again\n", path.c_str());
      return 1;
    }
  }
  std::printf("%zu inputs: %zu accepted, %zu refused, %zu not delivered\n", files.size(),
              counts[static_cast<size_t>(Verdict::kAccepted)],
              counts[static_cast<size_t>(Verdict::kRefused)],
              counts[static_cast<size_t>(Verdict::kNotDelivered)]);
  // A corpus of which nothing is accepted, or nothing refused, tests nothing.
  return counts[static_cast<size_t>(Verdict::kAccepted)] > 0 &&
                 counts[static_cast<size_t>(Verdict::kRefused)] > 0
             ? 0
             : 1;
}

class Maker {
 public:
  explicit Maker(fs::path folder) : folder_(std::move(folder)) { fs::create_directories(folder_); }

  void write(Kind kind, size_t run, const char* name, const std::string& message) const {
    const std::string bytes = static_cast<char>(firstByte(kind, run)) + message;
    const Verdict verdict = feed(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    static const char* const verdicts[] = {"undelivered-", "refused-", "accepted-"};
    const std::string file =
        std::string(verdicts[static_cast<size_t>(verdict)]) + name + "-" + std::to_string(run);
    std::ofstream(folder_ / file, std::ios::binary) << bytes;
  }

 private:
  fs::path folder_;
};

void makeResults(const Maker& maker, size_t number) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const PreparedRun& run = preparedRun(number);
  const v1::EpisodeResult good = goodResult(run);
  const auto changed = [&](const char* name, bool repaired, auto change) {
    v1::EpisodeResult result = good;
    change(result);
    if (repaired) repair(run, &result);
    maker.write(Kind::kPushed, number, name, result.SerializeAsString());
  };
  const std::string bytes = good.SerializeAsString();
  maker.write(Kind::kPushed, number, "good", bytes);
  maker.write(Kind::kPushedTwice, number, "twice", bytes);
  maker.write(Kind::kInjected, number, "injected", bytes);
  maker.write(Kind::kInjected, number, "cut", bytes.substr(0, bytes.size() / 2));
  maker.write(Kind::kInjected, number, "bytes", "\xff\xff\xff\x01");
  changed("reward-nan", false, [](auto& r) { r.set_reward(kNan); });
  changed("score-nan", true, [](auto& r) { r.mutable_scores(0)->set_score(kNan); });
  changed("score-large", true, [](auto& r) { r.mutable_scores(0)->set_score(1.5); });
  changed("future", false, [](auto& r) { r.set_policy_version(2); });
  changed("older", true, [](auto& r) { r.set_policy_version(0); });
  changed("ticket", true, [](auto& r) { r.set_ticket(UINT64_MAX); });
  changed("sum", true, [](auto& r) { r.set_schedule(0, r.schedule(0) + 1); });
  changed("overflow", true, [](auto& r) {
    r.set_schedule(1, r.schedule(0) + r.schedule(1) + 1);
    r.set_schedule(0, UINT32_MAX);  // the same sum in 32 bits
  });
  changed("long", true, [](auto& r) { r.add_schedule(0); });
  changed("short", true, [](auto& r) { r.mutable_scores()->RemoveLast(); });
  changed("question", false, [](auto& r) { r.mutable_scores(1)->set_question(99); });
  changed("seconds", false, [](auto& r) { r.set_seconds(-1); });
  changed("log-probability", false, [](auto& r) { r.set_behaviour_log_prob(kNan); });
  changed("no-name", false, [](auto& r) { r.set_result_id(std::string(300, 'n')); });
}

void makeEvaluations(const Maker& maker, size_t number) {
  const v1::EvaluationResult good = goodEvaluation(preparedRun(number));
  const auto changed = [&](const char* name, auto change) {
    v1::EvaluationResult result = good;
    change(result);
    maker.write(Kind::kEvaluation, number, name, result.SerializeAsString());
  };
  changed("evaluation", [](auto&) {});
  changed("evaluation-nan", [](auto& r) {
    r.mutable_scores(0)->set_score(std::numeric_limits<double>::quiet_NaN());
  });
  changed("evaluation-seconds", [](auto& r) { r.set_seconds(-1e300); });
  changed("evaluation-short", [](auto& r) { r.mutable_scores()->RemoveLast(); });
  changed("evaluation-question", [](auto& r) { r.mutable_scores(0)->set_question(1); });
  changed("evaluation-version", [](auto& r) { r.mutable_unit()->set_policy_version(7); });
  changed("evaluation-cell", [](auto& r) { r.mutable_unit()->set_total_budget(1); });
  changed("evaluation-task", [](auto& r) { r.mutable_scores(0)->set_task(1); });
  changed("evaluation-bytes", [](auto& r) { r.mutable_counts()->set_value_bytes(901); });
  changed("evaluation-unit", [](auto& r) { r.mutable_unit()->set_unit_id("v/"); });
}

void makeFidelity(const Maker& maker, size_t number) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const v1::EvaluationResult good = goodFidelity(preparedRun(number));
  const auto changed = [&](const char* name, auto change) {
    v1::EvaluationResult result = good;
    change(result);
    maker.write(Kind::kEvaluation, number, name, result.SerializeAsString());
  };
  changed("fidelity", [](auto&) {});
  changed("fidelity-infinite",
          [](auto& r) { r.mutable_fidelity(0)->set_squared_error(kInfinity); });
  changed("fidelity-cosine", [](auto& r) { r.mutable_fidelity(0)->set_cosine(-21); });
  changed("fidelity-sum", [](auto& r) { r.mutable_fidelity(0)->set_relative_error(12); });
  changed("fidelity-twice", [](auto& r) { *r.add_fidelity() = r.fidelity(0); });
  changed("fidelity-layer", [](auto& r) { r.mutable_fidelity(0)->set_layer(4); });
  changed("fidelity-task", [](auto& r) { r.mutable_fidelity(0)->set_task(1); });
  changed("fidelity-none", [](auto& r) { r.clear_fidelity(); });
  changed("fidelity-scores", [](auto& r) { r.add_scores(); });
  changed("fidelity-states", [](auto& r) { r.mutable_fidelity(1)->set_states(UINT64_MAX); });
  changed("agreement", [](auto& r) { r.mutable_agreement(0)->set_agreed(13); });
}

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  if (what == "replay") return replay(argv[2]);
  if (what != "make") {
    std::fprintf(stderr, "fuzz-corpus replay|make DIR\n");
    return 64;
  }
  const Maker maker(argv[2]);
  for (size_t run = 0; run < kRuns; ++run) {
    makeResults(maker, run);
    makeEvaluations(maker, run);
    makeFidelity(maker, run);
  }
  return 0;
}

}  // namespace
}  // namespace allot::fuzz

int main(int argc, char** argv) { return allot::fuzz::main(argc, argv); }
