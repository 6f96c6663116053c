#include "core/learning/normals.h"

#include <cmath>

#include "core/learning/exact_math.h"

namespace allot {

std::array<double, 2> normals(RandomStream* random) {
  for (;;) {
    const double x = 2 * random->uniform() - 1, y = 2 * random->uniform() - 1;
    const double square = x * x + y * y;
    if (square >= 1 || square == 0) continue;
    const double scale = std::sqrt(-2 * exactLog(square) / square);
    return {x * scale, y * scale};
  }
}

std::vector<double> normals(size_t count, RandomStream* random) {
  std::vector<double> drawn(count);
  for (size_t i = 0; i < count; i += 2) {
    const auto pair = normals(random);
    drawn[i] = pair[0];
    if (i + 1 < count) drawn[i + 1] = pair[1];
  }
  return drawn;
}

}  // namespace allot
