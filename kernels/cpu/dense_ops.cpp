#include "allot/kernels/dense_ops.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/simd.h"

namespace allot::kernels {
namespace {

constexpr int kLanes = 16;

// One call of multiply() for neighbouring panels.
struct PanelTask {
  const float* panel;  // the first; each begins where the one before ends
  int inputs;
  const float* x;  // [rows, inputs]
  int rows;
  float* y;  // the panels' part of [rows, outputs]
  int outputs;
  int lanes;  // outputs in the panels; the last panel may be padded
};

// Computes rows first .. first + Rows - 1 of the task. Each output is one chain of multiply-adds
// over k, so that it does not depend on Rows, Panels or the vectors' width. A model's weights have
// left the nearer caches when the next step needs them, so that the next panels are prefetched.
template <typename Vector, int Panels, int Rows>
ALLOT_INLINE void panelTile(const PanelTask& task, int first) {
  constexpr int kWidth = kLanesOf<Vector>, kVectors = kLanes / kWidth;
  const int inputs = task.inputs;
  const int64_t panel_size = static_cast<int64_t>(inputs) * kLanes;
  const float* x = task.x + static_cast<int64_t>(first) * inputs;
  Vector sums[Rows][Panels][kVectors] = {};
  for (int k = 0; k < inputs; ++k) {
    Vector w[Panels][kVectors];
    for (int p = 0; p < Panels; ++p) {
      const float* weights = task.panel + p * panel_size + static_cast<int64_t>(k) * kLanes;
      __builtin_prefetch(weights + Panels * panel_size, 0, 2);
      for (int v = 0; v < kVectors; ++v) w[p][v] = loadAs<Vector>(weights + v * kWidth);
    }
    for (int r = 0; r < Rows; ++r) {
      const float factor = x[static_cast<int64_t>(r) * inputs + k];
      for (int p = 0; p < Panels; ++p) {
        for (int v = 0; v < kVectors; ++v) sums[r][p][v] += factor * w[p][v];
      }
    }
  }
  for (int r = 0; r < Rows; ++r) {
    float* out = task.y + static_cast<int64_t>(first + r) * task.outputs;
    for (int p = 0; p < Panels; ++p, out += kLanes) {
      const int lanes = std::min(kLanes, task.lanes - p * kLanes);
      if (lanes == kLanes) {
        for (int v = 0; v < kVectors; ++v) store(out + v * kWidth, sums[r][p][v]);
      } else {
        for (int i = 0; i < lanes; ++i) out[i] = sums[r][p][i / kWidth][i % kWidth];
      }
    }
  }
}

// Computes `rows` rows, at most Rows, from row `first` on.
template <typename Vector, int Panels, int Rows>
ALLOT_INLINE void tileOf(const PanelTask& task, int first, int rows) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return tileOf<Vector, Panels, Rows - 1>(task, first, rows);
  }
  panelTile<Vector, Panels, Rows>(task, first);
}

// Computes all rows in the fewest tiles of at most Rows rows, whose sums fit the registers. Tiles
// are about equally large, since a small one at the end would wait for its few sums.
template <typename Vector, int Panels, int Rows>
ALLOT_INLINE void panelRows(const PanelTask& task) {
  for (int first = 0; first < task.rows;) {
    const int left = task.rows - first, tiles = (left + Rows - 1) / Rows;
    const int rows = (left + tiles - 1) / tiles;
    tileOf<Vector, Panels, Rows>(task, first, rows);
    first += rows;
  }
}

// Loads are the limit, so that one scalar of x serves two panels. With fewer than kFewestRows rows
// the sums wait for weights, which one stream brings sooner than two. Vectors of half the width
// leave too few registers for two panels.
constexpr int kFewestRows = 9;
ALLOT_CLONES
void multiplyPanelsWide(const PanelTask& task) { panelRows<Float16, 2, 12>(task); }
ALLOT_CLONES
void multiplyPanelWide(const PanelTask& task) { panelRows<Float16, 1, 8>(task); }
ALLOT_CLONES
void multiplyPanelNarrow(const PanelTask& task) { panelRows<Float8, 1, 6>(task); }

}  // namespace

PackedWeights::PackedWeights(const float* weights, int outputs, int inputs)
    : outputs_(outputs), inputs_(inputs) {
  const int panels = (outputs + kLanes - 1) / kLanes;
  panels_.assign(static_cast<size_t>(panels) * inputs * kLanes, 0.0f);
  for (int o = 0; o < outputs; ++o) {
    float* panel = panels_.data() + static_cast<size_t>(o / kLanes) * inputs * kLanes + o % kLanes;
    for (int i = 0; i < inputs; ++i) {
      panel[static_cast<size_t>(i) * kLanes] = weights[static_cast<size_t>(o) * inputs + i];
    }
  }
}

void PackedWeights::multiply(const float* x, int rows, float* y) const {
  const int panels = (outputs_ + kLanes - 1) / kLanes;
  const bool wide = hasWideVectors();
  for (int p = 0; p < panels;) {
    const int count = wide && rows >= kFewestRows && p + 2 <= panels ? 2 : 1;
    const PanelTask task{.panel = panels_.data() + static_cast<size_t>(p) * inputs_ * kLanes,
                         .inputs = inputs_,
                         .x = x,
                         .rows = rows,
                         .y = y + p * kLanes,
                         .outputs = outputs_,
                         .lanes = std::min(count * kLanes, outputs_ - p * kLanes)};
    if (count == 2) {
      multiplyPanelsWide(task);
    } else if (wide) {
      multiplyPanelWide(task);
    } else {
      multiplyPanelNarrow(task);
    }
    p += count;
  }
}

ALLOT_CLONES
void rmsNorm(const float* x, const float* weight, int rows, int width, float eps, float* y) {
  for (int r = 0; r < rows; ++r, x += width, y += width) {
    Float16 squares = {};
    for (int i = 0; i < width; i += kLanes) squares += load(x + i) * load(x + i);
    const float factor = 1.0f / std::sqrt(sum(squares) / static_cast<float>(width) + eps);
    for (int i = 0; i < width; i += kLanes) at(y + i) = load(x + i) * factor * load(weight + i);
  }
}

ALLOT_CLONES
void gatedSilu(const float* gate_up, int rows, int width, float* out) {
  for (int r = 0; r < rows; ++r, gate_up += 2 * static_cast<int64_t>(width), out += width) {
    int i = 0;
    for (; i + kLanes <= width; i += kLanes) {
      const Float16 gate = load(gate_up + i);
      // expOf() takes at most 88. A gate below -87 gives next to 0 with the exponential of 87, too.
      const Float16 floored = gate < -87.0f ? Float16{} - 87.0f : gate;
      at(out + i) = gate / (1.0f + expOf(Float16{} - floored)) * load(gate_up + width + i);
    }
    for (; i < width; ++i) {
      out[i] = gate_up[i] / (1.0f + std::exp(-gate_up[i])) * gate_up[width + i];
    }
  }
}

ALLOT_CLONES
void applyRope(float* x, int heads, int head_dim, const float* cosines, const float* sines) {
  const int half = head_dim / 2;
  for (int h = 0; h < heads; ++h, x += head_dim) {
    int i = 0;
    for (; i + kLanes <= half; i += kLanes) {
      const Float16 first = load(x + i), second = load(x + half + i);
      const Float16 c = load(cosines + i), s = load(sines + i);
      at(x + i) = first * c - second * s;
      at(x + half + i) = second * c + first * s;
    }
    for (; i < half; ++i) {
      const float first = x[i], second = x[half + i];
      x[i] = first * cosines[i] - second * sines[i];
      x[half + i] = second * cosines[i] + first * sines[i];
    }
  }
}

ALLOT_CLONES
void addTo(float* x, const float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] += y[i];
}

}  // namespace allot::kernels
