#include "qf/calib/accumulator.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace qf::calib {
namespace {

constexpr std::int64_t kChannels = 64;  // of a task

// Of larger values the square doesn't fit f32.
constexpr float kLargest = 1e18f;

const char* describe(float x) {
  return std::isnan(x) ? "NaN" : std::isinf(x) ? "infinite" : "too large";
}

// Means of the sums, as f32; with `mirror` the part above the diagonal comes from below.
Result<Array<float>> matrix_of(const Array<double>& sum, std::int64_t k, std::int64_t tokens, bool mirror) {
  QF_TRY_ASSIGN(auto out, Array<float>::make(sum.size()));
  const double count = static_cast<double>(tokens);
  const std::int64_t step = 32;
  for (std::int64_t r0 = 0; r0 < k; r0 += step)
    for (std::int64_t c0 = 0; c0 < (mirror ? r0 + step : k); c0 += step)
      for (std::int64_t r = r0; r < std::min(k, r0 + step); ++r)
        for (std::int64_t c = c0; c < std::min(mirror ? r + 1 : k, c0 + step); ++c) {
          const float mean = static_cast<float>(sum.data()[r * k + c] / count);
          out.data()[r * k + c] = mean;
          if (mirror) out.data()[c * k + r] = mean;
        }
  return out;
}

}  // namespace

Result<Accumulator> Accumulator::make(std::int64_t k, Wanted wanted) {
  std::int64_t square = 0;
  if (k < 1 || __builtin_mul_overflow(k, k, &square))
    return Status(Errc::invalid_argument, cat({"statistics of ", num(k), " channels, 1 or more expected"}));
  Accumulator a;
  a.k_ = k;
  a.wanted_ = wanted;
  if (wanted.hessian) {
    QF_TRY_ASSIGN(a.gram_, Array<double>::make(static_cast<std::size_t>(square)));
  }
  if (wanted.cross) {
    QF_TRY_ASSIGN(a.cross_, Array<double>::make(static_cast<std::size_t>(square)));
  }
  if (wanted.channels) {
    const auto count = static_cast<std::size_t>(k);
    QF_TRY_ASSIGN(a.sum_, Array<double>::make(count));
    QF_TRY_ASSIGN(a.sum_abs_, Array<double>::make(count));
    QF_TRY_ASSIGN(a.min_, Array<float>::make(count));
    QF_TRY_ASSIGN(a.max_, Array<float>::make(count));
    for (float& x : a.min_) x = std::numeric_limits<float>::infinity();
    for (float& x : a.max_) x = -std::numeric_limits<float>::infinity();
  }
  return a;
}

// One pass that compilers vectorize; the place is looked for only when there is one.
Status Accumulator::check_finite(MatrixView<const float> x, MatrixView<const float> in_float) const {
  const auto bad = [](float v) { return !(std::fabs(v) <= kLargest); };
  for (const MatrixView<const float>* m : {&x, &in_float}) {
    if (!m->data) continue;
    for (std::int64_t r = 0; r < m->shape[0]; ++r) {
      const float* row = m->row(r);
      int any = 0;
      for (std::int64_t c = 0; c < k_; ++c) any |= bad(row[c]) ? 1 : 0;
      if (!any) continue;
      for (std::int64_t c = 0; c < k_; ++c)
        if (bad(row[c]))
          return Status(Errc::bad_format,
                        cat({"the input of token ", num(tokens_ + r), " is ", describe(row[c]),
                             " in channel ", num(c), m == &x ? "" : " of the float model"}));
    }
  }
  return {};
}

void Accumulator::add_channels(MatrixView<const float> x, const ParallelFor& parallel) {
  parallel_for(parallel, (k_ + kChannels - 1) / kChannels, [&](std::int64_t task) {
    const std::int64_t from = task * kChannels, count = std::min(kChannels, k_ - from);
    for (std::int64_t r = 0; r < x.shape[0]; ++r) {
      const float* row = x.row(r) + from;
      double *sum = sum_.data() + from, *sum_abs = sum_abs_.data() + from;
      float *least = min_.data() + from, *most = max_.data() + from;
      for (std::int64_t c = 0; c < count; ++c) {
        sum[c] += static_cast<double>(row[c]);
        sum_abs[c] += static_cast<double>(std::fabs(row[c]));
        least[c] = row[c] < least[c] ? row[c] : least[c];
        most[c] = row[c] > most[c] ? row[c] : most[c];
      }
    }
  });
}

Status Accumulator::add(MatrixView<const float> x, MatrixView<const float> in_float,
                        const ParallelFor& parallel) {
  if (x.shape[1] != k_ || (wanted_.cross && (!in_float.data || in_float.shape != x.shape)))
    return Status(Errc::invalid_argument,
                  cat({"inputs of shape ", shape_text(x.shape), " beside ", shape_text(in_float.shape),
                       " of the float model, ", num(k_), " channels expected"}));
  QF_TRY(check_finite(x, wanted_.cross ? in_float : MatrixView<const float>()));
  kernel::GramArgs args;
  args.x = x;
  if (wanted_.hessian) args.gram = {gram_.data(), {k_, k_}};
  if (wanted_.cross) {
    args.other = in_float;
    args.cross = {cross_.data(), {k_, k_}};
  }
  QF_TRY(kernel::add_gram(args, scratch_, parallel));
  if (wanted_.channels) add_channels(x, parallel);
  tokens_ += x.shape[0];
  return {};
}

Result<LinearStatistics> Accumulator::finish() {
  if (tokens_ == 0) return Status(Errc::invalid_argument, "statistics of no tokens at all");
  scratch_ = {};
  LinearStatistics out;
  out.k = k_;
  out.tokens = tokens_;
  if (wanted_.hessian) {
    QF_TRY_ASSIGN(out.hessian, matrix_of(gram_, k_, tokens_, true));
  }
  gram_ = {};
  if (wanted_.cross) {
    QF_TRY_ASSIGN(out.cross, matrix_of(cross_, k_, tokens_, false));
  }
  cross_ = {};
  if (wanted_.channels) {
    const auto count = static_cast<std::size_t>(k_);
    QF_TRY_ASSIGN(out.mean, Array<float>::make(count));
    QF_TRY_ASSIGN(out.mean_abs, Array<float>::make(count));
    for (std::size_t c = 0; c < count; ++c) {
      out.mean[c] = static_cast<float>(sum_[c] / static_cast<double>(tokens_));
      out.mean_abs[c] = static_cast<float>(sum_abs_[c] / static_cast<double>(tokens_));
    }
    out.min = std::move(min_);
    out.max = std::move(max_);
  }
  *this = Accumulator();
  return out;
}

}  // namespace qf::calib
