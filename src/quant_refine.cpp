#include "src/quant_refine.hpp"

#include <cmath>

namespace qf::quant::detail {

std::int64_t descend_work(const Refinement& r) {
  return 2 * kPanel * r.row_stride;
}

std::int64_t descend(const Refinement& r, int passes) {
  // Codes that are as good as their neighbours stay, or two of them could swap for ever.
  constexpr float kEager = 0.998f;
  const std::int64_t group = r.scheme.group_size(r.k);
  std::int64_t changed = 0;
  for (std::int64_t p = 0; p < r.panels; ++p) {
    const PanelGrids grids = r.grids_of(p);
    float *scale = r.work, *rate = r.work + kPanel * r.row_stride;
    for (std::int64_t lane = 0; lane < kPanel; ++lane)
      for (std::int64_t c = 0; c < r.k; ++c) {
        const std::int64_t at = c / group * kPanel + lane;
        const float step = kEager * grids.inverse[at] / r.a.diagonal(c);
        scale[lane * r.row_stride + c] = grids.scale[at];
        rate[lane * r.row_stride + c] = std::isfinite(step) ? step : 0;
      }
    const std::int64_t first = p * kPanel * r.row_stride;
    for (int pass = 0; pass < passes; ++pass) {
      const std::int64_t now = kernel::detail::solve_ops().descend(
          {kPanel, r.k, r.row_codes + first, r.row_gradient + first, scale, rate, r.row_stride, r.a.h.data,
           r.a.h.stride[0], r.a.factor, r.a.ridge, static_cast<float>(r.scheme.levels() - 1)});
      changed += now;
      if (now == 0) break;
    }
  }
  return changed;
}

namespace {

// Sums of one group of one row. b: codes minus zero, so that values are scale * b; g: the gradient; 1: ones.
struct GroupSums {
  double bb, b1, b_g, one_g;  // b A b, b A 1, b g, 1 g
};

// The best scale and zero for the codes, as stored; the old grid where none is better.
Grid best_grid(const Scheme& scheme, Grid old, const GroupSums& s, double ones) {
  const auto scale = static_cast<double>(old.scale);
  Grid best = old;
  double best_change = 0;
  // Values become new_scale * (b + shift): the scale that suits `shift`, and what both change.
  const auto attempt = [&](float zero) {
    const double shift = static_cast<double>(old.zero) - static_cast<double>(zero);
    const double square = s.bb + 2 * shift * s.b1 + shift * shift * ones;
    const double along = s.b_g + shift * s.one_g, across = s.bb + shift * s.b1;
    if (!(square > 0)) return;
    const float rounded = round_to(scheme.scale, static_cast<float>((along + scale * across) / square));
    if (!(rounded >= kSmallestScale) || !(rounded > 0.25f * old.scale) || !(rounded < 4 * old.scale)) return;
    const auto to = static_cast<double>(rounded);
    const double change =
        -2 * (to * along - scale * s.b_g) + to * to * square - 2 * to * scale * across + scale * scale * s.bb;
    if (!(change < best_change)) return;
    best_change = change, best = {rounded, zero};
  };
  attempt(old.zero);
  if (scheme.zero == ZeroKind::floating) {
    const double determinant = s.bb * ones - s.b1 * s.b1;
    const double right_b = s.b_g + scale * s.bb, right_1 = s.one_g + scale * s.b1;
    if (determinant > 1e-9 * s.bb * ones) {
      const double to = (right_b * ones - right_1 * s.b1) / determinant;
      const double offset = (right_1 * s.bb - right_b * s.b1) / determinant;
      const auto zero = static_cast<float>(static_cast<double>(old.zero) - offset / to);
      if (std::fabs(zero) < floating_zero_limit(scheme.scale)) attempt(round_to(scheme.scale, zero));
    }
  }
  return best;
}

}  // namespace

std::int64_t refit_work(const Refinement& r) {
  return 2 * r.scheme.group_size(r.k) * kPanel * kAtOnce;
}

void refit(const Refinement& r) {
  const std::int64_t group = r.scheme.group_size(r.k);
  for (std::int64_t first = 0, g = 0; first < r.k; first += group, ++g) {
    const std::int64_t count = std::min(group, r.k - first), size = count * kPanel;
    float *b = r.work, *product = r.work + r.panels * size;
    double ones = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < count; ++j) sum += static_cast<double>(r.a.h(first + i, first + j));
      ones += static_cast<double>(r.a.factor) * sum + static_cast<double>(r.a.ridge);
    }
    for (std::int64_t p = 0; p < r.panels; ++p) {
      const float *codes = r.codes + p * r.panel + first * kPanel, *zero = r.grids_of(p).zero + g * kPanel;
      for (std::int64_t i = 0; i < size; i += kPanel)
        for (int lane = 0; lane < kPanel; ++lane) b[p * size + i + lane] = codes[i + lane] - zero[lane];
    }
    multiply({r.a.h.row(first) + first, r.a.h.stride[0], count, count, b, size, product, size, r.panels});
    for (std::int64_t p = 0; p < r.panels; ++p) {
      const float* gradient = r.gradient + p * r.panel + first * kPanel;
      const PanelGrids grids = r.grids_of(p);
      double bb[kPanel] = {}, b1[kPanel] = {}, bg[kPanel] = {}, og[kPanel] = {};
      for (std::int64_t i = 0; i < size; i += kPanel)
        for (int lane = 0; lane < kPanel; ++lane) {
          const float of = b[p * size + i + lane], to = gradient[i + lane];
          const float ab = r.a.factor * product[p * size + i + lane] + r.a.ridge * of;
          bb[lane] += static_cast<double>(of * ab), b1[lane] += static_cast<double>(ab);
          bg[lane] += static_cast<double>(of * to), og[lane] += static_cast<double>(to);
        }
      for (int lane = 0; lane < kPanel; ++lane) {
        const std::int64_t at = g * kPanel + lane;
        const Grid old{grids.scale[at], grids.zero[at]};
        const Grid now =
            old.scale == 0 ? old : best_grid(r.scheme, old, {bb[lane], b1[lane], bg[lane], og[lane]}, ones);
        grids.set(at, now);
        const float shift = old.zero - now.zero;
        // From here on b is what the values change by.
        for (std::int64_t i = lane; i < size; i += kPanel) {
          float& of = b[p * size + i];
          of = now.scale * (of + shift) - old.scale * of;
        }
      }
      float* to = r.gradient + p * r.panel + first * kPanel;
      for (std::int64_t i = 0; i < size; ++i) {
        to[i] -= r.a.ridge * b[p * size + i];
        b[p * size + i] *= -r.a.factor;
      }
    }
    multiply(
        {r.a.h.data + first, r.a.h.stride[0], r.k, count, b, size, r.gradient, r.panel, r.panels, Sum::add});
  }
}

}  // namespace qf::quant::detail
