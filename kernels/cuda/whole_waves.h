#pragma once
// The size of a prompt's chunks. Private to kernels/cuda. A pure function of the host.

namespace allot::kernels::cuda {

// Returns how many positions to read at once: of the multiples of `item` positions from 3/4 of
// `most` on, the one whose items, a head's `item` positions each, fill the largest share of whole
// waves of the multiprocessors; the largest of equals. Smaller chunks would read keys more often.
constexpr int wholeWaves(int heads, int multiprocessors, int item, int most) {
  // Shares are compared as products: items / waves against items / waves.
  int best = most, best_items = 0, best_waves = 1;
  for (int blocks = most / item; blocks > 0 && 4 * blocks * item >= 3 * most; --blocks) {
    const int items = blocks * heads, waves = (items + multiprocessors - 1) / multiprocessors;
    if (items * best_waves <= best_items * waves) continue;
    best = blocks * item;
    best_items = items;
    best_waves = waves;
  }
  return best;
}

}  // namespace allot::kernels::cuda
