#pragma once
// The kinds of refused results and evaluations, for counting. Pure, any thread.
#include <string_view>

#include "core/words.h"

namespace allot {

enum class RefusalKind {
  kUndecodable,
  kOversized,
  kInvalid,     // it fails a check of results or evaluations
  kStale,       // of results: the policy is too old
  kSuperseded,  // of results: the ticket has a result already, or belongs to another update
};
constexpr std::string_view wordOf(RefusalKind value) {
  return wordAt(value, {"undecodable", "oversized", "invalid", "stale", "superseded"});
}
inline constexpr auto kRefusalKinds = kWordsOf<RefusalKind>;

}  // namespace allot
