#pragma once
// The kinds of refused results and evaluations, for counting. Pure, any thread.
#include <string_view>

#include "core/words.h"

namespace allot {

enum class RefusalKind {
  kUndecodable,
  kOversized,
  kInvalid,     // no correct worker can have made it
  kStale,       // its policy is too old
  kSuperseded,  // its ticket already has a result, or belongs to another update
};
constexpr std::string_view wordOf(RefusalKind value) {
  return wordAt(value, {"undecodable", "oversized", "invalid", "stale", "superseded"});
}
inline constexpr auto kRefusalKinds = kWordsOf<RefusalKind>;

}  // namespace allot
