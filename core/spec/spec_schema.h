#pragma once
// Experiments that an older build stored, read by this one.
//
// Keys of the experiment file come with time. Each build knows the keys of one schema, a number
// that grows whenever keys are added (SpecRule::since), and stores it with the runs that it
// creates. A key that an older build did not know means, in what that build stored, what that build
// did (SpecRule::before): complete() fills it in, wherever a stored experiment is read. Digests
// stay those of what was stored (asOfSchema). Pure functions, any thread.
//
// Builds before release 0.1.0 made no promise: what they stored is refused (checkSchema).
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"

namespace allot {

struct SpecRule;
const std::vector<SpecRule>& specRules();  // core/spec/spec_rules.h

// 1: the keys of release 0.1.0. Until its tag they may change.
inline constexpr uint32_t kSpecSchema = 1;
// Development builds before 0.1.0 stored numbers up to this one, or none.
inline constexpr uint32_t kLastDevelopmentSchema = 11;
// The schema that the next key comes with.
inline constexpr uint32_t kNextSchema = std::max(kSpecSchema, kLastDevelopmentSchema) + 1;

// Fills the keys that the build which stored `experiment` did not know. Those are the keys that are
// unset and cannot be: no key whose absence means something takes "" or 0 for a value (a test).
void complete(v1::Experiment* experiment, const std::vector<SpecRule>& rules = specRules());

// Returns what a build of that schema would have stored for `experiment`: without the keys that it
// did not know.
v1::Experiment asOfSchema(v1::Experiment experiment, uint32_t schema,
                          const std::vector<SpecRule>& rules = specRules());

// Returns kUsage if a development build before 0.1.0 created the run, or a build that knows more
// than this one. `schema`: as stored, 0 if none was. `what`: "run 01J..."
Status checkSchema(uint32_t schema, const std::string& build, const std::string& what);
// The same, and kUsage if `stored` holds a key that no build of its schema had.
Status checkSchema(uint32_t schema, const std::string& build, const std::string& what,
                   const v1::Experiment& stored);

}  // namespace allot
