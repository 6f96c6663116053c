#pragma once
// AggregatorEvents: what an Aggregator reports to its observer (metrics). Called on the
// Aggregator's thread; each call must be short.
#include "allot/v1/policy.pb.h"
#include "core/refusal_kind.h"

namespace allot {

class AggregatorEvents {
 public:
  virtual ~AggregatorEvents() = default;
  // An update was computed and committed in `seconds`; the record holds the results that it
  // consumed.
  virtual void updated(const v1::IterationRecord& /*record*/, double /*seconds*/) {}
  // A result, or an evaluation, was refused.
  virtual void refused(RefusalKind /*kind*/) {}
};

}  // namespace allot
