#include "core/learning/evolution.h"

#include "core/learning/learner_streams.h"
#include "core/learning/normals.h"

namespace allot {
namespace {

// More than a question set has pairs, of which there are at most half as many as episodes.
constexpr uint64_t kPairsOfStream = 1 << 13;

}  // namespace

std::optional<NoiseOf> noiseOfProposal(uint32_t proposal, uint32_t proposals) {
  if (proposal < kFirstOwnProposal) return std::nullopt;
  const uint32_t place = proposal - kFirstOwnProposal;
  const uint32_t pairs = (proposals - kFirstOwnProposal) / 2;
  if (place >= 2 * pairs) return std::nullopt;
  return NoiseOf{place / 2, place % 2 == 0 ? 1.0 : -1.0};
}

std::vector<double> evolutionNoise(const RunStreams& streams, uint64_t version, uint32_t budget,
                                   uint32_t pair, size_t entries) {
  RandomStream random(streams, Purpose::kLearner,
                      learnerStream(version, budget) * kPairsOfStream + pair);
  return normals(entries, &random);
}

}  // namespace allot
