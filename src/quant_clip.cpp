#include "src/quant_clip.hpp"

#include <cmath>

#include "qf/calib/statistics.hpp"
#include "qf/quant/rtn.hpp"
#include "src/quant_hessian.hpp"

namespace qf::quant {
namespace detail {
namespace {

constexpr int kFine = 3;  // finer shares on each side of the best coarse one

// 16 candidates, one a lane.
struct Candidates {
  alignas(64) float scale[kPanel], inverse[kPanel], zero[kPanel], share[kPanel], shift[kPanel];

  void set(int lane, Grid grid) {
    scale[lane] = grid.scale;
    inverse[lane] = grid.scale == 0 ? 0 : 1 / grid.scale;
    zero[lane] = grid.zero;
  }
};

class GroupSearch {
 public:
  GroupSearch(const ClipProblem& problem, std::int64_t group, const float* w, std::int64_t rows, float* work)
      : problem_(problem),
        first_(group * problem.scheme.group_size(problem.k)),
        count_(std::min(problem.scheme.group_size(problem.k), problem.k - first_)),
        w_(w + first_ * kPanel),
        rows_(static_cast<int>(rows)),
        work_(work) {}

  // The lane whose weights have no grid, or -1.
  int run(Candidates& best) {
    for (int lane = 0; lane < kPanel; ++lane) {
      best.set(lane, {0, 0});
      if (lane >= rows_) continue;
      float lo = w_[lane], hi = lo;
      double sum = 0;
      bool finite = true;
      for (std::int64_t i = 0; i < count_; ++i) {
        const float x = w_[i * kPanel + lane];
        lo = x < lo ? x : lo, hi = x > hi ? x : hi;
        sum += static_cast<double>(x);
        finite = finite && std::isfinite(x);
      }
      if (!finite) return lane;
      lo_[lane] = lo, hi_[lane] = hi, mean_[lane] = mean_between(lo, hi, sum, count_);
      const Grid grid = make_grid(problem_.scheme, lo, hi);
      if (!std::isfinite(grid.scale)) return lane;
      best.set(lane, grid);
      best.share[lane] = 1, best.shift[lane] = 0;
    }
    if (problem_.options.kind == ClipKind::none) return -1;
    evaluate(best, error_);
    const auto least = static_cast<float>(problem_.options.least);
    const int steps = problem_.options.steps;
    const float step = (1 - least) / static_cast<float>(steps);
    for (int i = 0; i <= steps; ++i)
      attempt(best,
              [&](int, float& share, float& shift) { share = 1 - step * static_cast<float>(i), shift = 0; });
    Candidates coarse = best;
    for (int i = -kFine; i <= kFine; ++i)
      if (i)
        attempt(best, [&](int lane, float& share, float& shift) {
          share = coarse.share[lane] + step * static_cast<float>(i) / static_cast<float>(kFine + 1);
          shift = 0;
        });
    if (problem_.scheme.zero != ZeroKind::integer || !problem_.options.zeros) return -1;
    coarse = best;
    for (int i = -1; i <= 1; ++i)
      for (const float by : {-1.0f, 1.0f})
        attempt(best, [&](int lane, float& share, float& shift) {
          share = coarse.share[lane] + step * static_cast<float>(i) / 2, shift = by;
        });
    return -1;
  }

 private:
  template <class F>
  void attempt(Candidates& best, F&& choose) {
    Candidates c;
    alignas(64) float error[kPanel];
    for (int lane = 0; lane < kPanel; ++lane) {
      if (lane >= rows_) {
        c.set(lane, {0, 0});
        continue;
      }
      choose(lane, c.share[lane], c.shift[lane]);
      c.set(lane, c.share[lane] > 0 ? shrunk_grid(problem_.scheme, lo_[lane], hi_[lane], mean_[lane],
                                                  c.share[lane], c.shift[lane])
                                    : Grid{});
    }
    evaluate(c, error);
    for (int lane = 0; lane < rows_; ++lane)
      if (error[lane] < error_[lane] && c.scale[lane] != 0) {
        error_[lane] = error[lane];
        best.scale[lane] = c.scale[lane], best.inverse[lane] = c.inverse[lane],
        best.zero[lane] = c.zero[lane];
        best.share[lane] = c.share[lane], best.shift[lane] = c.shift[lane];
      }
  }

  void evaluate(const Candidates& c, float* error) {
    const bool blocks = problem_.options.kind == ClipKind::hessian_blocks;
    kernel::detail::solve_ops().nearest({count_, w_, problem_.weights + first_, c.scale, c.inverse, c.zero,
                                         static_cast<float>(problem_.scheme.levels() - 1),
                                         blocks ? work_ : nullptr, nullptr, error});
    if (!blocks) return;
    float* product = work_ + count_ * kPanel;
    multiply(
        {problem_.h.row(first_) + first_, problem_.h.stride[0], count_, count_, work_, 0, product, 0, 1});
    for (int lane = 0; lane < kPanel; ++lane) error[lane] = 0;
    for (std::int64_t i = 0; i < count_ * kPanel; i += kPanel)
      for (int lane = 0; lane < kPanel; ++lane) error[lane] += work_[i + lane] * product[i + lane];
  }

  const ClipProblem& problem_;
  const std::int64_t first_, count_;
  const float* w_;
  const int rows_;
  float* work_;
  float lo_[kPanel] = {}, hi_[kPanel] = {}, mean_[kPanel] = {};
  alignas(64) float error_[kPanel];
};

}  // namespace

Grid shrunk_grid(const Scheme& scheme, float lo, float hi, float mean, float share, float shift) {
  const auto top = static_cast<float>(scheme.levels() - 1);
  float low = lo < 0 ? lo : 0, high = hi > 0 ? hi : 0;
  if (scheme.zero == ZeroKind::symmetric) {
    const float largest = -low > high ? -low : high;
    const float scale = round_to(scheme.scale, share * 2 * (largest / top));
    return {std::isfinite(scale) && scale >= kSmallestScale ? scale : 0, scheme.symmetric_zero()};
  }
  if (scheme.zero == ZeroKind::floating) {
    low = mean - (mean - lo) * share, high = mean + (hi - mean) * share;
    const float scale = round_to(scheme.scale, (high - low) / top);
    if (!std::isfinite(scale) || scale < kSmallestScale) return {};
    const float zero = -low / scale;
    if (!(std::fabs(zero) < floating_zero_limit(scheme.scale))) return {};
    return {scale, round_to(scheme.scale, zero)};
  }
  const float range = high / top - low / top;
  const float scale = round_to(scheme.scale, share * range);
  if (!std::isfinite(scale) || scale < kSmallestScale) return {};
  const float zero = round_even(share * -low / scale) + shift;
  return {scale, zero < 0 ? 0 : zero > top ? top : zero};
}

Status check(const ClipOptions& options) {
  if (options.kind > ClipKind::hessian_blocks)
    return Status(Errc::invalid_argument, "clip: an unknown kind of search");
  if (!(options.least > 0 && options.least <= 1))
    return Status(Errc::invalid_argument, "clip: least share of the range, expected above 0 and at most 1");
  if (options.steps < 1 || options.steps > 1000)
    return Status(Errc::invalid_argument, cat({"clip: ", num(options.steps), " steps, expected 1 to 1000"}));
  return {};
}

std::int64_t clip_work(const ClipProblem& problem) {
  return problem.options.kind == ClipKind::hessian_blocks ? 2 * kPanel * problem.scheme.group_size(problem.k)
                                                          : 0;
}

Trouble choose_grids(const ClipProblem& problem, const float* panel, std::int64_t rows, const PanelGrids& out,
                     float* work) {
  for (std::int64_t g = 0; g < problem.scheme.groups(problem.k); ++g) {
    Candidates best;
    if (const int lane = GroupSearch(problem, g, panel, rows, work).run(best); lane >= 0)
      return {true, lane, g};
    std::copy_n(best.scale, kPanel, out.scale + g * kPanel);
    std::copy_n(best.inverse, kPanel, out.inverse + g * kPanel);
    std::copy_n(best.zero, kPanel, out.zero + g * kPanel);
  }
  return {};
}

Status explain_trouble(const QuantizerInput& in, const std::string& tensor, const Trouble& trouble) {
  return explain_no_grid(in, tensor, trouble.row, trouble.group);
}

}  // namespace detail

Result<QuantizedMatrix> ClippedRtn::quantize(const QuantizerInput& in) const {
  using namespace detail;
  const Scheme& scheme = in.scheme;
  const std::string tensor = "tensor " + printable(in.name);
  QF_TRY(detail::check(options_).at(tensor));
  if (options_.kind == ClipKind::none) return Rtn{}.quantize(in);
  QF_TRY(check_input(in, name()));
  const std::int64_t n = in.w.shape[0], k = in.w.shape[1];
  QF_TRY_ASSIGN(QuantizedMatrix matrix, QuantizedMatrix::make(scheme, n, k));
  if (n == 0 || k == 0) return matrix;
  QF_TRY_ASSIGN(const HessianUse hessian, use_hessian(in, name(), options_.kind));
  const ClipProblem problem{scheme, k, hessian.clip_options(options_), hessian.weights.data(), hessian.h};

  const std::int64_t blocks = (n + kPanel - 1) / kPanel, groups = matrix.groups(),
                     group = matrix.group_size();
  QF_TRY_ASSIGN(auto troubles, Array<Trouble>::make(static_cast<std::size_t>(blocks)));
  QF_TRY(for_tasks(in.parallel, blocks, [&](std::int64_t b) -> Status {
    const std::int64_t first = b * kPanel, rows = std::min<std::int64_t>(kPanel, n - first);
    QF_TRY_ASSIGN(auto memory, Array<float>::make(static_cast<std::size_t>(
                                   2 * k * kPanel + 3 * groups * kPanel + clip_work(problem))));
    float *panel = memory.data(), *codes = panel + k * kPanel, *at = codes + k * kPanel;
    const PanelGrids grids{at, at + groups * kPanel, at + 2 * groups * kPanel};
    load_panel({in.w.row(first), {rows, k}, in.w.stride}, rows, panel);
    const Trouble trouble = choose_grids(problem, panel, rows, grids, at + 3 * groups * kPanel);
    if (trouble.is) return explain_trouble(in, tensor, {true, first + trouble.row, trouble.group});
    for (std::int64_t g = 0; g < groups; ++g) {
      alignas(64) float error[kPanel];
      const std::int64_t c = g * group;
      kernel::detail::solve_ops().nearest({std::min(group, k - c), panel + c * kPanel, problem.weights + c,
                                           grids.scale + g * kPanel, grids.inverse + g * kPanel,
                                           grids.zero + g * kPanel, static_cast<float>(scheme.levels() - 1),
                                           nullptr, codes + c * kPanel, error});
    }
    store_result(codes, nullptr, grids, first, rows, matrix);
    return {};
  }));
  return matrix;
}

}  // namespace qf::quant
