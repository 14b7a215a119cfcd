// Round to nearest: every weight takes the closest code of its group's grid, without calibration. The measure
// that all other methods have to beat, and the one that always works.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "qf/core/buffer.hpp"
#include "qf/quant/grid.hpp"
#include "qf/quant/quantizer.hpp"

namespace qf::quant {
namespace detail {

// Smallest and largest of `count` weights, and whether all are finite. Eight lanes, so that compilers
// vectorize it; the order of comparing doesn't change the result.
struct Range {
  float lo, hi;
  bool finite;
};
inline Range find_range(const float* w, std::int64_t count) {
  constexpr int kLanes = 8;
  float lo[kLanes], hi[kLanes];
  std::uint32_t bad[kLanes] = {};
  for (int j = 0; j < kLanes; ++j) lo[j] = hi[j] = w[0];
  const auto see = [&](float x, int j) {
    lo[j] = x < lo[j] ? x : lo[j];
    hi[j] = x > hi[j] ? x : hi[j];
    bad[j] |= (std::bit_cast<std::uint32_t>(x) & 0x7fffffffu) >= 0x7f800000u ? 1u : 0u;
  };
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int j = 0; j < kLanes; ++j) see(w[i + j], j);
  for (; i < count; ++i) see(w[i], 0);
  Range range{lo[0], hi[0], true};
  for (int j = 0; j < kLanes; ++j) {
    range.lo = std::min(range.lo, lo[j]);
    range.hi = std::max(range.hi, hi[j]);
    range.finite = range.finite && bad[j] == 0;
  }
  return range;
}

// Scheme, layout and codebook, as methods ask for that make codes on grids. Errors name method and tensor.
inline Status check_input(const QuantizerInput& in, std::string_view method) {
  const std::string tensor = "tensor " + printable(in.name);
  QF_TRY(check(in.scheme).at(tensor));
  if (in.scheme.codebook != CodebookKind::none)
    return Status(Errc::unsupported, cat({tensor, ": method '", method, "' makes no codebooks"}));
  if (in.w.stride[1] != 1)
    return Status(Errc::invalid_argument, tensor + ": weights of a row must lie side by side");
  return {};
}

// Why group g of a row has no grid: a weight that isn't finite, or a scale that is too large.
inline Status explain_no_grid(const QuantizerInput& in, const std::string& tensor, std::int64_t row,
                              std::int64_t g) {
  const std::int64_t group = in.scheme.group_size(in.w.shape[1]);
  const std::int64_t first = g * group, end = std::min(first + group, in.w.shape[1]);
  const std::string at = cat({tensor, ": row ", num(in.first_row + row)});
  for (std::int64_t c = first; c < end; ++c)
    if (const float w = in.w.row(row)[c]; !std::isfinite(w))
      return Status(Errc::bad_format, cat({at, ", column ", num(c), ": weight is ",
                                           std::isnan(w) ? "NaN" : "infinite", ", finite expected"}));
  const bool f32 = in.scheme.scale == DType::f32;
  return Status(Errc::invalid_argument, cat({at, ", columns ", num(first), " to ", num(end - 1),
                                             ": the scale doesn't fit ", dtype_name(in.scheme.scale),
                                             f32 ? "" : "; use scales of type ", f32 ? "" : "BF16 or F32"}));
}

}  // namespace detail

// 1 to 8 bits, symmetric, integer or floating zero, any group, ragged last group included. Scales and zeros
// are rounded to their stored type before codes are chosen, and scales round up: |w - value| <= scale / 2 for
// every weight (up to the rounding of float arithmetic), hence ||W - Q(W)||_F <= step/2 * sqrt(n k) with
// `step` the largest scale. A group of zeros has scale 0. The same bytes for any ParallelFor. Errors:
// Errc::bad_format, a NaN or infinite weight; Errc::invalid_argument, a group whose scale doesn't fit its
// type; Errc::unsupported, a codebook. They name tensor, row and column.
class Rtn {
 public:
  static constexpr std::string_view name() { return "rtn"; }

  Result<QuantizedMatrix> quantize(const QuantizerInput& in) const {
    const Scheme& scheme = in.scheme;
    const std::string tensor = "tensor " + printable(in.name);
    QF_TRY(detail::check_input(in, name()));
    const std::int64_t n = in.w.shape[0], k = in.w.shape[1];
    QF_TRY_ASSIGN(QuantizedMatrix matrix, QuantizedMatrix::make(scheme, n, k));
    if (n == 0 || k == 0) return matrix;

    const std::int64_t blocks = (n + kRows - 1) / kRows;
    QF_TRY_ASSIGN(Array<Trouble> troubles, Array<Trouble>::make(static_cast<std::size_t>(blocks)));
    const auto codes = matrix.codes();
    const auto scales = matrix.scales(), zeros = matrix.zeros();
    const std::int64_t group = matrix.group_size(), groups = matrix.groups();
    parallel_for(in.parallel, blocks, [&](std::int64_t b) {
      for (std::int64_t r = b * kRows; r < std::min(n, (b + 1) * kRows); ++r)
        for (std::int64_t g = 0; g < groups; ++g) {
          const std::int64_t first = g * group, count = std::min(group, k - first);
          const float* w = in.w.row(r) + first;
          const detail::Range range = detail::find_range(w, count);
          Grid grid;
          if (range.finite) grid = make_grid(scheme, range.lo, range.hi);
          if (!range.finite || !std::isfinite(grid.scale)) {
            troubles[static_cast<std::size_t>(b)] = {true, r, g};
            return;
          }
          scales(r, g) = grid.scale;
          if (zeros.data) zeros(r, g) = grid.zero;
          nearest_codes(scheme, grid, w, count, codes.row(r) + first);
        }
    });
    for (const Trouble& trouble : troubles)
      if (trouble.is) return detail::explain_no_grid(in, tensor, trouble.row, trouble.group);
    return matrix;
  }

 private:
  static constexpr std::int64_t kRows = 16;  // a task: enough work to outweigh handing it out
  struct Trouble {
    bool is;
    std::int64_t row, group;
  };
};
static_assert(Quantizer<Rtn>);

}  // namespace qf::quant
