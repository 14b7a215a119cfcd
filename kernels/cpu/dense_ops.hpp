// What float layers, attention and the small operations of a decoder are made of, once per instruction set
// (dense.inc). Everything larger is built from these in src/. Each fixes the order of its sums by indices
// alone, so a result never depends on how rows or columns are split into calls.
#pragma once

#include <cstdint>

#include "qf/core/config.hpp"
#include "qf/core/half.hpp"

namespace qf::kernel::detail {

inline constexpr int kPanel = 16;    // outputs that lie side by side in a packed weight: panels [k][16]
inline constexpr int kTileRows = 6;  // most rows of x that tile() takes

enum class Sum : std::uint8_t {
  set,    // y = sum
  add,    // y = y + sum
  go_on,  // the sum starts at y: the same bits as one call over both stretches of k
};

// y(r, p, c) = sum over i of x(r, i) * w(i, p, c), i ascending, for r < rows, p < panels and c < kPanel, in the
// last panel c < last_columns. x(r, i) = x[r * x_stride + i], w(i, p, c) = w[i * w_step + p * w_panel + c],
// y(r, p, c) = y[r * y_stride + p * y_panel + c]. Nothing beyond the columns is touched. No aliasing.
struct TileArgs {
  int rows, panels;
  std::int64_t k;
  const float* x;
  std::int64_t x_stride;
  const void* w;
  std::int64_t w_step, w_panel;
  float* y;
  std::int64_t y_stride, y_panel;
  int last_columns;
  Sum sum;
};

enum Stored : int { kF32, kF16, kBf16, kStoredTypes };  // of weights, keys and values

struct DenseOps {
  const char* name;
  int panels;                                     // tile() is at its best with this many for many rows of x
  void (*tile[kStoredTypes])(const TileArgs& a);  // by the type of w
  // Makes a panel [k][kPanel] of f32 from kPanel rows of k elements. `soon`: nullptr, or as many rows that will be
  // packed soon, then as many that will be used later; they are asked for on the way.
  void (*pack[kStoredTypes])(const void* const* rows, std::int64_t k, float* panel, const void* const* soon);
  void (*widen[kStoredTypes])(const void* from, std::int64_t n, float* to);
  void (*to_f16)(const float* from, std::int64_t n, f16* to);
  // s[i] = exp(s[i] - largest) for lo <= i < hi, where `largest` is that of these, and 0 elsewhere in [0, n);
  // returns the sum, added up in 16 lanes by i mod 16. n is a multiple of 16, lo < hi.
  float (*softmax)(float* s, std::int64_t n, std::int64_t lo, std::int64_t hi, float* largest);
  void (*rms_norm)(const float* x, const float* weight, std::int64_t n, double eps, float* out);
  void (*rope)(float* x, const float* cosine, const float* sine, std::int64_t pairs);
  void (*silu_mul)(float* gate, const float* up, std::int64_t n);
  void (*add)(float* to, const float* from, std::int64_t n);
  void (*mix)(float* to, float a, const float* from, float b, std::int64_t n);  // to = to * a + from * b
};

extern const DenseOps kDenseScalar;
#if QF_X86
extern const DenseOps kDenseAvx2, kDenseAvx512;
#elif QF_ARM64
extern const DenseOps kDenseNeon;
#endif

const DenseOps& dense_ops();  // the best that this CPU and QF_MAX_ISA admit

// exp(x) by Cody and Waite's reduction, x = n ln 2 + r, and a polynomial for |r| <= ln 2 / 2 (Cephes expf).
// Below kExpMin the result is 0, above kExpMax infinity.
inline constexpr float kExpMin = -87.3f, kExpMax = 88.3f;
inline constexpr float kLog2e = 1.44269504088896341f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
inline constexpr float kExpPoly[6] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                      4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};

}  // namespace qf::kernel::detail
