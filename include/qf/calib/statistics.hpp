// What the inputs of one linear layer look like, collected over a calibration text: all that a quantizer may know
// about the data.
#pragma once

#include <cstdint>

#include "qf/core/buffer.hpp"
#include "qf/core/tensor.hpp"

namespace qf::calib {

// Of a linear y = x w^T with x [tokens, k]. Arrays that weren't asked for are empty. Sums were taken in f64 or in
// f32 blocks added in f64, in an order that doesn't depend on threads.
struct LinearStatistics {
  std::int64_t k = 0;
  std::int64_t tokens = 0;  // rows of x that were seen; 0: nothing is known
  Array<float> hessian;     // [k, k], mean of x x^T; both triangles are filled, symmetric to the bit
  // [k, k], mean of (x_float - x)^T x, row i = channel i of the difference: how the inputs of the float model, at
  // the same tokens, differ from x, which then came through the already quantized prefix (GPTAQ,
  // arXiv:2504.02692).
  Array<float> cross;
  Array<float> mean, mean_abs, min, max;  // [k]

  MatrixView<const float> hessian_view() const { return {hessian.data(), {hessian.empty() ? 0 : k, k}}; }
  MatrixView<const float> cross_view() const { return {cross.data(), {cross.empty() ? 0 : k, k}}; }
};

}  // namespace qf::calib
