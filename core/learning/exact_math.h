#pragma once
// Exponential, logarithm and integer powers that round the same on every processor.
//
// A run's updates must compute to the same bits wherever they are computed again. glibc takes
// another exp, log and pow for a processor with fused multiply-add than for one without, and they
// round otherwise; these are made of IEEE additions, multiplications, divisions alone (and of
// scaling by powers of two, which is exact), in an order that the compiler keeps: core/ is built
// without contraction. Whatever enters a policy or the history takes them. Pure functions, any
// thread; round to nearest is taken for granted.
#include <cstdint>

namespace allot {

// The arithmetic that a run is created with, which it names: `allot verify` refuses runs of another
// one. Any change of these functions, or of the order of sums in an update, is another arithmetic.
inline constexpr char kArithmetic[] = "exact-1";

// e^x, within 1 ulp (within 1.5 of the smallest one where the result is subnormal).
double exactExp(double x);

// Natural logarithm within 1 ulp; -infinity at 0, NaN below.
double exactLog(double x);

// 1 / (1 + e^-x), the probability whose log-odds are x.
double exactLogistic(double x);

// base^exponent by repeated squaring: up to `exponent` roundings.
double exactPower(double base, uint64_t exponent);

}  // namespace allot
