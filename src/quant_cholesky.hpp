// Triangular factors of Hessians, and what is solved with them.
#pragma once

#include <cstdint>
#include <span>

#include "qf/core/buffer.hpp"
#include "qf/core/parallel.hpp"
#include "qf/core/tensor.hpp"

namespace qf::quant::detail {

// A = L^T L with L lower triangular, from the last column to the first: with it the columns of a weight can be rounded
// from the first to the last, each knowing what those before it left behind. (The usual GPTQ takes the Cholesky factor
// of the inverse: its U is the inverse of this L^T.) f32 with blocks on the diagonal in f64; the backward error is
// some k times 6e-8 of sqrt(A_ii A_jj).
struct Factor {
  std::int64_t k = 0, stride = 0;
  Array<float> both;              // [k][stride]: row i holds L(i, j) for j <= i, and L(j, i) for j > i
  Array<float> inverse_diagonal;  // [k]

  const float* row(std::int64_t i) const { return both.data() + i * stride; }
};

// Factors A(i, j) = factor * h(order[i], order[j]) + (i == j ? ridge : 0); a diagonal that is 0 then counts as 1.
// `h` is symmetric and finite. Returns whether A is positive definite as far as f32 can tell; the factor is usable
// only then. Errors: out of memory. The same bytes for any ParallelFor.
Result<bool> factorize(MatrixView<const float> h, std::span<const std::int32_t> order, float factor,
                       float ridge, const ParallelFor& parallel, Factor& out);

// x [k][16] of each panel becomes that of x A^-1, row by row of the matrix whose rows are the lanes. `work` has the
// size of the panels. Panels are `panel` elements apart.
void solve_panels(const Factor& factor, float* x, float* work, std::int64_t panel, std::int64_t panels);

}  // namespace qf::quant::detail
