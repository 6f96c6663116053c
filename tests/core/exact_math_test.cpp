// Our exp and log: close to the true values, and the same bits everywhere. ctest runs these twice,
// the second time with the variants of libm that a processor without FMA would take.
#include "core/learning/exact_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace allot {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSmallest = std::numeric_limits<double>::denorm_min();
constexpr double kLargest = std::numeric_limits<double>::max();

// Distance to the true value in units of its last place. long double has 11 bits more.
double ulps(double value, long double truth) {
  const double nearest = std::abs(static_cast<double>(truth));
  const long double unit = static_cast<long double>(std::nextafter(nearest, kInfinity)) - nearest;
  return static_cast<double>(std::abs(value - truth) / unit);
}

double worstExp(std::vector<double> arguments) {
  double worst = 0;
  for (const double x : arguments)
    worst = std::max(worst, ulps(exactExp(x), std::exp((long double)x)));
  return worst;
}

double worstLog(std::vector<double> arguments) {
  double worst = 0;
  for (const double x : arguments)
    worst = std::max(worst, ulps(exactLog(x), std::log((long double)x)));
  return worst;
}

std::vector<double> uniform(double from, double to, size_t count = 200'000) {
  std::mt19937_64 random(1);
  std::vector<double> numbers(count);
  for (double& x : numbers) x = from + (to - from) * static_cast<double>(random() >> 11) * 0x1p-53;
  return numbers;
}

// Positive finite doubles of every exponent, subnormals among them.
std::vector<double> anyPositive(size_t count = 200'000) {
  std::mt19937_64 random(2);
  std::vector<double> numbers(count);
  for (double& x : numbers) {
    const uint64_t bits = random() % 0x7ff0000000000000;
    std::memcpy(&x, &bits, sizeof x);
  }
  return numbers;
}

// Both neighbours of multiples of ln(2) / 2, where the reduction goes over to the next one.
std::vector<double> aroundHalfSteps() {
  std::vector<double> numbers;
  for (int step = -2148; step <= 2046; ++step) {
    const double x = step * 0x1.62e42fefa39efp-2;
    for (const double near : {std::nextafter(x, -kInfinity), x, std::nextafter(x, kInfinity)}) {
      if (near < 709.78 && near > -708.39) numbers.push_back(near);
    }
  }
  return numbers;
}

TEST(ExactMath, ExpIsWithinOneUlp) {
  EXPECT_LT(worstExp(uniform(-0.35, 0.35)), 1);
  EXPECT_LT(worstExp(uniform(-40, 40)), 1);
  EXPECT_LT(worstExp(uniform(-708.39, 709.78)), 1);
  EXPECT_LT(worstExp(aroundHalfSteps()), 1);
  EXPECT_LT(worstExp({0x1p-30, -0x1p-30, 0x1p-54, -0x1p-54, kSmallest, -kSmallest, 1, -1}), 1);
  EXPECT_LT(worstExp(uniform(-745.13, -708.39)), 1.5);  // subnormal results are rounded twice
}

TEST(ExactMath, LogIsWithinOneUlp) {
  EXPECT_LT(worstLog(uniform(0.5, 2)), 1);
  EXPECT_LT(worstLog(uniform(1 - 1e-6, 1 + 1e-6)), 1);
  EXPECT_LT(worstLog(uniform(0, 1e6)), 1);
  EXPECT_LT(worstLog(uniform(0, 0x1p-1022)), 1);  // subnormal
  EXPECT_LT(worstLog(anyPositive()), 1);
  const double half = std::sqrt(0.5);
  EXPECT_LT(worstLog({kSmallest, 0x1p-1022, kLargest, half, std::nextafter(half, 0),
                      std::nextafter(half, 1), 2 * half, std::nextafter(2 * half, 2),
                      std::nextafter(1, 0), std::nextafter(1, 2)}),
            1);
}

TEST(ExactMath, EdgesAreThoseOfIeee) {
  EXPECT_EQ(exactExp(0.0), 1);
  EXPECT_EQ(exactExp(-0.0), 1);
  EXPECT_EQ(exactExp(kInfinity), kInfinity);
  EXPECT_EQ(exactExp(-kInfinity), 0);
  EXPECT_EQ(exactExp(kLargest), kInfinity);
  EXPECT_EQ(exactExp(-kLargest), 0);
  EXPECT_EQ(exactExp(709.79), kInfinity);
  EXPECT_LT(exactExp(709.78), kInfinity);
  EXPECT_EQ(exactExp(-745.14), 0);
  EXPECT_EQ(exactExp(-745.13), kSmallest);
  EXPECT_TRUE(std::isnan(exactExp(NAN)));
  EXPECT_EQ(exactLog(1), 0);
  EXPECT_FALSE(std::signbit(exactLog(1)));
  EXPECT_EQ(exactLog(0.0), -kInfinity);
  EXPECT_EQ(exactLog(-0.0), -kInfinity);
  EXPECT_EQ(exactLog(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(exactLog(-1)));
  EXPECT_TRUE(std::isnan(exactLog(-kInfinity)));
  EXPECT_TRUE(std::isnan(exactLog(NAN)));
}

TEST(ExactMath, PowersAreProducts) {
  EXPECT_EQ(exactPower(0.9, 0), 1);
  EXPECT_EQ(exactPower(0.9, 1), 0.9);
  EXPECT_EQ(exactPower(3, 20), 3486784401);
  EXPECT_EQ(exactPower(-2, 63), -0x1p63);
  EXPECT_EQ(exactPower(0.5, 1074), kSmallest);
  EXPECT_EQ(exactPower(0.9, uint64_t{1} << 60), 0);
  EXPECT_EQ(exactPower(0, 0), 1);
  for (uint64_t n = 1; n <= 100'000; n = n * 3 + 1) {
    EXPECT_LE(ulps(exactPower(0.999, n), std::pow((long double)0.999, (long double)n)),
              static_cast<double>(n))
        << n;
  }
}

// Each of these bits is what every build on every x86-64 processor must give. A change of any is
// another kArithmetic.
TEST(ExactMath, GoldenBits) {
  EXPECT_STREQ(kArithmetic, "exact-5");
  const std::vector<std::pair<double, double>> exponentials = {
      {0x1.999999999999ap-4, 0x1.1aec7b35a00d4p+0},
      {-0x1.999999999999ap-4, 0x1.cf46d99d52b3ap-1},
      {0x1p-1, 0x1.a61298e1e069cp+0},
      {0x1p+0, 0x1.5bf0a8b14576ap+1},
      {-0x1p+0, 0x1.78b56362cef38p-2},
      {-0x1.62e42fefa39fp-2, 0x1.6a09e667f3bccp-1},
      {0x1.62e42fefa39efp-2, 0x1.6a09e667f3bccp+0},
      {-0x1.26bb1bbb55516p+1, 0x1.9999999999998p-4},
      {0x1.921fb54442d18p+1, 0x1.724046eb09339p+4},
      {-0x1.dp+2, 0x1.7455fe323fafep-11},
      {0x1.12e0be826d695p-30, 0x1.000000044b83p+0},
      {-0x1.56e1fc2f8f359p-997, 0x1p+0},
      {0x1.2cp+5, 0x1.1293919c201e5p+54},
      {-0x1.25e4f7b2737fap+5, 0x1.0000000000003p-53},
      {0x1.62p+6, 0x1.99b987155fe28p+127},
      {-0x1.2cp+8, 0x1.245639c3a49f7p-433},
      {-0x1.5e2p+9, 0x1.af5fe9a485c8ep-1011},
      {0x1.62d999999999ap+9, 0x1.d75ae7a50ee14p+1023},
      {-0x1.624p+9, 0x0.e6cf6d08897acp-1022},
      {-0x1.72p+9, 0x0.0000000000055p-1022},
  };
  for (const auto& [x, y] : exponentials) EXPECT_EQ(exactExp(x), y) << x;
  const std::vector<std::pair<double, double>> logarithms = {
      {0x1.999999999999ap-4, -0x1.26bb1bbb55515p+1},
      {0x1p-1, -0x1.62e42fefa39efp-1},
      {0x1.6a09e667f3bccp-1, -0x1.62e42fefa39f1p-2},
      {0x1.6a09e667f3bcdp-1, -0x1.62e42fefa39eep-2},
      {0x1.fffffffffffffp-1, -0x1p-53},
      {0x1.0000000000001p+0, 0x1.fffffffffffffp-53},
      {0x1.4p+0, 0x1.c8ff7c79a9a22p-3},
      {0x1.6a09e667f3bcdp+0, 0x1.62e42fefa39fp-2},
      {0x1.5bf0a8b145769p+1, 0x1p+0},
      {0x1.8p+1, 0x1.193ea7aad030ap+0},
      {0x1.4p+3, 0x1.26bb1bbb55516p+1},
      {0x1.a9fbe76c8b439p-7, -0x1.15f0883f73978p+2},
      {0x1.12e0be826d695p-30, -0x1.4b927f32bffb8p+4},
      {0x1.d6f3454p+26, 0x1.2a1a38bd0540ap+4},
      {0x1.7e43c8800759cp+996, 0x1.5963447f87fb5p+9},
      {0x1.56e1fc2f8f359p-997, -0x1.5963447f87fb5p+9},
      {0x0.0000000000001p-1022, -0x1.74385446d71c3p+9},
      {0x1p-1022, -0x1.6232bdd7abcd2p+9},
      {0x1.fffffffffffffp+1023, 0x1.62e42fefa39efp+9},
      {0x1.5555555555555p-2, -0x1.193ea7aad030bp+0},
  };
  for (const auto& [x, y] : logarithms) EXPECT_EQ(exactLog(x), y) << x;
  EXPECT_EQ(exactPower(0.9, 7), 0x1.e9c6a99d1cdcp-2);
  EXPECT_EQ(exactPower(0.999, 150), 0x1.b8a63fdc48f06p-1);
  EXPECT_EQ(exactPower(0.999, 12345), 0x1.22391fb9458bp-18);
  EXPECT_EQ(exactPower(0.9, 1000), 0x1.fee7413dac412p-153);
}

// What libm rounds differs between processors: nothing in core/ may take it but what is exact
// there (sqrt, fabs, floor, frexp, ldexp and their like).
TEST(ExactMath, NothingElseInCoreTakesFunctionsThatRoundByProcessor) {
  const char* const rounding[] = {"exp",  "exp2", "expm1", "log",  "log2", "log10", "log1p", "pow",
                                  "cbrt", "sin",  "cos",   "tan",  "tanh", "erf",   "hypot", "fma",
                                  "sinh", "cosh", "atan",  "asin", "acos", "atan2", "lgamma"};
  size_t files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(ALLOT_SOURCE_DIR "/core")) {
    if (entry.path().extension() != ".cpp" && entry.path().extension() != ".h") continue;
    ++files;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      line = line.substr(0, line.find("//"));
      for (const std::string name : rounding) {
        for (const char* before : {"std::", " ", "("}) {
          EXPECT_EQ(line.find(before + name + "("), std::string::npos) << entry.path() << line;
        }
      }
    }
  }
  EXPECT_GT(files, 30u);
}

}  // namespace
}  // namespace allot
