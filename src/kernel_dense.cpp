// Float matrices from tiles: how n and m are cut, and when 2-byte weights become f32 before they are used.
#include "qf/kernel/dense.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/dense_ops.hpp"
#include "qf/kernel/matmul.hpp"
#include "src/kernel_stored.hpp"

namespace qf::kernel {
namespace {

using detail::dense_ops;
using detail::DenseOps;
using detail::kPanel;
using detail::kTileRows;
using detail::Stored;
using detail::Sum;
using detail::TileArgs;

constexpr std::int64_t kChain = 128;    // columns that a sum in f32 runs over before it is added to the total
constexpr std::int64_t kRowBlock = 96;  // rows of x that stay in the second-level cache
constexpr int kStreams = 4;             // panels that one row of x reads at once, far apart in memory

std::int64_t panels_for(std::int64_t n) {
  return (n + kPanel - 1) / kPanel;
}

template <class T>
void round_panel(const float* from, std::int64_t count, std::byte* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T value(from[i]);
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
  }
}

template <class T>
void copy_strided(const std::byte* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * kPanel * static_cast<std::int64_t>(sizeof value), sizeof value);
    to[i] = static_cast<float>(value);
  }
}

struct FloatProduct {
  const DenseOps& op;
  MatrixView<const float> x;
  const DenseWeight& w;
  MatrixView<float> y;
  std::span<const float> bias;
  Stored stored;
  std::int64_t element_bytes;

  int columns(std::int64_t panel) const {
    return static_cast<int>(std::min<std::int64_t>(kPanel, w.n() - panel * kPanel));
  }
  const std::byte* at(std::int64_t panel, std::int64_t column) const {
    return w.panel(panel) + column * kPanel * element_bytes;
  }

  // One row of x and `count` panels, `apart` panels from each other.
  void row(std::int64_t panel, int count, std::int64_t apart) const {
    TileArgs t{1,
               count,
               0,
               nullptr,
               0,
               nullptr,
               kPanel,
               apart * w.k() * kPanel,
               y.data + panel * kPanel,
               0,
               apart * kPanel,
               columns(panel + (count - 1) * apart),
               Sum::set};
    for (std::int64_t c = 0; c < w.k(); c += kChain) {
      t.k = std::min(kChain, w.k() - c);
      t.x = x.data + c;
      t.w = at(panel, c);
      op.tile[stored](t);
      t.sum = Sum::add;
    }
  }

  // All panels of [begin, end) for one row of x: a quarter of them apart, so that each stream goes on into its
  // next panel and what was asked ahead is used.
  void row_range(std::int64_t begin, std::int64_t end) const {
    const std::int64_t apart = (end - begin) / kStreams;
    for (std::int64_t i = 0; i < apart; ++i) row(begin + i, kStreams, apart);
    for (std::int64_t p = begin + apart * kStreams; p < end; ++p) row(p, 1, 0);
  }

  // Rows [first, last) of x with `count` adjacent panels.
  void rows(std::int64_t first, std::int64_t last, std::int64_t panel, int count) const {
    alignas(64) float wide[4 * kPanel * kChain];
    TileArgs t{0,       count, 0,       nullptr,     x.stride[0], nullptr,
               kPanel,  0,     nullptr, y.stride[0], kPanel,      columns(panel + count - 1),
               Sum::set};
    // Worth it as soon as several tiles use what was widened.
    const bool widen = stored != detail::kF32 && last - first > 2 * kTileRows;
    for (std::int64_t c = 0; c < w.k(); c += kChain) {
      t.k = std::min(kChain, w.k() - c);
      t.w = at(panel, c);
      t.w_panel = w.k() * kPanel;
      if (widen) {
        for (int p = 0; p < count; ++p)
          op.widen[stored](at(panel + p, c), t.k * kPanel, wide + p * kPanel * kChain);
        t.w = wide;
        t.w_panel = kPanel * kChain;
      }
      for (std::int64_t r = first; r < last; r += kTileRows) {
        t.rows = static_cast<int>(std::min<std::int64_t>(kTileRows, last - r));
        t.x = x.row(r) + c;
        t.y = y.row(r) + panel * kPanel;
        op.tile[widen ? detail::kF32 : stored](t);
      }
      t.sum = Sum::add;
    }
  }

  void add_bias(std::int64_t first, std::int64_t last, std::int64_t begin, std::int64_t end) const {
    if (bias.empty()) return;
    const std::int64_t from = begin * kPanel, count = std::min(w.n(), end * kPanel) - from;
    for (std::int64_t r = first; r < last; ++r) op.add(y.row(r) + from, bias.data() + from, count);
  }

  void run(const ParallelFor& parallel) const {
    const std::int64_t m = x.shape[0], panels = panels_for(w.n()), threads = std::max(1, parallel.threads);
    const int group = m == 1 ? kStreams : op.panels;
    // A call costs some microseconds on another thread: below that much work it stays here.
    constexpr double kWorkOfTask = 1 << 18;  // multiplications
    const double work = static_cast<double>(m) * static_cast<double>(w.n()) * static_cast<double>(w.k());
    const std::int64_t wanted =
        threads == 1
            ? 1
            : std::clamp<std::int64_t>(static_cast<std::int64_t>(work / kWorkOfTask), 1, 4 * threads);
    const std::int64_t groups = (panels + group - 1) / group, blocks = (m + kRowBlock - 1) / kRowBlock;
    const std::int64_t cuts = std::max<std::int64_t>(1, wanted / blocks);
    const std::int64_t step = (groups + cuts - 1) / cuts * group, steps = (panels + step - 1) / step;
    parallel_for(parallel, wanted == 1 ? 1 : blocks * steps, [&](std::int64_t task) {
      const std::int64_t first = task / steps * kRowBlock,
                         last = wanted == 1 ? m : std::min(m, first + kRowBlock);
      const std::int64_t begin = task % steps * step, end = std::min(panels, begin + step);
      if (m == 1) {
        row_range(begin, end);
      } else {
        for (std::int64_t r = first; r < last; r += kRowBlock)
          for (std::int64_t p = begin; p < end; p += group)
            rows(r, std::min(last, r + kRowBlock), p,
                 static_cast<int>(std::min<std::int64_t>(group, end - p)));
      }
      add_bias(first, last, begin, end);
    });
  }
};

}  // namespace

Result<DenseWeight> DenseWeight::make(std::int64_t n, std::int64_t k, DType type) {
  if (!detail::stored_as(type))
    return Status(Errc::invalid_argument,
                  cat({"a float matrix of ", dtype_name(type), ", expected F32, F16 or BF16"}));
  std::int64_t size = 0;
  if (n < 0 || k < 0 || n > INT64_MAX - kPanel || __builtin_mul_overflow(panels_for(n) * kPanel, k, &size) ||
      __builtin_mul_overflow(size, dtype_bits(type) / 8, &size))
    return Status(Errc::invalid_argument, cat({"a float matrix of ", num(n), " x ", num(k)}));
  DenseWeight w;
  w.n_ = n, w.k_ = k, w.type_ = type;
  QF_TRY_ASSIGN(w.panels_, Array<std::byte>::make(static_cast<std::size_t>(size), weight_allocator()));
  return w;
}

void DenseWeight::fill(std::int64_t first, MatrixView<const float> rows) {
  QF_ASSERT(first % kPanel == 0 && first + rows.shape[0] <= n_ && rows.shape[1] == k_);
  constexpr std::int64_t kPart = 64;
  static constexpr float kZeros[kPart] = {};
  const std::int64_t bytes = dtype_bits(type_) / 8;
  float part[kPart * kPanel];
  for (std::int64_t r = 0; r < rows.shape[0]; r += kPanel) {
    std::byte* to = panels_.data() + (first + r) / kPanel * panel_bytes();
    for (std::int64_t c = 0; c < k_; c += kPart) {
      const std::int64_t count = std::min(kPart, k_ - c);
      const void* from[kPanel];
      for (int i = 0; i < kPanel; ++i) from[i] = r + i < rows.shape[0] ? rows.row(r + i) + c : kZeros;
      dense_ops().pack[detail::kF32](from, count, part, nullptr);
      std::byte* out = to + c * kPanel * bytes;
      switch (type_) {
        case DType::f16:
          round_panel<f16>(part, count * kPanel, out);
          break;
        case DType::bf16:
          round_panel<bf16>(part, count * kPanel, out);
          break;
        default:
          std::memcpy(out, part, static_cast<std::size_t>(count * kPanel) * sizeof(float));
      }
    }
  }
}

void DenseWeight::copy_row(std::int64_t i, float* out) const {
  const std::byte* from = panel(i / kPanel) + i % kPanel * (dtype_bits(type_) / 8);
  switch (type_) {
    case DType::f16:
      return copy_strided<f16>(from, k_, out);
    case DType::bf16:
      return copy_strided<bf16>(from, k_, out);
    default:
      return copy_strided<float>(from, k_, out);
  }
}

Status dense_matmul(MatrixView<const float> x, const DenseWeight& w, MatrixView<float> y,
                    std::span<const float> bias, const ParallelFor& parallel) {
  const std::int64_t m = x.shape[0], n = w.n(), k = w.k();
  if (x.shape[1] != k || y.shape[0] != m || y.shape[1] != n ||
      (!bias.empty() && static_cast<std::int64_t>(bias.size()) != n))
    return Status(Errc::invalid_argument, cat({"product of x [", num(m), ", ", num(x.shape[1]), "] and w [",
                                               num(n), ", ", num(k), "] into y [", num(y.shape[0]), ", ",
                                               num(y.shape[1]), "] with ", num(bias.size()), " biases"}));
  if (m == 0 || n == 0) return {};
  if (k == 0) {
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t c = 0; c < n; ++c) y.row(r)[c] = bias.empty() ? 0 : bias[static_cast<std::size_t>(c)];
    return {};
  }
  FloatProduct{dense_ops(), x, w, y, bias, *detail::stored_as(w.type()), dtype_bits(w.type()) / 8}.run(
      parallel);
  return {};
}

}  // namespace qf::kernel
