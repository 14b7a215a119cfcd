#include "src/quant_hessian.hpp"

#include <cmath>

#include "qf/calib/statistics.hpp"

namespace qf::quant::detail {

Result<HessianUse> use_hessian(const QuantizerInput& in, std::string_view method, ClipKind needed) {
  const std::int64_t k = in.w.shape[1];
  HessianUse use;
  QF_TRY_ASSIGN(use.weights, Array<float>::make(static_cast<std::size_t>(k)));
  std::fill(use.weights.begin(), use.weights.end(), 1.0f);
  if (needed == ClipKind::none || needed == ClipKind::squares) return use;
  const std::string at = cat({"tensor ", printable(in.name), ": method '", method, "' "});
  if (!in.statistics)
    return Status(Errc::invalid_argument,
                  at + "needs statistics of the layer's inputs, and there are none: give calibration text");
  const calib::LinearStatistics& s = *in.statistics;
  if (s.k != k)
    return Status(Errc::invalid_argument,
                  cat({at, "got statistics of ", num(s.k), " columns for weights of ", num(k)}));
  if (s.tokens == 0) return use;
  if (static_cast<std::int64_t>(s.hessian.size()) != k * k)
    return Status(Errc::invalid_argument,
                  cat({at, "needs a Hessian of ", num(k), " x ", num(k), ", and the statistics hold ",
                       num(s.hessian.size()), " of its elements"}));
  const MatrixView<const float> h = s.hessian_view();
  // A sum is finite only if all of it is; 0 * x is 0 or NaN.
  QF_TRY_ASSIGN(auto bad, Array<std::uint8_t>::make(static_cast<std::size_t>(k)));
  parallel_for(in.parallel, k, [&](std::int64_t i) {
    float lanes[8] = {};
    std::int64_t j = 0;
    for (; j + 8 <= k; j += 8)
      for (int lane = 0; lane < 8; ++lane) lanes[lane] += 0 * h.row(i)[j + lane];
    for (; j < k; ++j) lanes[0] += 0 * h.row(i)[j];
    float sum = 0;
    for (const float lane : lanes) sum += lane;
    bad[static_cast<std::size_t>(i)] = !(sum == 0) || !(h(i, i) >= 0);
  });
  double trace = 0;
  for (std::int64_t i = 0; i < k; ++i) {
    if (bad[static_cast<std::size_t>(i)])
      return Status(Errc::invalid_argument, cat({at, "got a Hessian whose row ", num(i),
                                                 " isn't finite or whose diagonal is negative"}));
    const float d = h(i, i);
    use.weights[static_cast<std::size_t>(i)] = d;
    trace += static_cast<double>(d);
    use.dead += d == 0;
  }
  if (trace == 0) {
    std::fill(use.weights.begin(), use.weights.end(), 1.0f);
    return use;
  }
  use.h = h;
  use.mean = trace / static_cast<double>(k);
  use.identity = false;
  return use;
}

void store_result(const float* codes, const std::int32_t* at, const PanelGrids& grids, std::int64_t first,
                  std::int64_t rows, QuantizedMatrix& matrix) {
  const std::int64_t k = matrix.k(), groups = matrix.groups();
  const auto to = matrix.codes();
  const auto top = static_cast<float>(matrix.scheme().levels() - 1);
  for (std::int64_t c = 0; c < k; ++c) {
    const float* from = codes + (at ? at[c] : c) * kPanel;
    for (std::int64_t r = 0; r < rows; ++r)
      to.row(first + r)[c] =
          from[r] >= 0 && from[r] <= top ? static_cast<std::uint8_t>(static_cast<std::int32_t>(from[r])) : 0;
  }
  const auto scales = matrix.scales(), zeros = matrix.zeros();
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t g = 0; g < groups; ++g) {
      scales(first + r, g) = grids.scale[g * kPanel + r];
      if (zeros.data) zeros(first + r, g) = grids.zero[g * kPanel + r];
    }
}

}  // namespace qf::quant::detail
