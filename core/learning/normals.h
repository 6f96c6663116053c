#pragma once
// Normal numbers that come out the same on every processor (core/learning/exact_math.h). Pure; any
// thread.
#include <array>
#include <cstddef>
#include <vector>

#include "core/random_stream.h"

namespace allot {

// Two independent standard normals (Marsaglia's polar method): of all, the one that needs no
// trigonometry.
std::array<double, 2> normals(RandomStream* random);

// `count` of them, in pairs as above.
std::vector<double> normals(size_t count, RandomStream* random);

}  // namespace allot
