#include "worker/model/token_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "worker/model/token_mass.h"

namespace allot {
namespace {

// Logits are scanned in blocks, since most blocks hold no candidate.
constexpr size_t kBlock = 64;

struct Candidate {
  float logit;
  int32_t id;
  uint64_t mass;

  // The likeliest first, and of these the lowest id.
  bool operator<(const Candidate& other) const {
    return logit != other.logit ? logit > other.logit : id < other.id;
  }
};

using Candidates = std::vector<Candidate>;

uint64_t massOf(Candidates::const_iterator begin, Candidates::const_iterator end) {
  uint64_t sum = 0;
  for (; begin != end; ++begin) sum += begin->mass;
  return sum;
}

// Returns the last of the fewest likeliest tokens whose masses sum to `wanted` or more. Halves the
// set at each step instead of sorting it.
Candidate lastOfNucleus(Candidates candidates, uint64_t wanted) {
  auto low = candidates.begin(), high = candidates.end();
  while (high - low > 1) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high);
    const uint64_t half = massOf(low, middle);
    if (half >= wanted) {
      high = middle;
    } else {
      wanted -= half;
      low = middle;
    }
  }
  return *low;
}

// Returns the largest logit of each block, computed in lanes that compilers vectorise.
std::vector<float> largestOfBlocks(std::span<const float> logits) {
  constexpr size_t kLanes = 16;
  std::vector<float> largest;
  for (size_t start = 0; start < logits.size(); start += kBlock) {
    const std::span<const float> block =
        logits.subspan(start, std::min(kBlock, logits.size() - start));
    if (block.size() < kBlock) {
      largest.push_back(*std::max_element(block.begin(), block.end()));
      continue;
    }
    std::array<float, kLanes> lanes;
    std::copy_n(block.begin(), kLanes, lanes.begin());
    for (size_t i = kLanes; i < kBlock; i += kLanes) {
      for (size_t j = 0; j < kLanes; ++j) {
        lanes[j] = block[i + j] > lanes[j] ? block[i + j] : lanes[j];
      }
    }
    largest.push_back(*std::max_element(lanes.begin(), lanes.end()));
  }
  return largest;
}

int32_t likeliest(std::span<const float> logits) {
  const std::vector<float> largest = largestOfBlocks(logits);
  const auto best = std::max_element(largest.begin(), largest.end());
  const auto start = static_cast<size_t>(best - largest.begin()) * kBlock;
  return static_cast<int32_t>(
      std::find(logits.begin() + static_cast<std::ptrdiff_t>(start), logits.end(), *best) -
      logits.begin());
}

// Returns the tokens with a mass, by id. Most tokens have none and need no exponential.
Candidates candidatesOf(std::span<const float> logits, double temperature) {
  const std::vector<float> largest = largestOfBlocks(logits);
  const float highest = *std::max_element(largest.begin(), largest.end());
  const double least = highest - temperature * std::log(4 * kTokenMass);
  Candidates candidates;
  for (size_t block = 0; block < largest.size(); ++block) {
    if (largest[block] < least) continue;
    const size_t end = std::min((block + 1) * kBlock, logits.size());
    for (size_t i = block * kBlock; i < end; ++i) {
      if (logits[i] < least) continue;
      const uint64_t mass = tokenMass(logits[i], highest, temperature);
      if (mass > 0) candidates.push_back({logits[i], static_cast<int32_t>(i), mass});
    }
  }
  return candidates;
}

void dropWorse(const Candidate& last, Candidates* candidates) {
  std::erase_if(*candidates, [&](const Candidate& candidate) { return last < candidate; });
}

}  // namespace

void penaliseSeen(std::span<float> logits, std::span<const int32_t> seen, double penalty) {
  const auto divisor = static_cast<float>(penalty);
  // All logits are read before one is written: a repeated token is penalised once.
  std::vector<float> penalised;
  penalised.reserve(seen.size());
  for (const int32_t id : seen) {
    const float logit = logits[static_cast<size_t>(id)];
    penalised.push_back(logit < 0 ? logit * divisor : logit / divisor);
  }
  for (size_t i = 0; i < seen.size(); ++i) logits[static_cast<size_t>(seen[i])] = penalised[i];
}

int32_t chooseToken(std::span<const float> logits, const TokenChoice& choice, uint64_t seed,
                    uint32_t sequence, uint32_t step) {
  if (choice.temperature <= 0) {
    return likeliest(logits);
  }
  Candidates candidates = candidatesOf(logits, choice.temperature);
  const auto most = static_cast<size_t>(choice.top_k);
  if (choice.top_k > 0 && most < candidates.size()) {
    Candidates ordered = candidates;
    const auto last = ordered.begin() + choice.top_k - 1;
    std::nth_element(ordered.begin(), last, ordered.end());
    dropWorse(*last, &candidates);
  }
  if (choice.top_p < 1) {
    const uint64_t total = massOf(candidates.begin(), candidates.end());
    dropWorse(lastOfNucleus(candidates, nucleusMass(total, choice.top_p)), &candidates);
  }
  const uint64_t total = massOf(candidates.begin(), candidates.end());
  uint64_t left = drawnMass(total, seed, sequence, step);
  for (const Candidate& candidate : candidates) {
    if (left < candidate.mass) return candidate.id;
    left -= candidate.mass;
  }
  return candidates.back().id;  // not reached: drawn is less than the total
}

}  // namespace allot
