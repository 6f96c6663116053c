#pragma once
// The CustomResourceDefinition of kind Experiment, made from the table of keys
// (core/spec/spec_rules.h).
//
// What the schema says is what the parser of experiment files says, as far as a schema can. The
// operator checks fractions, since no structural type has both 0.05 and "0.05", and the entries of
// lists of schedules, each a word or a list of integers. Rules keep other keys that are not live
// from changing once status.startedAt is there. They need Kubernetes 1.25, and a server before 1.23
// refuses to read them. Pure functions, any thread.
#include <nlohmann/json_fwd.hpp>

namespace allot {

enum class CrdRules { kWith, kWithout };

nlohmann::json experimentCrd(CrdRules rules = CrdRules::kWith);

}  // namespace allot
