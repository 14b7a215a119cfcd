#include "qf/kernel/dense.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/dense_ops.hpp"
#include "qf/kernel/matmul.hpp"

namespace qf::kernel {
namespace {

using detail::DenseOps;
using detail::kPanel;
using detail::kTileRows;

const DenseOps& ops() {
#if QF_X86
  static const bool wide = (cpu_isa() & isa::avx2) != 0;
  if (wide) return detail::kDenseAvx2;
#endif
  return detail::kDenseGeneric;
}

constexpr std::int64_t kRowBlock = 96;  // rows of x that stay in the second-level cache

std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace

Result<DenseWeight> DenseWeight::make(std::int64_t n, std::int64_t k) {
  std::int64_t size = 0;
  if (n < 0 || k < 0 || n > INT64_MAX - kPanel || __builtin_mul_overflow(round_up(n, kPanel), k, &size))
    return Status(Errc::invalid_argument, cat({"a float matrix of ", num(n), " x ", num(k)}));
  DenseWeight w;
  w.n_ = n, w.k_ = k;
  QF_TRY_ASSIGN(w.panels_, Array<float>::make(static_cast<std::size_t>(size)));
  return w;
}

void DenseWeight::fill(std::int64_t first, MatrixView<const float> rows) {
  QF_ASSERT(first % kPanel == 0 && first + rows.shape[0] <= n_ && rows.shape[1] == k_);
  for (std::int64_t r = 0; r < rows.shape[0]; r += kPanel)
    ops().pack(rows.row(r), rows.stride[0],
               static_cast<int>(std::min<std::int64_t>(kPanel, rows.shape[0] - r)), k_,
               panels_.data() + (first + r) * k_);
}

void DenseWeight::copy_row(std::int64_t i, float* out) const {
  const float* p = panel(i / kPanel) + i % kPanel;
  for (std::int64_t c = 0; c < k_; ++c) out[c] = p[c * kPanel];
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
  const std::int64_t panels = round_up(n, kPanel) / kPanel;
  const std::int64_t threads = std::max(1, parallel.threads);
  const std::int64_t least = m == 1 ? 4 : 8;  // panels a task: enough to pay for handing it out
  const std::int64_t step =
      threads == 1 ? panels : std::max(least, round_up((panels + 4 * threads - 1) / (4 * threads), 4));
  const DenseOps& op = ops();
  parallel_for(parallel, (panels + step - 1) / step, [&](std::int64_t task) {
    const std::int64_t begin = task * step, end = std::min(panels, begin + step);
    if (m == 1) {
      for (std::int64_t p = begin; p < end; p += 4) {
        const int count = static_cast<int>(std::min<std::int64_t>(4, end - p));
        alignas(64) float out[4 * kPanel];
        op.row(k, x.data, w.panel(p), k * kPanel, count, out);
        const std::int64_t c0 = p * kPanel, valid = std::min<std::int64_t>(count * kPanel, n - c0);
        if (bias.empty())
          std::memcpy(y.data + c0, out, static_cast<std::size_t>(valid) * sizeof(float));
        else
          for (std::int64_t c = 0; c < valid; ++c)
            y.data[c0 + c] = out[c] + bias[static_cast<std::size_t>(c0 + c)];
      }
      return;
    }
    for (std::int64_t block = 0; block < m; block += kRowBlock) {
      const std::int64_t block_end = std::min(m, block + kRowBlock);
      for (std::int64_t p = begin; p < end; ++p) {
        const std::int64_t c0 = p * kPanel;
        const int columns = static_cast<int>(std::min<std::int64_t>(kPanel, n - c0));
        for (std::int64_t r = block; r < block_end; r += kTileRows) {
          const int rows = static_cast<int>(std::min<std::int64_t>(kTileRows, block_end - r));
          float* out = y.row(r) + c0;
          op.tile(rows, k, x.row(r), x.stride[0], w.panel(p), kPanel, out, y.stride[0], columns);
          if (bias.empty()) continue;
          for (int i = 0; i < rows; ++i)
            for (int c = 0; c < columns; ++c)
              out[i * y.stride[0] + c] += bias[static_cast<std::size_t>(c0 + c)];
        }
      }
    }
  });
  return {};
}

namespace {

// One task: the query heads of one KV head for a run of tokens. Rows of its matrices go by token, then head.
struct AttentionTask {
  const AttentionArgs& a;
  std::int64_t head, first, count;  // KV head, tokens [first, first + count)
  float* scratch;

  static std::int64_t padded_dim(const AttentionArgs& a) { return round_up(a.head_dim, kPanel); }
  static std::size_t scratch_size(const AttentionArgs& a, std::int64_t rows, std::int64_t keys) {
    const std::int64_t d = padded_dim(a);
    return static_cast<std::size_t>(2 * rows * d + rows * keys + d * kPanel +
                                    (a.head_dim % kPanel ? keys * kPanel : 0));
  }

  void run() const {
    const DenseOps& op = ops();
    const std::int64_t group = a.heads / a.kv_heads, rows = count * group, d = a.head_dim, pd = padded_dim(a);
    const std::int64_t pos0 = a.position + first, end = pos0 + count;
    const std::int64_t oldest = a.window ? std::max<std::int64_t>(0, pos0 - a.window + 1) : 0;
    // Starting at a multiple of 16 gives every key the same lane of the sums whatever the split.
    const std::int64_t start = oldest / kPanel * kPanel, keys = round_up(end - start, kPanel);
    float *q = scratch, *out = q + rows * pd, *panel = out + rows * pd, *scores = panel + pd * kPanel,
          *tail = scores + rows * keys;
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* from = a.q.row(first + r / group) + (head * group + r % group) * d;
      for (std::int64_t c = 0; c < d; ++c) q[r * pd + c] = from[c] * a.scale;
    }
    const auto h = static_cast<std::size_t>(head);
    const std::int64_t ks = a.key_stride[h], vs = a.value_stride[h];
    const auto last_of = [&](std::int64_t r) { return pos0 + r / group; };  // newest key row r sees
    const auto first_of = [&](std::int64_t r) {
      return a.window ? std::max<std::int64_t>(0, last_of(r) - a.window + 1) : 0;
    };
    for (std::int64_t j = 0; j < keys; j += kPanel) {
      op.pack(a.keys[h] + (start + j) * ks, ks,
              static_cast<int>(std::min<std::int64_t>(kPanel, end - start - j)), d, panel);
      for (std::int64_t r = 0; r < rows; r += kTileRows) {
        const std::int64_t n = std::min<std::int64_t>(kTileRows, rows - r);
        if (start + j > last_of(r + n - 1) || start + j + kPanel <= first_of(r)) continue;
        op.tile(static_cast<int>(n), d, q + r * pd, pd, panel, kPanel, scores + r * keys + j, keys, kPanel);
      }
    }
    if (d % kPanel)  // the last columns of the values, widened so that tile() may read 16
      for (std::int64_t j = 0; j < end - start; ++j)
        for (std::int64_t c = 0; c < kPanel; ++c)
          tail[j * kPanel + c] =
              c < d % kPanel ? a.values[h][(start + j) * vs + d / kPanel * kPanel + c] : 0.0f;
    for (std::int64_t r0 = 0; r0 < rows; r0 += kTileRows) {
      const std::int64_t n = std::min<std::int64_t>(kTileRows, rows - r0);
      const std::int64_t lo = (first_of(r0) - start) / 8 * 8, hi = last_of(r0 + n - 1) + 1 - start;
      float sum[kTileRows];
      for (std::int64_t r = 0; r < n; ++r)
        sum[r] = op.softmax(scores + (r0 + r) * keys + lo, round_up(hi - lo, 8),
                            first_of(r0 + r) - start - lo, last_of(r0 + r) + 1 - start - lo);
      for (std::int64_t c = 0; c < d; c += kPanel) {
        const bool whole = c + kPanel <= d;
        op.tile(static_cast<int>(n), hi - lo, scores + r0 * keys + lo, keys,
                whole ? a.values[h] + (start + lo) * vs + c : tail + lo * kPanel, whole ? vs : kPanel,
                out + r0 * pd + c, pd, kPanel);
      }
      for (std::int64_t r = 0; r < n; ++r) {
        float* to = a.out.row(first + (r0 + r) / group) + (head * group + (r0 + r) % group) * d;
        const float inverse = 1.0f / sum[r];
        for (std::int64_t c = 0; c < d; ++c) to[c] = out[(r0 + r) * pd + c] * inverse;
      }
    }
  }
};

}  // namespace

Status attention(const AttentionArgs& a, AttentionScratch& scratch, const ParallelFor& parallel) {
  if (a.tokens == 0) return {};
  const std::int64_t group = a.heads / a.kv_heads, reach = a.position + a.tokens;
  // Enough rows to reuse a panel of keys, few enough that their scores stay in the second-level cache.
  const std::int64_t rows_wanted = reach > 4096 ? 12 : 48;
  const std::int64_t count = std::min(a.tokens, std::max<std::int64_t>(1, rows_wanted / group));
  const std::int64_t blocks = (a.tokens + count - 1) / count, tasks = blocks * a.kv_heads;
  const std::int64_t lanes = std::min<std::int64_t>(tasks, std::max(1, parallel.threads));
  const std::int64_t span = a.window ? std::min(reach, a.window + count + kPanel) : reach;
  const std::size_t each = AttentionTask::scratch_size(a, count * group, round_up(span, kPanel) + kPanel);
  QF_TRY(scratch.reserve(each * static_cast<std::size_t>(lanes)));
  parallel_for(parallel, lanes, [&](std::int64_t lane) {
    for (std::int64_t t = lane; t < tasks; t += lanes) {
      const std::int64_t first = t / a.kv_heads * count;
      AttentionTask{a, t % a.kv_heads, first, std::min(count, a.tokens - first),
                    scratch.data() + static_cast<std::size_t>(lane) * each}
          .run();
    }
  });
  return {};
}

void silu_mul(float* gate, const float* up, std::int64_t n) {
  ops().silu_mul(gate, up, n);
}

}  // namespace qf::kernel
