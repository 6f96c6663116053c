#include "cli/fork_streams.h"

#include "allot/kernels/method.h"
#include "core/spec/choices.h"

namespace allot {

Result<ForkStreams> forkStreams(const v1::Spec& parent, const std::vector<std::string>& given,
                                bool same, uint64_t fresh) {
  const std::string* repetition = nullptr;
  for (const std::string& setting : given) {
    const std::string path = setting.substr(0, setting.find('='));
    if (path == "spec.repetition") repetition = &setting;
    if (!same) continue;
    for (const char* key : {"spec.seed", "spec.repetition", "spec.streams"}) {
      if (path != key) continue;
      return badInput("--same-streams takes " + path + " from the run: leave out --set " + setting +
                      ", or --same-streams");
    }
  }
  if (same) {
    return ForkStreams{{"spec.seed=" + std::to_string(parent.seed()),
                        "spec.repetition=" + std::to_string(parent.repetition()),
                        "spec.streams=" + std::string(wordOf(streamsOf(parent)))},
                       "it draws the same random numbers as that run"};
  }
  if (repetition != nullptr) return ForkStreams{{}, "it draws by --set " + *repetition};
  const std::string setting = "spec.repetition=" + std::to_string(fresh);
  return ForkStreams{{setting}, "it draws anew, as " + setting};
}

std::string methodsApart(const v1::Spec& parent, const std::vector<std::string>& given) {
  const std::string key = "spec.attention.methodDefaults=";
  for (const std::string& setting : given) {
    if (setting.starts_with(key)) return "";
  }
  const kernels::MethodDefaults then = methodDefaultsOf(parent.attention());
  std::vector<std::pair<std::string, kernels::Phase>> texts = {
      {parent.attention().decode(), kernels::Phase::kDecode},
      {parent.attention().prefill(), kernels::Phase::kPrefill}};
  for (const std::string& text : parent.evaluation().methods()) {
    texts.emplace_back(text, kernels::Phase::kDecode);
  }
  for (const std::string& text : parent.evaluation().prefills()) {
    texts.emplace_back(text, kernels::Phase::kPrefill);
  }
  for (const auto& [text, phase] : texts) {
    kernels::MethodOptions before, today;
    if (kernels::parseMethod(text, &before, then, phase)) continue;
    constexpr auto kToday = kernels::MethodDefaults::kSecond;
    if (kernels::parseMethod(text, &today, kToday, phase) || before == today) continue;
    return "what that run calls " + text + " is " + kernels::methodText(before) + " today: --set " +
           key + std::string(wordOf(then)) + " keeps its meaning";
  }
  return "";
}

}  // namespace allot
