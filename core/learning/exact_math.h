#pragma once
// Exponential, logarithm and integer powers that round the same on every processor.
//
// A run's updates must compute to the same bits wherever they are computed again. The exp, log and
// pow of glibc round otherwise on a processor with fused multiply-add than on one without. These
// functions consist of IEEE additions, multiplications, divisions and scalings by powers of two, in
// an order that the compiler keeps: core/ is built without contraction. Updates compute all
// exponentials, logarithms and powers with these functions. Pure functions, any thread.
// Requires: the processor rounds to nearest.
#include <cstdint>

namespace allot {

// The name of this arithmetic. A run stores the name that its creator had, and `allot verify`
// refuses runs of another one. A change of these functions, of the order of sums in an update, or
// of what an update publishes needs another name.
inline constexpr char kArithmetic[] = "exact-5";

// Returns e^x within 1 ulp; a subnormal result within 1.5 times the smallest subnormal.
double exactExp(double x);

// Returns the natural logarithm within 1 ulp; -infinity at 0, NaN below 0.
double exactLog(double x);

// Returns 1 / (1 + e^-x), the probability whose log-odds are x.
double exactLogistic(double x);

// Returns base^exponent by repeated squaring. The relative error grows in proportion to `exponent`.
double exactPower(double base, uint64_t exponent);

}  // namespace allot
