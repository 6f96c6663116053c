#include "model/token_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "allot/kernels/philox.h"

namespace allot {
namespace {

// Where attention's draws have layer << 16 | head: no layer and no head is this.
constexpr uint32_t kStream = UINT32_MAX;

struct Candidate {
  float logit;
  int32_t id;

  // The heap's top is the likeliest, and of these the lowest id.
  bool operator<(const Candidate& other) const {
    return logit != other.logit ? logit < other.logit : id > other.id;
  }
};

}  // namespace

int32_t chooseToken(std::span<const float> logits, const TokenChoice& choice, uint64_t seed,
                    uint32_t sequence, uint32_t step) {
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  if (choice.temperature <= 0) return static_cast<int32_t>(likeliest - logits.begin());
  const double highest = *likeliest;
  const auto mass = [&](float logit) { return std::exp((logit - highest) / choice.temperature); };
  const auto words = philox(seed, sequence, step, kStream, 0);
  const double u = uniformDouble(words[0], words[1]);

  std::vector<Candidate> heap(logits.size());
  for (size_t i = 0; i < heap.size(); ++i) heap[i] = {logits[i], static_cast<int32_t>(i)};
  std::make_heap(heap.begin(), heap.end());
  // Candidates are taken off one by one: a nucleus is far smaller than a vocabulary.
  std::vector<Candidate> taken;
  std::vector<double> masses;
  const auto take = [&] {
    std::pop_heap(heap.begin(), heap.end());
    taken.push_back(heap.back());
    masses.push_back(mass(heap.back().logit));
    heap.pop_back();
  };
  double total = 0;  // of all that top-k leaves
  size_t most = logits.size();
  if (choice.top_k > 0 && static_cast<size_t>(choice.top_k) < most) {
    most = static_cast<size_t>(choice.top_k);
    while (taken.size() < most) take();
    total = std::accumulate(masses.begin(), masses.end(), 0.0);
  } else {
    for (const float logit : logits) total += mass(logit);
  }
  double sum = 0;
  size_t count = 0;
  while (count < most && (count == 0 || sum < choice.top_p * total)) {
    if (count == taken.size()) take();
    sum += masses[count++];
  }
  double left = u * sum;
  for (size_t i = 0; i + 1 < count; ++i) {
    left -= masses[i];
    if (left < 0) return taken[i].id;
  }
  return taken[count - 1].id;
}

}  // namespace allot
