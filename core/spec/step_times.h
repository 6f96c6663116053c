#pragma once
// StepTimes: how long one layer's decode step takes on a device, as spec.policy.stepTimes has it:
// "dense 711.2, 8 132.1, 128 144.2". `allot bench kernels --json` writes such texts. Pure; any
// thread.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"

namespace allot {

inline constexpr char kStepTimesKey[] = "spec.policy.stepTimes";

struct StepTimes {
  double dense = 0;                             // microseconds, above 0
  std::vector<std::pair<uint32_t, double>> of;  // reads of a head, rising, and microseconds

  // Returns the microseconds of a step with `reads` a head: linear between two measured numbers,
  // and never less than with fewer reads.
  // Requires: of.front().first <= reads <= of.back().first.
  double at(uint32_t reads) const;
};

// Parses the text. Errors are kUsage, "PLACE: what is wrong".
Result<StepTimes> parseStepTimes(const std::string& text, const std::string& place);

}  // namespace allot
