#include "allot/kernels/dense_ops.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/simd.h"

namespace allot::kernels {
namespace {

constexpr int kLanes = 16;

// y[0..Rows) x 16 outputs of one panel. Each output is one chain of fused multiply-adds over k, so
// that it does not depend on Rows or on the vectors' width. The weights of a model are not in the
// nearer caches when a step comes back to them: meanwhile the next panel, which begins where this
// one ends, is brought there.
template <typename Vector, int Rows>
ALLOT_INLINE void panelTile(const float* panel, int inputs, const float* x, float* y, int outputs,
                            int lanes) {
  constexpr int kWidth = kLanesOf<Vector>, kVectors = kLanes / kWidth;
  Vector sums[Rows][kVectors] = {};
  for (int k = 0; k < inputs; ++k) {
    __builtin_prefetch(panel + static_cast<int64_t>(inputs + k) * kLanes, 0, 2);
    Vector w[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      w[v] = loadAs<Vector>(panel + static_cast<int64_t>(k) * kLanes + v * kWidth);
    }
    for (int r = 0; r < Rows; ++r) {
      const float factor = x[static_cast<int64_t>(r) * inputs + k];
      for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * w[v];
    }
  }
  for (int r = 0; r < Rows; ++r) {
    float* out = y + static_cast<int64_t>(r) * outputs;
    if (lanes == kLanes) {
      for (int v = 0; v < kVectors; ++v) store(out + v * kWidth, sums[r][v]);
    } else {
      for (int i = 0; i < lanes; ++i) out[i] = sums[r][i / kWidth][i % kWidth];
    }
  }
}

// As many rows at a time as leave all sums in registers, then what is left, in fewer.
template <typename Vector, int Rows>
ALLOT_INLINE void panelRows(const float* panel, int inputs, const float* x, int rows, float* y,
                            int outputs, int lanes) {
  int r = 0;
  for (; r + Rows <= rows; r += Rows) {
    panelTile<Vector, Rows>(panel, inputs, x + static_cast<int64_t>(r) * inputs,
                            y + static_cast<int64_t>(r) * outputs, outputs, lanes);
  }
  if constexpr (Rows > 1) {
    if (r < rows) {
      panelRows<Vector, Rows - 1>(panel, inputs, x + static_cast<int64_t>(r) * inputs, rows - r,
                                  y + static_cast<int64_t>(r) * outputs, outputs, lanes);
    }
  }
}

ALLOT_CLONES
void multiplyPanelWide(const float* panel, int inputs, const float* x, int rows, float* y,
                       int outputs, int lanes) {
  panelRows<Float16, 8>(panel, inputs, x, rows, y, outputs, lanes);
}
ALLOT_CLONES
void multiplyPanelNarrow(const float* panel, int inputs, const float* x, int rows, float* y,
                         int outputs, int lanes) {
  panelRows<Float8, 4>(panel, inputs, x, rows, y, outputs, lanes);
}

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
  const auto multiplyPanel = hasWideVectors() ? multiplyPanelWide : multiplyPanelNarrow;
  for (int p = 0; p < panels; ++p) {
    multiplyPanel(panels_.data() + static_cast<size_t>(p) * inputs_ * kLanes, inputs_, x, rows,
                  y + p * kLanes, outputs_, std::min(kLanes, outputs_ - p * kLanes));
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
      // Below -87 the gate is 0 to float precision; above 88 expOf(-gate) is 0 as it should be.
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
    for (int i = 0; i < half; i += kLanes) {
      const Float16 first = load(x + i), second = load(x + half + i);
      const Float16 c = load(cosines + i), s = load(sines + i);
      at(x + i) = first * c - second * s;
      at(x + half + i) = second * c + first * s;
    }
  }
}

ALLOT_CLONES
void addTo(float* x, const float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] += y[i];
}

}  // namespace allot::kernels
