#pragma once
// Why a result or an evaluation was refused, for counting. Pure, any thread.
#include <string_view>

#include "core/words.h"

namespace allot {

enum class RefusalKind {
  kUndecodable,
  kOversized,
  kInvalid,     // no worker of ours can have made it
  kStale,       // of too old a policy
  kSuperseded,  // its ticket has a result already, or belongs to another update
};
constexpr std::string_view wordOf(RefusalKind value) {
  switch (value) {
    case RefusalKind::kUndecodable:
      return "undecodable";
    case RefusalKind::kOversized:
      return "oversized";
    case RefusalKind::kInvalid:
      return "invalid";
    case RefusalKind::kStale:
      return "stale";
    case RefusalKind::kSuperseded:
      return "superseded";
  }
  return "";
}
inline constexpr auto kRefusalKinds = kWordsOf<RefusalKind>;

}  // namespace allot
