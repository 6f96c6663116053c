#pragma once
// The steps of quest: scores of pages, the pages kept, attention over them. Private to kernels/cpu.
// Pure functions, any thread.
#include <cstdint>
#include <vector>

#include "kernels/cpu/methods.h"

namespace allot::kernels {

// Writes a score for each page of the head's keys, from the oldest: an upper bound of the scores of
// its keys.
void scorePages(const Head& head, std::vector<float>* scores);

// Writes the pages kept by `budget` rows to the front of `order`, ascending, and returns how many.
// The newest page is one of them, whatever its score. Overwrites `scores`.
int keepPages(const Head& head, uint64_t budget, std::vector<float>* scores,
              std::vector<int32_t>* order);

// Selects all keys of the first `kept` pages of selection->order, with their softmax.
void attendToPages(const Head& head, int kept, Selection* selection);

}  // namespace allot::kernels
