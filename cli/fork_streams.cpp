#include "cli/fork_streams.h"

namespace allot {

Result<ForkStreams> forkStreams(const v1::Spec& parent, const std::vector<std::string>& given,
                                bool same, uint64_t fresh) {
  const std::string* repetition = nullptr;
  for (const std::string& setting : given) {
    const std::string path = setting.substr(0, setting.find('='));
    if (path == "spec.repetition") repetition = &setting;
    if (!same) continue;
    for (const char* key : {"spec.seed", "spec.repetition"}) {
      if (path != key) continue;
      return badInput("--same-streams takes " + path + " from the run: leave out --set " + setting +
                      ", or --same-streams");
    }
  }
  if (same) {
    return ForkStreams{{"spec.seed=" + std::to_string(parent.seed()),
                        "spec.repetition=" + std::to_string(parent.repetition())},
                       "it draws the same random numbers as that run"};
  }
  if (repetition != nullptr) return ForkStreams{{}, "it draws by --set " + *repetition};
  const std::string setting = "spec.repetition=" + std::to_string(fresh);
  return ForkStreams{{setting}, "it draws anew, as " + setting};
}

}  // namespace allot
