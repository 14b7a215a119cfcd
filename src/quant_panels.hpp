// Matrices by lanes: 16 rows side by side in a panel [k][16], and up to kAtOnce panels that a solver works on at
// once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/solve_ops.hpp"
#include "qf/core/tensor.hpp"

namespace qf::quant::detail {

using kernel::detail::kPanel;
using kernel::detail::kTileRows;
using kernel::detail::Sum;

inline constexpr std::int64_t kAtOnce = 4;  // panels that share what is read of a k x k matrix
inline constexpr std::int64_t kBlock =
    16 * kTileRows;  // columns that a solver takes as one step of its outer loop

constexpr std::int64_t round_up(std::int64_t n, std::int64_t step) {
  return (n + step - 1) / step * step;
}

// y(r, p, lane) = sum over i < k of x[r * x_stride + i] * w(i, p, lane), i ascending, for r < rows; w and y are panels
// [..][16], `w_panel` and `y_panel` elements apart. Sum::add adds the whole sum to y, Sum::go_on starts at y.
struct Product {
  const float* x;
  std::int64_t x_stride, rows, k;
  const float* w;
  std::int64_t w_panel;
  float* y;
  std::int64_t y_panel;
  std::int64_t panels;
  Sum sum = Sum::set;
};
void multiply(const Product& product);

// Rows [0, rows) of w, at most 16, to a panel [w.shape[1]][16]; missing rows become 0.
void load_panel(MatrixView<const float> w, std::int64_t rows, float* panel);

// Column c of a row-major matrix of 16 rows, `stride` elements apart, is column at[c] of the panel (at == nullptr: c).
void panel_to_rows(const float* panel, const std::int32_t* at, std::int64_t k, float* rows,
                   std::int64_t stride);

}  // namespace qf::quant::detail
