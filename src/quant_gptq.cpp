#include "qf/quant/gptq.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "qf/calib/statistics.hpp"
#include "src/quant_cholesky.hpp"
#include "src/quant_hessian.hpp"
#include "src/quant_refine.hpp"

namespace qf::quant {
namespace {

using namespace detail;

// What all rows share.
struct Problem {
  const GptqOptions& options;
  const QuantizerInput& in;
  std::int64_t n, k, groups, group;
  HessianUse hessian;
  DampedHessian damped{};
  ClipProblem clip{};
  std::vector<std::int32_t> order, place;      // order[j]: the column that is the j-th; place is its inverse
  std::vector<std::int32_t> group_in_order{};  // of the j-th column
  Factor factor{};
  Array<float> ones{};   // [k], for searches that don't weigh
  Array<float> cross{};  // [k][k], row j: the j-th column of statistics->cross; empty without a target
  bool measure = false;
};

Status check_options(const GptqOptions& o) {
  QF_TRY(detail::check(o.clip));
  if (!(o.damping >= 0 && o.damping <= 1))
    return Status(Errc::invalid_argument, "damping, expected a share from 0 to 1");
  if (!(o.alpha >= 0 && o.alpha <= 1)) return Status(Errc::invalid_argument, "alpha, expected 0 to 1");
  if (o.descents < 0 || o.descents > 100 || o.refits < 0 || o.refits > 100)
    return Status(Errc::invalid_argument, "descents and refits, expected 0 to 100");
  return {};
}

Status load_cross(const QuantizerInput& in, std::string_view method, Problem& p) {
  const std::int64_t k = p.k;
  const calib::LinearStatistics& s = *in.statistics;
  const std::string at = cat({"tensor ", printable(in.name), ": method '", method, "' "});
  if (static_cast<std::int64_t>(s.cross.size()) != k * k)
    return Status(
        Errc::invalid_argument,
        cat({at, "with alpha above 0 needs how inputs differ from the float model's (cross, ", num(k), " x ",
             num(k), "), and the statistics hold ", num(s.cross.size()), " of its elements"}));
  QF_TRY_ASSIGN(p.cross, Array<float>::make(static_cast<std::size_t>(k * k)));
  QF_TRY_ASSIGN(auto bad, Array<std::uint8_t>::make(static_cast<std::size_t>(k)));
  const MatrixView<const float> cross = s.cross_view();
  parallel_for(in.parallel, k, [&](std::int64_t j) {
    const std::int64_t column = p.order[static_cast<std::size_t>(j)];
    float sum = 0;
    for (std::int64_t i = 0; i < k; ++i) {
      const float x = cross.row(i)[column];
      p.cross.data()[j * k + i] = x;
      sum += 0 * x;
    }
    bad[static_cast<std::size_t>(j)] = !(sum == 0);
  });
  for (std::int64_t j = 0; j < k; ++j)
    if (bad[static_cast<std::size_t>(j)])
      return Status(Errc::invalid_argument,
                    cat({at, "got a cross matrix whose column ", num(p.order[static_cast<std::size_t>(j)]),
                         " isn't finite"}));
  return {};
}

// The order of columns, and the factor of the Hessian in that order with as much damping as it takes.
Status prepare(const QuantizerInput& in, std::string_view method, Problem& p, GptqReport& report) {
  p.order.resize(static_cast<std::size_t>(p.k));
  std::iota(p.order.begin(), p.order.end(), 0);
  if (p.options.act_order)
    std::stable_sort(p.order.begin(), p.order.end(), [&](std::int32_t a, std::int32_t b) {
      return p.hessian.weights[static_cast<std::size_t>(a)] > p.hessian.weights[static_cast<std::size_t>(b)];
    });
  p.place.resize(p.order.size());
  p.group_in_order.resize(p.order.size());
  for (std::size_t j = 0; j < p.order.size(); ++j) {
    p.place[static_cast<std::size_t>(p.order[j])] = static_cast<std::int32_t>(j);
    p.group_in_order[j] = static_cast<std::int32_t>(p.order[j] / p.group);
  }
  // A power of two brings the mean of the diagonal near 1, whatever the unit of the inputs.
  const double unit = std::ldexp(1.0, std::clamp(-std::ilogb(p.hessian.mean), -120, 120));
  p.damped.h = p.hessian.h;
  p.damped.factor = static_cast<float>(unit);
  constexpr double kFirst = 1e-4, kMost = 1e6;  // by then the diagonal outweighs everything else
  for (double damping = p.options.damping; damping <= kMost;
       damping = damping < kFirst ? kFirst : damping * 10) {
    ++report.dampings_tried;
    report.damping = damping;
    p.damped.ridge = static_cast<float>(damping * p.hessian.mean * unit);
    QF_TRY_ASSIGN(const bool done,
                  factorize(p.damped.h, p.order, p.damped.factor, p.damped.ridge, in.parallel, p.factor));
    if (done) return {};
  }
  return Status(Errc::invalid_argument, cat({"tensor ", printable(in.name), ": method '", method,
                                             "' got a Hessian that no damping makes positive definite"}));
}

// Up to kAtOnce panels of rows, all the way to codes.
class RowBlock {
 public:
  RowBlock(const Problem& p, std::int64_t first)
      : p_(p),
        first_(first),
        rows_(std::min(p.n - first, kAtOnce * kPanel)),
        panels_((rows_ + kPanel - 1) / kPanel) {}

  Status allocate() {
    const std::int64_t k16 = round_up(p_.k, kPanel), all = panels_ * k16 * kPanel;
    panel_ = p_.k * kPanel, grid_panel_ = p_.groups * kPanel;
    Refinement& r = refinement_;
    r.scheme = p_.in.scheme, r.k = p_.k, r.a = p_.damped, r.panels = panels_;
    r.row_stride = k16, r.panel = panel_, r.grid_panel = grid_panel_;
    const std::int64_t work = std::max({clip_work(p_.clip), descend_work(r), refit_work(r)});
    QF_TRY_ASSIGN(memory_,
                  Array<float>::make(static_cast<std::size_t>(5 * all + 3 * panels_ * grid_panel_ + work)));
    float* at = memory_.data();
    const auto take = [&](std::int64_t count) { return at += count, at - count; };
    target_ = take(all), ordered_ = take(all), sum_ = take(all), off_ = take(all), codes_ = take(all);
    const std::int64_t grids = panels_ * grid_panel_;
    grids_ = {take(grids), take(grids), take(grids)};
    work_ = take(work);
    r.grids = grids_, r.work = work_;
    return {};
  }

  Status run(QuantizedMatrix& matrix, double* error_nearest, double* error_gptq, double* error,
             std::int64_t* changed) {
    QF_TRY(allocate());
    for (std::int64_t p = 0; p < panels_; ++p)
      load_panel({p_.in.w.row(first_ + p * kPanel), {rows_of(p), p_.k}, p_.in.w.stride}, rows_of(p),
                 target_ + p * panel_);
    // Before anything mixes columns: a weight that isn't finite must be found where it stands.
    for (std::int64_t p = 0; p < panels_; ++p) QF_TRY(check_finite(p));
    if (!p_.cross.empty()) shift_target();
    for (std::int64_t p = 0; p < panels_; ++p) {
      const Trouble trouble =
          choose_grids(p_.clip, target_ + p * panel_, rows_of(p), refinement_.grids_of(p), work_);
      if (trouble.is)
        return explain_trouble(p_.in, "tensor " + printable(p_.in.name),
                               {true, first_ + p * kPanel + trouble.row, trouble.group});
    }
    if (p_.hessian.identity) {
      round_nearest(codes_, nullptr);
      store(codes_, nullptr, matrix);
      return {};
    }
    for (std::int64_t p = 0; p < panels_; ++p)
      for (std::int64_t j = 0; j < p_.k; ++j)
        std::copy_n(target_ + p * panel_ + p_.order[static_cast<std::size_t>(j)] * kPanel, kPanel,
                    ordered_ + p * panel_ + j * kPanel);
    if (p_.measure) measure_nearest(error_nearest);
    round_all();
    if (p_.measure) add_squares(sum_, sum_, error_gptq);
    if (p_.options.descents == 0 && p_.options.refits == 0) {
      if (p_.measure) add_squares(sum_, sum_, error);
      store(codes_, p_.place.data(), matrix);
      return {};
    }
    improve(changed);
    if (p_.measure) measure_end(error);
    store(refinement_.codes, nullptr, matrix);
    return {};
  }

 private:
  float top() const { return static_cast<float>(p_.in.scheme.levels() - 1); }
  std::int64_t rows_of(std::int64_t p) const { return std::min<std::int64_t>(kPanel, rows_ - p * kPanel); }

  Status check_finite(std::int64_t p) const {
    const float* w = target_ + p * panel_;
    float lanes[kPanel] = {};
    for (std::int64_t i = 0; i < panel_; i += kPanel)
      for (int lane = 0; lane < kPanel; ++lane) lanes[lane] += 0 * w[i + lane];
    for (std::int64_t lane = 0; lane < rows_of(p); ++lane)
      if (!(lanes[lane] == 0))
        for (std::int64_t c = 0; c < p_.k; ++c)
          if (!std::isfinite(w[c * kPanel + lane]))
            return explain_trouble(p_.in, "tensor " + printable(p_.in.name),
                                   {true, first_ + p * kPanel + lane, c / p_.group});
    return {};
  }

  // T = W + alpha W D A^-1.
  void shift_target() {
    multiply({p_.cross.data(), p_.k, p_.k, p_.k, target_, panel_, ordered_, panel_, panels_});
    solve_panels(p_.factor, ordered_, sum_, panel_, panels_);
    const auto by = static_cast<float>(p_.options.alpha) * p_.damped.factor;  // D has the unit of h
    for (std::int64_t p = 0; p < panels_; ++p)
      for (std::int64_t j = 0; j < p_.k; ++j) {
        float* to = target_ + p * panel_ + p_.order[static_cast<std::size_t>(j)] * kPanel;
        const float* from = ordered_ + p * panel_ + j * kPanel;
        for (int lane = 0; lane < kPanel; ++lane) to[lane] += by * from[lane];
      }
  }

  // Nearest codes of the target to `codes`, and what they leave to `off` unless that is nullptr.
  void round_nearest(float* codes, float* off) const {
    for (std::int64_t p = 0; p < panels_; ++p) {
      const PanelGrids grids = refinement_.grids_of(p);
      for (std::int64_t g = 0; g < p_.groups; ++g) {
        alignas(64) float error[kPanel];
        const std::int64_t c = g * p_.group, at = p * panel_ + c * kPanel;
        kernel::detail::solve_ops().nearest({std::min(p_.group, p_.k - c), target_ + at, p_.clip.weights + c,
                                             grids.scale + g * kPanel, grids.inverse + g * kPanel,
                                             grids.zero + g * kPanel, top(), off ? off + at : nullptr,
                                             codes + at, error});
      }
    }
  }

  // Sums of a * b over columns, for each row.
  void add_squares(const float* a, const float* b, double* rows) const {
    for (std::int64_t p = 0; p < panels_; ++p) {
      double sums[kPanel] = {};
      for (std::int64_t i = p * panel_; i < (p + 1) * panel_; i += kPanel)
        for (int lane = 0; lane < kPanel; ++lane)
          sums[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
      for (std::int64_t lane = 0; lane < rows_of(p); ++lane)
        rows[p * kPanel + lane] = sums[lane] / static_cast<double>(p_.damped.factor);
    }
  }

  void measure_nearest(double* error) {
    round_nearest(codes_, sum_);
    for (std::int64_t p = 0; p < panels_; ++p)
      for (std::int64_t j = 0; j < p_.k; ++j)
        std::copy_n(sum_ + p * panel_ + p_.order[static_cast<std::size_t>(j)] * kPanel, kPanel,
                    off_ + p * panel_ + j * kPanel);
    for (std::int64_t j = 0; j < p_.k; ++j)
      multiply(
          {p_.factor.row(j), p_.factor.stride, 1, j + 1, off_, panel_, sum_ + j * kPanel, panel_, panels_});
    add_squares(sum_, sum_, error);
  }

  // GPTQ: `sum_` ends as the residuals, whose squares are the error; `off_` as what the codes leave.
  void round_all() {
    const std::int64_t k = p_.k;
    for (std::int64_t block = 0; block < k; block += kBlock) {
      const std::int64_t end = std::min(k, block + kBlock);
      multiply({p_.factor.row(block), p_.factor.stride, end - block, block, off_, panel_,
                sum_ + block * kPanel, panel_, panels_});
      for (std::int64_t c = block; c < end; c += kTileRows) {
        const std::int64_t after = std::min<std::int64_t>(end, c + kTileRows);
        if (c > block)
          multiply({p_.factor.row(c) + block, p_.factor.stride, after - c, c - block, off_ + block * kPanel,
                    panel_, sum_ + c * kPanel, panel_, panels_, Sum::go_on});
        kernel::detail::solve_ops().round_columns(
            {static_cast<int>(after - c), static_cast<int>(panels_), p_.factor.row(c) + c, p_.factor.stride,
             p_.factor.inverse_diagonal.data() + c, ordered_ + c * kPanel, sum_ + c * kPanel,
             off_ + c * kPanel, codes_ + c * kPanel, panel_, grids_.scale, grids_.inverse, grids_.zero,
             grid_panel_, p_.group_in_order.data() + c, top()});
      }
    }
  }

  // (T - Q) A = residual * L, in order of the columns.
  void find_gradient(float* gradient) const {
    const std::int64_t k = p_.k;
    for (std::int64_t block = 0; block < k; block += kBlock) {
      const std::int64_t end = std::min(k, block + kBlock);
      multiply({p_.factor.row(block) + end, p_.factor.stride, end - block, k - end, sum_ + end * kPanel,
                panel_, gradient + block * kPanel, panel_, panels_});
      for (std::int64_t c = block; c < end; c += kTileRows) {
        const std::int64_t after = std::min<std::int64_t>(end, c + kTileRows);
        if (after < end)
          multiply({p_.factor.row(c) + after, p_.factor.stride, after - c, end - after, sum_ + after * kPanel,
                    panel_, gradient + c * kPanel, panel_, panels_, Sum::go_on});
        for (std::int64_t p = 0; p < panels_; ++p)
          for (std::int64_t j = c; j < after; ++j)
            for (std::int64_t m = j; m < after; ++m) {
              const float l = p_.factor.row(j)[m];
              const float* from = sum_ + p * panel_ + m * kPanel;
              float* to = gradient + p * panel_ + j * kPanel;
              for (int lane = 0; lane < kPanel; ++lane) to[lane] += l * from[lane];
            }
      }
    }
  }

  void improve(std::int64_t* changed) {
    Refinement& r = refinement_;
    find_gradient(off_);
    // To rows and the columns' own order: codes where the ordered target was, the gradient over the residuals.
    r.row_codes = ordered_, r.row_gradient = sum_;
    for (std::int64_t p = 0; p < panels_; ++p) {
      const std::int64_t at = p * kPanel * r.row_stride;
      panel_to_rows(codes_ + p * panel_, p_.place.data(), p_.k, r.row_codes + at, r.row_stride);
      panel_to_rows(off_ + p * panel_, p_.place.data(), p_.k, r.row_gradient + at, r.row_stride);
    }
    r.codes = codes_, r.gradient = off_;
    for (int i = 0;; ++i) {
      *changed += descend(r, p_.options.descents);
      to_panels();
      if (i == p_.options.refits) return;
      refit(r);
      for (std::int64_t p = 0; p < panels_; ++p)
        panel_to_rows(r.gradient + p * panel_, nullptr, p_.k, r.row_gradient + p * kPanel * r.row_stride,
                      r.row_stride);
    }
  }

  void to_panels() const {
    const Refinement& r = refinement_;
    for (std::int64_t p = 0; p < panels_; ++p) {
      const std::int64_t at = p * kPanel * r.row_stride;
      const std::array<std::int64_t, 2> stride{r.row_stride, 1};
      load_panel({r.row_codes + at, {kPanel, p_.k}, stride}, kPanel, r.codes + p * panel_);
      load_panel({r.row_gradient + at, {kPanel, p_.k}, stride}, kPanel, r.gradient + p * panel_);
    }
  }

  void measure_end(double* error) {
    const Refinement& r = refinement_;
    for (std::int64_t p = 0; p < panels_; ++p) {
      const PanelGrids grids = r.grids_of(p);
      for (std::int64_t c = 0; c < p_.k; ++c)
        for (int lane = 0; lane < kPanel; ++lane) {
          const std::int64_t at = p * panel_ + c * kPanel + lane, g = c / p_.group * kPanel + lane;
          target_[at] -= (r.codes[at] - grids.zero[g]) * grids.scale[g];
        }
    }
    add_squares(target_, r.gradient, error);
  }

  void store(const float* codes, const std::int32_t* at, QuantizedMatrix& matrix) const {
    for (std::int64_t p = 0; p < panels_; ++p)
      store_result(codes + p * panel_, at, refinement_.grids_of(p), first_ + p * kPanel, rows_of(p), matrix);
  }

  const Problem& p_;
  const std::int64_t first_, rows_, panels_;
  std::int64_t panel_ = 0, grid_panel_ = 0;
  Array<float> memory_;
  float *target_ = nullptr, *ordered_ = nullptr, *sum_ = nullptr, *off_ = nullptr, *codes_ = nullptr,
        *work_ = nullptr;
  PanelGrids grids_{};
  Refinement refinement_;
};

}  // namespace

Result<QuantizedMatrix> Gptq::quantize(const QuantizerInput& in, GptqReport* report) const {
  QF_TRY(check_options(options_).at(cat({"tensor ", printable(in.name), ": method '", name_, "'"})));
  QF_TRY(check_input(in, name_));
  const std::int64_t n = in.w.shape[0], k = in.w.shape[1];
  QF_TRY_ASSIGN(QuantizedMatrix matrix, QuantizedMatrix::make(in.scheme, n, k));
  GptqReport done;
  if (report) *report = done;
  if (n == 0 || k == 0) return matrix;

  QF_TRY_ASSIGN(HessianUse hessian, use_hessian(in, name_, ClipKind::hessian_diagonal));
  Problem p{.options = options_,
            .in = in,
            .n = n,
            .k = k,
            .groups = matrix.groups(),
            .group = matrix.group_size(),
            .hessian = std::move(hessian)};
  p.measure = report != nullptr;
  done.dead_columns = p.hessian.dead;
  done.no_statistics = p.hessian.identity;
  if (!p.hessian.identity) {
    QF_TRY(prepare(in, name_, p, done));
    if (options_.alpha > 0) QF_TRY(load_cross(in, name_, p));
  }
  QF_TRY_ASSIGN(p.ones, Array<float>::make(static_cast<std::size_t>(k)));
  std::fill(p.ones.begin(), p.ones.end(), 1.0f);
  const ClipOptions search = p.hessian.clip_options(options_.clip);
  p.clip = {in.scheme, k, search,
            search.kind == ClipKind::hessian_diagonal ? p.hessian.weights.data() : p.ones.data(),
            p.hessian.h};

  const std::int64_t blocks = (n + kAtOnce * kPanel - 1) / (kAtOnce * kPanel);
  QF_TRY_ASSIGN(auto errors, Array<double>::make(static_cast<std::size_t>(3 * n)));
  QF_TRY_ASSIGN(auto changed, Array<std::int64_t>::make(static_cast<std::size_t>(blocks)));
  QF_TRY(for_tasks(in.parallel, blocks, [&](std::int64_t b) -> Status {
    const std::int64_t first = b * kAtOnce * kPanel;
    return RowBlock(p, first).run(matrix, errors.data() + first, errors.data() + n + first,
                                  errors.data() + 2 * n + first, changed.data() + b);
  }));
  if (!report) return matrix;
  for (std::int64_t r = 0; r < n; ++r) {
    done.error_nearest += errors[static_cast<std::size_t>(r)];
    done.error_gptq += errors[static_cast<std::size_t>(n + r)];
    done.error += errors[static_cast<std::size_t>(2 * n + r)];
  }
  for (const std::int64_t count : changed) done.changed_codes += count;
  *report = done;
  return matrix;
}

}  // namespace qf::quant
