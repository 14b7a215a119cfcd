// Float layers with AVX2 and FMA. A tile of 6 rows and 16 outputs keeps 12 sums in registers, which leaves
// room for one pair of weights and one broadcast: 2 FMA a cycle with 2 + 6 loads for 12 of them.
#include "kernels/cpu/dense_ops.hpp"

#if QF_X86

#include <immintrin.h>

#include <cstring>

QF_TARGET_BEGIN("avx2,fma")

namespace qf::kernel::detail {
namespace {

template <int Rows>
void tile_rows(std::int64_t k, const float* x, std::int64_t x_stride, const float* w, std::int64_t w_step,
               float* y, std::int64_t y_stride, int columns) {
  __m256 sum[Rows][2];
  for (int r = 0; r < Rows; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
  for (std::int64_t p = 0; p < k; ++p, w += w_step) {
    const __m256 w0 = _mm256_loadu_ps(w), w1 = _mm256_loadu_ps(w + 8);
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
      const __m256 xr = _mm256_broadcast_ss(x + r * x_stride + p);
      sum[r][0] = _mm256_fmadd_ps(xr, w0, sum[r][0]);
      sum[r][1] = _mm256_fmadd_ps(xr, w1, sum[r][1]);
    }
  }
  for (int r = 0; r < Rows; ++r, y += y_stride) {
    if (columns == kPanel) {
      _mm256_storeu_ps(y, sum[r][0]);
      _mm256_storeu_ps(y + 8, sum[r][1]);
    } else {
      alignas(32) float all[kPanel];
      _mm256_store_ps(all, sum[r][0]);
      _mm256_store_ps(all + 8, sum[r][1]);
      std::memcpy(y, all, static_cast<std::size_t>(columns) * sizeof(float));
    }
  }
}

void tile(int rows, std::int64_t k, const float* x, std::int64_t x_stride, const float* w,
          std::int64_t w_step, float* y, std::int64_t y_stride, int columns) {
  switch (rows) {
    case 1:
      return tile_rows<1>(k, x, x_stride, w, w_step, y, y_stride, columns);
    case 2:
      return tile_rows<2>(k, x, x_stride, w, w_step, y, y_stride, columns);
    case 3:
      return tile_rows<3>(k, x, x_stride, w, w_step, y, y_stride, columns);
    case 4:
      return tile_rows<4>(k, x, x_stride, w, w_step, y, y_stride, columns);
    case 5:
      return tile_rows<5>(k, x, x_stride, w, w_step, y, y_stride, columns);
    default:
      return tile_rows<6>(k, x, x_stride, w, w_step, y, y_stride, columns);
  }
}

// Several panels at once: more streams of memory, and sums enough to hide the latency of FMA.
template <int Panels>
void row_panels(std::int64_t k, const float* x, const float* w, std::int64_t panel_stride, float* y) {
  __m256 sum[Panels][2];
  for (int i = 0; i < Panels; ++i) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
  for (std::int64_t p = 0; p < k; ++p, w += kPanel) {
    const __m256 xp = _mm256_broadcast_ss(x + p);
#pragma GCC unroll 4
    for (int i = 0; i < Panels; ++i) {
      sum[i][0] = _mm256_fmadd_ps(xp, _mm256_loadu_ps(w + i * panel_stride), sum[i][0]);
      sum[i][1] = _mm256_fmadd_ps(xp, _mm256_loadu_ps(w + i * panel_stride + 8), sum[i][1]);
    }
  }
  for (int i = 0; i < Panels; ++i) {
    _mm256_storeu_ps(y + i * kPanel, sum[i][0]);
    _mm256_storeu_ps(y + i * kPanel + 8, sum[i][1]);
  }
}

void row(std::int64_t k, const float* x, const float* w, std::int64_t panel_stride, int panels, float* y) {
  switch (panels) {
    case 1:
      return row_panels<1>(k, x, w, panel_stride, y);
    case 2:
      return row_panels<2>(k, x, w, panel_stride, y);
    case 3:
      return row_panels<3>(k, x, w, panel_stride, y);
    default:
      return row_panels<4>(k, x, w, panel_stride, y);
  }
}

void transpose8(const float* rows, std::int64_t stride, float* out) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(rows + i * stride);
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int h = 0; h < 2; ++h) {
    r[4 * h] = _mm256_shuffle_ps(t[4 * h], t[4 * h + 2], 0x44);
    r[4 * h + 1] = _mm256_shuffle_ps(t[4 * h], t[4 * h + 2], 0xee);
    r[4 * h + 2] = _mm256_shuffle_ps(t[4 * h + 1], t[4 * h + 3], 0x44);
    r[4 * h + 3] = _mm256_shuffle_ps(t[4 * h + 1], t[4 * h + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * kPanel, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(out + (i + 4) * kPanel, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

void pack(const float* rows, std::int64_t stride, int count, std::int64_t k, float* panel) {
  std::int64_t p = 0;
  if (count == kPanel) {
    for (; p + 8 <= k; p += 8) {
      transpose8(rows + p, stride, panel + p * kPanel);
      transpose8(rows + 8 * stride + p, stride, panel + p * kPanel + 8);
    }
  }
  for (; p < k; ++p)
    for (int r = 0; r < kPanel; ++r) panel[p * kPanel + r] = r < count ? rows[r * stride + p] : 0.0f;
}

__m256 exp8(__m256 x) {
  const __m256 under = _mm256_cmp_ps(x, _mm256_set1_ps(kExpMin), _CMP_LT_OQ);
  const __m256 over = _mm256_cmp_ps(x, _mm256_set1_ps(kExpMax), _CMP_GT_OQ);
  x = _mm256_min_ps(_mm256_set1_ps(kExpMax), x);  // in this order NaN stays NaN
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(kLog2e)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2High), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2Low), r);
  __m256 poly = _mm256_set1_ps(kExpPoly[0]);
  for (int i = 1; i < 6; ++i) poly = _mm256_fmadd_ps(poly, r, _mm256_set1_ps(kExpPoly[i]));
  poly = _mm256_add_ps(_mm256_fmadd_ps(_mm256_mul_ps(poly, r), r, r), _mm256_set1_ps(1.0f));
  const __m256i power =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  const __m256 e = _mm256_andnot_ps(under, _mm256_mul_ps(poly, _mm256_castsi256_ps(power)));
  return _mm256_blendv_ps(e, _mm256_set1_ps(__builtin_inff()), over);
}

float softmax(float* s, std::int64_t n, std::int64_t lo, std::int64_t hi) {
  const float minus_infinity = -__builtin_inff();
  for (std::int64_t i = 0; i < lo; ++i) s[i] = minus_infinity;
  for (std::int64_t i = hi; i < n; ++i) s[i] = minus_infinity;
  __m256 most = _mm256_loadu_ps(s);
  for (std::int64_t i = 8; i < n; i += 8) most = _mm256_max_ps(most, _mm256_loadu_ps(s + i));
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, most);
  float largest = lanes[0];
  for (int i = 1; i < 8; ++i) largest = lanes[i] > largest ? lanes[i] : largest;
  const __m256 shift = _mm256_set1_ps(largest);
  __m256 sum = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < n; i += 8) {
    const __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(s + i), shift));
    _mm256_storeu_ps(s + i, e);
    sum = _mm256_add_ps(sum, e);
  }
  _mm256_store_ps(lanes, sum);
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

__m256 silu8(__m256 gate, __m256 up) {
  const __m256 e = exp8(_mm256_xor_ps(gate, _mm256_set1_ps(-0.0f)));
  return _mm256_mul_ps(_mm256_div_ps(gate, _mm256_add_ps(_mm256_set1_ps(1.0f), e)), up);
}

void silu_mul(float* gate, const float* up, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(gate + i, silu8(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
  if (i < n) {
    alignas(32) float g[8] = {}, u[8] = {};
    const std::size_t rest = static_cast<std::size_t>(n - i) * sizeof(float);
    std::memcpy(g, gate + i, rest);
    std::memcpy(u, up + i, rest);
    _mm256_store_ps(g, silu8(_mm256_load_ps(g), _mm256_load_ps(u)));
    std::memcpy(gate + i, g, rest);
  }
}

}  // namespace

constinit const DenseOps kDenseAvx2 = {"avx2", tile, row, pack, softmax, silu_mul};

}  // namespace qf::kernel::detail

QF_TARGET_END

#endif
