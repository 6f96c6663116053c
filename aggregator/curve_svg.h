#pragma once
// Accuracy against total budget as a stand-alone SVG picture (curve.svg of a run's report).
//
// Pure function, any thread. The picture has its own background and follows the viewer's light or
// dark theme, so that it reads well in a README on either.
#include <cstdint>
#include <string>
#include <vector>

namespace allot {

// One cell of an evaluation grid, graded with the schedules of one policy version.
struct CurvePoint {
  std::string method;
  std::string schedule;       // "dense" is drawn as one dashed level, whatever its budget
  uint64_t version = 0;       // policy version
  uint64_t total_budget = 0;  // draws per head and decode step, summed over the layers
  uint64_t n = 0;             // questions graded
  double accuracy = 0;        // share of n, 0..1
  double low = 0;             // 95 % interval
  double high = 0;
};

// Points of one method and schedule make one line. `title` goes above the picture. Text is escaped.
std::string curveSvg(const std::string& title, const std::vector<CurvePoint>& points);

}  // namespace allot
