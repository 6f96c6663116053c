#pragma once
// Experiments that an older build stored, read by this one.
//
// A schema is a number that grows whenever keys are added to the experiment file (SpecRule::since).
// Each build knows the keys up to one schema, and stores the schema's number with the runs that it
// creates. In an experiment of an older build, complete() gives a later key the value by which that
// build acted (SpecRule::before). Digests stay those of the stored bytes (asOfSchema). Runs of
// development builds before release 0.1.0 are refused (checkSchema). Pure functions, any thread.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"

namespace allot {

struct SpecRule;
const std::vector<SpecRule>& specRules();  // core/spec/spec_rules.h

// 1: the keys of release 0.1.0. Until 0.1.0 is tagged they may change.
inline constexpr uint32_t kSpecSchema = 1;
// Development builds stored numbers from 2 up to this one, or no number.
inline constexpr uint32_t kLastDevelopmentSchema = 11;
// The schema that the next key comes with.
inline constexpr uint32_t kNextSchema = std::max(kSpecSchema, kLastDevelopmentSchema) + 1;

// Sets unset keys of later schemas than the first to SpecRule::before, except those of spec.update
// where that section is absent.
void complete(v1::Experiment* experiment, const std::vector<SpecRule>& rules = specRules());

// Returns `experiment` without the keys that a build of `schema` does not know.
v1::Experiment asOfSchema(v1::Experiment experiment, uint32_t schema,
                          const std::vector<SpecRule>& rules = specRules());

// Returns kUsage if a development build before 0.1.0 created the run, or a build with a newer
// schema. schema: as stored, 0 if none was. build: of the run's creator, "" if unknown. what: the
// run, for the message.
Status checkSchema(uint32_t schema, const std::string& build, const std::string& what);
// Returns the errors of the function above, and kUsage if `stored` has, outside lists, a field
// unknown to this build.
Status checkSchema(uint32_t schema, const std::string& build, const std::string& what,
                   const v1::Experiment& stored);

}  // namespace allot
