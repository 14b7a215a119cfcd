// The plain forms, for any machine: 4-wide vector extensions, which every baseline has (SSE2, NEON).
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/cpu/dense_ops.hpp"

namespace qf::kernel::detail {
namespace {

using F4 [[gnu::vector_size(16)]] = float;

F4 load(const float* p) {
  F4 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <int Rows>
void tile_rows(std::int64_t k, const float* x, std::int64_t x_stride, const float* w, std::int64_t w_step,
               float* y, std::int64_t y_stride, int columns) {
  F4 sum[Rows][4] = {};
  for (std::int64_t p = 0; p < k; ++p, w += w_step) {
    const F4 w0 = load(w), w1 = load(w + 4), w2 = load(w + 8), w3 = load(w + 12);
    for (int r = 0; r < Rows; ++r) {
      const float xr = x[r * x_stride + p];
      const F4 xv = {xr, xr, xr, xr};
      sum[r][0] += xv * w0;
      sum[r][1] += xv * w1;
      sum[r][2] += xv * w2;
      sum[r][3] += xv * w3;
    }
  }
  for (int r = 0; r < Rows; ++r)
    std::memcpy(y + r * y_stride, sum[r], static_cast<std::size_t>(columns) * sizeof(float));
}

void tile(int rows, std::int64_t k, const float* x, std::int64_t x_stride, const float* w,
          std::int64_t w_step, float* y, std::int64_t y_stride, int columns) {
  for (; rows >= 2; rows -= 2, x += 2 * x_stride, y += 2 * y_stride)
    tile_rows<2>(k, x, x_stride, w, w_step, y, y_stride, columns);
  if (rows) tile_rows<1>(k, x, x_stride, w, w_step, y, y_stride, columns);
}

void row(std::int64_t k, const float* x, const float* w, std::int64_t panel_stride, int panels, float* y) {
  for (int i = 0; i < panels; ++i)
    tile_rows<1>(k, x, 0, w + i * panel_stride, kPanel, y + i * kPanel, 0, kPanel);
}

void pack(const float* rows, std::int64_t stride, int count, std::int64_t k, float* panel) {
  for (std::int64_t p = 0; p < k; ++p)
    for (int r = 0; r < kPanel; ++r) panel[p * kPanel + r] = r < count ? rows[r * stride + p] : 0.0f;
}

float exp_approx(float x) {
  if (!(x >= kExpMin)) return x < kExpMin ? 0.0f : x;  // NaN stays NaN
  if (x > kExpMax) return std::numeric_limits<float>::infinity();
  const float n = static_cast<float>(static_cast<int>(x * kLog2e + (x < 0 ? -0.5f : 0.5f)));
  const float r = x - n * kLn2High - n * kLn2Low;
  float poly = kExpPoly[0];
  for (int i = 1; i < 6; ++i) poly = poly * r + kExpPoly[i];
  poly = poly * r * r + r + 1.0f;
  return poly * std::bit_cast<float>(static_cast<std::uint32_t>(static_cast<int>(n) + 127) << 23);
}

float softmax(float* s, std::int64_t n, std::int64_t lo, std::int64_t hi) {
  float largest = s[lo];
  for (std::int64_t i = lo; i < hi; ++i) largest = s[i] > largest ? s[i] : largest;
  float sum[8] = {};
  for (std::int64_t i = 0; i < n; ++i) {
    s[i] = i >= lo && i < hi ? exp_approx(s[i] - largest) : 0.0f;
    sum[i & 7] += s[i];
  }
  return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

void silu_mul(float* gate, const float* up, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) gate[i] = gate[i] / (1.0f + exp_approx(-gate[i])) * up[i];
}

}  // namespace

constinit const DenseOps kDenseGeneric = {"generic", tile, row, pack, softmax, silu_mul};

}  // namespace qf::kernel::detail
