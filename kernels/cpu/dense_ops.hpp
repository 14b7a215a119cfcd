// What float layers are made of, once per instruction set. Everything larger is built from these in src/.
// All of them fix the order of every sum by indices of k alone, so a result never depends on how rows or
// columns are split into calls.
#pragma once

#include <cstdint>

#include "qf/core/config.hpp"

namespace qf::kernel::detail {

inline constexpr int kPanel = 16;    // outputs that lie side by side in a packed weight: panels [k][16]
inline constexpr int kTileRows = 6;  // most rows of x that tile() takes

struct DenseOps {
  const char* name;
  // y(r, c) = sum over p of x(r, p) * w(p, c), p ascending, for r < rows <= kTileRows and c < columns <=
  // kPanel. w(p, c) = w[p * w_step + c]; all kPanel columns of w are readable. No aliasing.
  void (*tile)(int rows, std::int64_t k, const float* x, std::int64_t x_stride, const float* w,
               std::int64_t w_step, float* y, std::int64_t y_stride, int columns);
  // The same for one row and up to 4 panels, `panel_stride` apart: y[panel * kPanel + c], panels * kPanel
  // elements.
  void (*row)(std::int64_t k, const float* x, const float* w, std::int64_t panel_stride, int panels,
              float* y);
  // Makes a panel [k][kPanel] from count <= kPanel rows of k elements; missing rows are 0.
  void (*pack)(const float* rows, std::int64_t stride, int count, std::int64_t k, float* panel);
  // s[i] = exp(s[i] - max) for lo <= i < hi, where max is the largest of them, and 0 elsewhere in [0, n);
  // returns the sum, added up in 8 lanes by i mod 8. n is a multiple of 8, lo < hi.
  float (*softmax)(float* s, std::int64_t n, std::int64_t lo, std::int64_t hi);
  // gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i]
  void (*silu_mul)(float* gate, const float* up, std::int64_t n);
};

extern const DenseOps kDenseGeneric;
#if QF_X86
extern const DenseOps kDenseAvx2;
#endif

// exp(x) by Cody and Waite's reduction, x = n ln 2 + r, and a polynomial for |r| <= ln 2 / 2 (Cephes expf);
// relative error about 1e-7. Below kExpMin the result is 0, above kExpMax infinity.
inline constexpr float kExpMin = -87.3f, kExpMax = 88.3f;
inline constexpr float kLog2e = 1.44269504088896341f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
inline constexpr float kExpPoly[6] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                      4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};

}  // namespace qf::kernel::detail
