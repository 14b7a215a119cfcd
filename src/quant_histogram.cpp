#include "qf/quant/histogram.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "qf/quant/rtn.hpp"
#include "src/quant_hessian.hpp"

namespace qf::quant {
namespace {

using namespace detail;

// A group's weights about their centre: 0, with floating zeros their mean. The larger side is 1.
class Spread {
 public:
  Spread(const Scheme& scheme, const float* w, std::int64_t count, const Range& range) : range_(range) {
    if (scheme.zero == ZeroKind::floating) {
      double sum = 0;
      for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(w[i]);
      centre_ = std::clamp(static_cast<float>(sum / static_cast<double>(count)), range.lo, range.hi);
    }
    side_ = std::max(range.hi - centre_, centre_ - range.lo);
    over_ = side_ >= kSmallestScale ? 1 / side_ : 0;
  }
  float operator()(float w) const { return std::fabs(w - centre_) * over_; }
  // What a cut at `share` of the larger side leaves of the range.
  Range cut(float share) const {
    return {std::max(range_.lo, centre_ - share * side_), std::min(range_.hi, centre_ + share * side_), true};
  }

 private:
  Range range_;
  float centre_ = 0, side_, over_;
};

// Of rows [first, end), into counts. Trouble: a group without a grid.
Trouble count_rows(const QuantizerInput& in, std::int64_t first, std::int64_t end,
                   std::span<std::int64_t> counts) {
  const std::int64_t k = in.w.shape[1], group = in.scheme.group_size(k);
  const auto bins = static_cast<std::int64_t>(counts.size());
  for (std::int64_t r = first; r < end; ++r)
    for (std::int64_t c = 0, g = 0; c < k; c += group, ++g) {
      const std::int64_t count = std::min(group, k - c);
      const float* w = in.w.row(r) + c;
      const Range range = find_range(w, count);
      if (!range.finite || !std::isfinite(make_grid(in.scheme, range.lo, range.hi).scale))
        return {true, r, g};
      const Spread spread(in.scheme, w, count, range);
      for (std::int64_t i = 0; i < count; ++i) {
        const auto bin = static_cast<std::int64_t>(spread(w[i]) * static_cast<float>(bins));
        ++counts[static_cast<std::size_t>(std::min(bin, bins - 1))];
      }
    }
  return {};
}

std::int64_t percentile_cut(std::span<const std::int64_t> counts, double share) {
  std::int64_t total = 0, outside = 0;
  for (const std::int64_t count : counts) total += count;
  auto keep = static_cast<std::int64_t>(counts.size());
  while (keep > 1) {
    outside += counts[static_cast<std::size_t>(keep - 1)];
    if (static_cast<double>(outside) > share * static_cast<double>(total)) break;
    --keep;
  }
  return keep;
}

}  // namespace

std::int64_t entropy_cut(std::span<const std::int64_t> counts, int levels) {
  const auto bins = static_cast<std::int64_t>(counts.size());
  std::int64_t last = bins;
  while (last > 0 && counts[static_cast<std::size_t>(last - 1)] == 0) --last;
  if (last <= levels) return bins;
  double total = 0;
  for (const std::int64_t count : counts) total += static_cast<double>(count);
  std::int64_t best = bins;
  double least = HUGE_VAL, inside = 0;
  for (std::int64_t i = 0; i < levels; ++i)
    inside += static_cast<double>(counts[static_cast<std::size_t>(i)]);
  for (std::int64_t keep = levels; keep <= last; ++keep) {
    if (keep > levels) inside += static_cast<double>(counts[static_cast<std::size_t>(keep - 1)]);
    if (inside == 0) continue;
    // P: bins below `keep`, the last with all beyond. Q: each level spreads its count over its occupied bins.
    const double outside = total - inside;
    double divergence = 0;
    for (int level = 0; level < levels; ++level) {
      const std::int64_t begin = level * keep / levels, end = (level + 1) * keep / levels;
      double sum = 0, occupied = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        sum += static_cast<double>(counts[static_cast<std::size_t>(i)]);
        occupied += counts[static_cast<std::size_t>(i)] > 0;
      }
      for (std::int64_t i = begin; i < end; ++i) {
        const auto count = static_cast<double>(counts[static_cast<std::size_t>(i)]);
        const double p = (count + (i == keep - 1 ? outside : 0)) / total;
        if (p == 0) continue;
        const double q = count > 0 ? sum / occupied / inside : 0;
        divergence += p * std::log(p / std::max(q, 1e-9));
      }
    }
    if (divergence < least) least = divergence, best = keep;
  }
  return best == last ? bins : best;
}

Result<QuantizedMatrix> HistogramRtn::quantize(const QuantizerInput& in) const {
  const std::string tensor = "tensor " + printable(in.name);
  if (options_.bins < 16 || options_.bins > 65536)
    return Status(Errc::invalid_argument,
                  cat({tensor, ": ", num(options_.bins), " bins, expected 16 to 65536"}));
  if (!(options_.share >= 0 && options_.share <= 0.5))
    return Status(Errc::invalid_argument, tensor + ": share of weights outside, expected 0 to 0.5");
  QF_TRY(check_input(in, name()));
  const std::int64_t n = in.w.shape[0], k = in.w.shape[1];
  QF_TRY_ASSIGN(QuantizedMatrix matrix, QuantizedMatrix::make(in.scheme, n, k));
  if (n == 0 || k == 0) return matrix;

  // Counts are whole numbers: in which order parts are added doesn't matter.
  const auto bins = static_cast<std::size_t>(options_.bins);
  const std::int64_t parts = std::clamp<std::int64_t>(in.parallel.threads, 1, 64),
                     rows = (n + parts - 1) / parts;
  QF_TRY_ASSIGN(auto counts, Array<std::int64_t>::make(static_cast<std::size_t>(parts) * bins));
  QF_TRY(for_tasks(in.parallel, parts, [&](std::int64_t part) -> Status {
    const Trouble trouble =
        count_rows(in, std::min(n, part * rows), std::min(n, (part + 1) * rows),
                   std::span<std::int64_t>(counts.data() + static_cast<std::size_t>(part) * bins, bins));
    return trouble.is ? explain_trouble(in, tensor, trouble) : Status();
  }));
  for (std::size_t i = bins; i < counts.size(); ++i) counts[i % bins] += counts[i];
  const std::span<const std::int64_t> all(counts.data(), bins);
  const std::int64_t keep = options_.kind == HistogramKind::entropy
                                ? entropy_cut(all, std::max(1, in.scheme.levels() / 2))
                                : percentile_cut(all, options_.share);
  const float share = static_cast<float>(keep) / static_cast<float>(bins);

  const std::int64_t group = matrix.group_size();
  const auto codes = matrix.codes();
  const auto scales = matrix.scales(), zeros = matrix.zeros();
  parallel_for(in.parallel, n, [&](std::int64_t r) {
    for (std::int64_t g = 0; g < matrix.groups(); ++g) {
      const std::int64_t c = g * group, count = std::min(group, k - c);
      const float* w = in.w.row(r) + c;
      Range range = find_range(w, count);
      if (share < 1) range = Spread(in.scheme, w, count, range).cut(share);
      const Grid grid = make_grid(in.scheme, range.lo, range.hi);
      scales(r, g) = grid.scale;
      if (zeros.data) zeros(r, g) = grid.zero;
      nearest_codes(in.scheme, grid, w, count, codes.row(r) + c);
    }
  });
  return matrix;
}

}  // namespace qf::quant
