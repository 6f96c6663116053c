#pragma once
// The dense half of a decode step on the CPU, in float32: projections, RMS norm, rotary positions
// (as in Hugging Face's Llama) and gated SiLU.
//
// A BLAS is not used: its results for one row change with the number of rows, and a run must give
// the same bits however its rows were batched. Here every output of a projection is one chain of
// multiply-adds over the inputs, in order.
//
// Any thread. The functions do not allocate.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace allot::kernels {

// A weight matrix [outputs, inputs] laid out for multiply(). Immutable, so that threads may share
// it.
class PackedWeights {
 public:
  PackedWeights() = default;
  PackedWeights(const float* weights, int outputs, int inputs);  // weights [outputs, inputs]

  int outputs() const { return outputs_; }
  int inputs() const { return inputs_; }
  size_t bytes() const { return panels_.size() * sizeof(float); }

  // Computes y[r, o] = sum_i x[r, i] * w[o, i]; x [rows, inputs], y [rows, outputs].
  void multiply(const float* x, int rows, float* y) const;

 private:
  int outputs_ = 0;
  int inputs_ = 0;
  std::vector<float> panels_;  // [ceil(outputs / 16), inputs, 16], zero-padded
};

// Computes y[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight; x and y [rows, width], weight [width].
// y may be the array x.
// Requires: width is a multiple of 16.
void rmsNorm(const float* x, const float* weight, int rows, int width, float eps, float* y);

// Computes out[r, i] = silu(gate_up[r, i]) * gate_up[r, width + i]; gate_up [rows, 2 * width], out
// [rows, width].
void gatedSilu(const float* gate_up, int rows, int width, float* out);

// Rotates x [heads, head_dim] in place by the angles of one position: pairs (i, i + head_dim / 2).
// cosines, sines: [head_dim / 2].
// Requires: head_dim is even.
void applyRope(float* x, int heads, int head_dim, const float* cosines, const float* sines);

// Computes x += y, `count` floats.
void addTo(float* x, const float* y, int64_t count);

}  // namespace allot::kernels
