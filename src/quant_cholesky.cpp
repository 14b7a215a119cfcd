#include "src/quant_cholesky.hpp"

#include <cmath>

#include "src/quant_panels.hpp"

namespace qf::quant::detail {
namespace {

constexpr std::int64_t kStrip = kAtOnce * kPanel;  // columns

// During the work a part that isn't factored yet holds what is left of -A in its lower triangle.
class Cholesky {
 public:
  // `block` has kBlock * kBlock elements.
  Cholesky(Factor& f, std::span<const float> least, double* block, const ParallelFor& parallel)
      : f_(f),
        least_(least),
        block_(block),
        parallel_(parallel),
        tile_(kernel::detail::dense_ops().tile[kernel::detail::kF32]) {}

  bool run() {
    for (std::int64_t m = (f_.k - 1) / kBlock * kBlock; m >= 0; m -= kBlock) {
      first_ = m, end_ = std::min(f_.k, m + kBlock);
      if (!diagonal_block()) return false;
      parallel_for(parallel_, (first_ + kStrip - 1) / kStrip,
                   [this](std::int64_t s) { finish_rows(s * kStrip, std::min(first_, (s + 1) * kStrip)); });
      parallel_for(parallel_, (first_ + kRows - 1) / kRows,
                   [this](std::int64_t s) { update(s * kRows, std::min(first_, (s + 1) * kRows)); });
    }
    return true;
  }

 private:
  static constexpr std::int64_t kRows = 8 * kTileRows;  // of a task

  float* row(std::int64_t i) const { return f_.both.data() + i * f_.stride; }

  bool diagonal_block() {
    const std::int64_t size = end_ - first_;
    for (std::int64_t i = 0; i < size; ++i)
      for (std::int64_t j = 0; j <= i; ++j)
        block_[i * kBlock + j] = -static_cast<double>(row(first_ + i)[first_ + j]);
    for (std::int64_t m = size - 1; m >= 0; --m) {
      double* last = block_ + m * kBlock;
      if (!(last[m] > static_cast<double>(least_[static_cast<std::size_t>(first_ + m)]))) return false;
      const double root = std::sqrt(last[m]);
      last[m] = root;
      for (std::int64_t j = 0; j < m; ++j) last[j] /= root;
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j <= i; ++j) block_[i * kBlock + j] -= last[i] * last[j];
    }
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t j = 0; j <= i; ++j)
        row(first_ + i)[first_ + j] = row(first_ + j)[first_ + i] =
            static_cast<float>(block_[i * kBlock + j]);
      f_.inverse_diagonal[static_cast<std::size_t>(first_ + i)] =
          static_cast<float>(1 / block_[i * kBlock + i]);
    }
    return true;
  }

  // Columns [c, end) of the block's rows, by substitution from its last row on.
  void finish_rows(std::int64_t c, std::int64_t end) const {
    kernel::detail::TileArgs t{};
    t.panels = static_cast<int>((end - c + kPanel - 1) / kPanel);
    t.x_stride = t.w_step = t.y_stride = f_.stride;
    t.w_panel = t.y_panel = kPanel;
    t.last_columns = kPanel;
    t.sum = Sum::add;
    for (std::int64_t after = end_; after > first_;) {
      const std::int64_t j = std::max(first_, first_ + (after - 1 - first_) / kTileRows * kTileRows);
      t.rows = static_cast<int>(after - j);
      t.k = end_ - after;
      t.x = row(j) + after;
      t.w = row(0) + after * f_.stride + c;
      t.y = row(j) + c;
      if (t.k > 0) tile_(t);
      for (std::int64_t r = after - 1; r >= j; --r) {
        float* to = row(r);
        for (std::int64_t m = r + 1; m < after; ++m) {
          const float l = row(m)[r];
          const float* from = row(m);
          for (std::int64_t i = c; i < end; ++i) to[i] += l * from[i];
        }
        const float over = -f_.inverse_diagonal[static_cast<std::size_t>(r)];
        for (std::int64_t i = c; i < end; ++i) to[i] *= over;
      }
      for (std::int64_t i = c; i < end; ++i)
        for (std::int64_t r = j; r < after; ++r) row(i)[r] = row(r)[i];
      after = j;
    }
  }

  // What rows [r, end) before the block still have to explain.
  void update(std::int64_t r, std::int64_t end) const {
    kernel::detail::TileArgs t{};
    t.x_stride = t.w_step = t.y_stride = f_.stride;
    t.w_panel = t.y_panel = kPanel;
    t.last_columns = kPanel;
    t.sum = Sum::add;
    t.k = end_ - first_;
    for (std::int64_t c = 0; c < end; c += kStrip) {
      t.w = row(first_) + c;
      for (std::int64_t i = r; i < end; i += kTileRows) {
        const std::int64_t after = std::min<std::int64_t>(end, i + kTileRows);
        t.panels = static_cast<int>((std::min(after, c + kStrip) - c + kPanel - 1) / kPanel);
        if (t.panels <= 0) continue;
        t.rows = static_cast<int>(after - i);
        t.x = row(i) + first_;
        t.y = row(i) + c;
        tile_(t);
      }
    }
  }

  Factor& f_;
  std::span<const float> least_;  // [k]: a pivot up to this is noise
  double* block_;                 // the block on the diagonal
  const ParallelFor& parallel_;
  void (*tile_)(const kernel::detail::TileArgs&);
  std::int64_t first_ = 0, end_ = 0;  // of the block at work
};

}  // namespace

Result<bool> factorize(MatrixView<const float> h, std::span<const std::int32_t> order, float factor,
                       float ridge, const ParallelFor& parallel, Factor& out) {
  const std::int64_t k = h.shape[0];
  if (out.k != k) {
    out.k = k;
    out.stride = round_up(k, kPanel);
    QF_TRY_ASSIGN(out.both, Array<float>::make(static_cast<std::size_t>(k * out.stride)));
    QF_TRY_ASSIGN(out.inverse_diagonal, Array<float>::make(static_cast<std::size_t>(k)));
  }
  // A pivot is a difference of sums of f32: below this share of where it started nothing of it is left.
  constexpr float kNoise = 1e-6f;
  QF_TRY_ASSIGN(auto least, Array<float>::make(static_cast<std::size_t>(k)));
  parallel_for(parallel, k, [&](std::int64_t i) {
    float* to = out.both.data() + i * out.stride;
    const float* from = h.row(order[static_cast<std::size_t>(i)]);
    for (std::int64_t j = 0; j < i; ++j) to[j] = -factor * from[order[static_cast<std::size_t>(j)]];
    float diagonal = factor * from[order[static_cast<std::size_t>(i)]] + ridge;
    if (diagonal == 0) diagonal = 1;
    to[i] = -diagonal;
    least[static_cast<std::size_t>(i)] = kNoise * diagonal;
  });
  QF_TRY_ASSIGN(auto block, Array<double>::make(static_cast<std::size_t>(kBlock * kBlock)));
  return Cholesky(out, least, block.data(), parallel).run();
}

void solve_panels(const Factor& factor, float* x, float* work, std::int64_t panel, std::int64_t panels) {
  const std::int64_t k = factor.k;
  const auto at = [&](float* base, std::int64_t p, std::int64_t c) { return base + p * panel + c * kPanel; };
  // Takes sum + what columns of the same tile add, from x, and divides.
  const auto finish = [&](std::int64_t c, std::int64_t first, std::int64_t end) {
    const float over = factor.inverse_diagonal[static_cast<std::size_t>(c)];
    for (std::int64_t p = 0; p < panels; ++p) {
      float *to = at(x, p, c), *sum = at(work, p, c);
      for (std::int64_t i = first; i < end; ++i) {
        const float l = factor.row(c)[i];
        const float* from = at(x, p, i);
        for (int lane = 0; lane < kPanel; ++lane) sum[lane] += l * from[lane];
      }
      for (int lane = 0; lane < kPanel; ++lane) to[lane] = (to[lane] - sum[lane]) * over;
    }
  };
  // u L = x: from the last column to the first.
  for (std::int64_t block = (k - 1) / kBlock * kBlock; block >= 0; block -= kBlock) {
    const std::int64_t block_end = std::min(k, block + kBlock);
    multiply({factor.row(block) + block_end, factor.stride, block_end - block, k - block_end,
              at(x, 0, block_end), panel, at(work, 0, block), panel, panels});
    for (std::int64_t after = block_end; after > block;) {
      const std::int64_t first = block + (after - 1 - block) / kTileRows * kTileRows;
      if (after < block_end)
        multiply({factor.row(first) + after, factor.stride, after - first, block_end - after, at(x, 0, after),
                  panel, at(work, 0, first), panel, panels, Sum::go_on});
      for (std::int64_t c = after - 1; c >= first; --c) finish(c, c + 1, after);
      after = first;
    }
  }
  // y L^T = u: from the first column to the last.
  for (std::int64_t block = 0; block < k; block += kBlock) {
    const std::int64_t block_end = std::min(k, block + kBlock);
    multiply({factor.row(block), factor.stride, block_end - block, block, x, panel, at(work, 0, block), panel,
              panels});
    for (std::int64_t first = block; first < block_end; first += kTileRows) {
      const std::int64_t after = std::min<std::int64_t>(block_end, first + kTileRows);
      if (first > block)
        multiply({factor.row(first) + block, factor.stride, after - first, first - block, at(x, 0, block),
                  panel, at(work, 0, first), panel, panels, Sum::go_on});
      for (std::int64_t c = first; c < after; ++c) finish(c, first, c);
    }
  }
}

}  // namespace qf::quant::detail
