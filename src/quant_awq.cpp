#include "src/quant_awq.hpp"

#include <algorithm>
#include <cmath>

#include "qf/kernel/dense.hpp"
#include "qf/quant/grid.hpp"
#include "qf/quant/rtn.hpp"
#include "src/quant_hessian.hpp"

namespace qf::quant::detail {
namespace {

constexpr std::int64_t kRows = 64;  // whose errors are multiplied by H together

// mean_abs^exponent, tied channels by their mean, the largest times the smallest 1.
void make_scales(std::span<const double> sizes, double exponent, Array<float>& scales) {
  double least = HUGE_VAL, most = 0;
  for (std::size_t c = 0; c < sizes.size(); ++c) {
    const double s = std::max(std::pow(sizes[c], exponent), 1e-4);
    least = std::min(least, s);
    most = std::max(most, s);
    scales[c] = static_cast<float>(s);
  }
  const double middle = std::sqrt(least * most);
  for (float& s : scales) s = static_cast<float>(static_cast<double>(s) / middle);
}

std::vector<double> sizes_of(const ScaleSearch& search) {
  const calib::LinearStatistics& statistics = *search.statistics;
  std::vector<double> sizes(statistics.mean_abs.begin(), statistics.mean_abs.end());
  if (search.tied.empty()) return sizes;
  const std::int64_t most = *std::max_element(search.tied.begin(), search.tied.end());
  std::vector<double> sum(static_cast<std::size_t>(most + 1)), count(sum.size());
  for (std::size_t c = 0; c < sizes.size(); ++c) {
    sum[static_cast<std::size_t>(search.tied[c])] += sizes[c];
    count[static_cast<std::size_t>(search.tied[c])] += 1;
  }
  for (std::size_t c = 0; c < sizes.size(); ++c) {
    const auto slot = static_cast<std::size_t>(search.tied[c]);
    sizes[c] = sum[slot] / count[slot];
  }
  return sizes;
}

// The error D of one row when its columns are scaled. False: a group without a grid.
bool row_error(const Scheme& scheme, const float* w, std::int64_t k, const float* scales, float* scaled,
               std::uint8_t* codes, float* error) {
  for (std::int64_t c = 0; c < k; ++c) scaled[c] = w[c] * scales[c];
  const std::int64_t group = scheme.group_size(k);
  for (std::int64_t first = 0; first < k; first += group) {
    const std::int64_t count = std::min(group, k - first);
    const Range range = find_range(scaled + first, count);
    if (!range.finite) return false;
    const Grid grid = make_grid(scheme, range.lo, range.hi);
    if (!std::isfinite(grid.scale)) return false;
    nearest_codes(scheme, grid, scaled + first, count, codes);
    for (std::int64_t i = 0; i < count; ++i)
      error[first + i] =
          (static_cast<float>(codes[i]) - grid.zero) * grid.scale / scales[first + i] - w[first + i];
  }
  return true;
}

// tr(D H D^T) over all rows of a linear.
Result<double> output_error(const ScaledLinear& linear, const kernel::DenseWeight& hessian,
                            const Array<float>& scales, const ParallelFor& parallel) {
  const std::int64_t n = linear.w.shape[0], k = linear.w.shape[1], blocks = (n + kRows - 1) / kRows;
  QF_TRY_ASSIGN(auto rows, Array<double>::make(static_cast<std::size_t>(n)));
  const auto block = [&](std::int64_t b) -> Status {
    const std::int64_t first = b * kRows, count = std::min(kRows, n - first);
    QF_TRY_ASSIGN(auto scaled, Array<float>::make(static_cast<std::size_t>(k)));
    QF_TRY_ASSIGN(auto codes, Array<std::uint8_t>::make(static_cast<std::size_t>(k)));
    QF_TRY_ASSIGN(auto error, Array<float>::make(static_cast<std::size_t>(count * k)));
    QF_TRY_ASSIGN(auto product, Array<float>::make(static_cast<std::size_t>(count * k)));
    for (std::int64_t r = 0; r < count; ++r)
      if (!row_error(linear.scheme, linear.w.row(first + r), k, scales.data(), scaled.data(), codes.data(),
                     error.data() + r * k))
        return Status(Errc::invalid_argument, cat({"row ", num(first + r), " has no grid"}));
    QF_TRY(kernel::dense_matmul({error.data(), {count, k}}, hessian, {product.data(), {count, k}}));
    for (std::int64_t r = 0; r < count; ++r)
      for (std::int64_t c = 0; c < k; ++c)
        rows.data()[first + r] +=
            static_cast<double>(error.data()[r * k + c]) * static_cast<double>(product.data()[r * k + c]);
    return {};
  };
  QF_TRY(for_tasks(parallel, blocks, block));
  double sum = 0;
  for (double row : rows) sum += row;
  return sum;
}

}  // namespace

Result<Array<float>> search_scales(const ScaleSearch& search, const ParallelFor& parallel) {
  const calib::LinearStatistics& statistics = *search.statistics;
  const auto k = static_cast<std::size_t>(statistics.k);
  QF_TRY_ASSIGN(auto hessian, kernel::DenseWeight::make(statistics.k, statistics.k));
  hessian.fill(0, statistics.hessian_view());
  QF_TRY_ASSIGN(auto best, Array<float>::make(k));
  QF_TRY_ASSIGN(auto scales, Array<float>::make(k));
  for (float& s : best) s = 1;
  const std::vector<double> sizes = sizes_of(search);
  double least = HUGE_VAL;
  for (int i = 0; i < search.grid; ++i) {
    make_scales(sizes, static_cast<double>(i) / search.grid, scales);
    double error = 0;
    for (const ScaledLinear& linear : search.linears) {
      QF_TRY_ASSIGN(const double mine, output_error(linear, hessian, scales, parallel));
      error += mine;
    }
    if (!(error < least)) continue;
    least = error;
    std::copy(scales.begin(), scales.end(), best.begin());
  }
  return best;
}

}  // namespace qf::quant::detail
