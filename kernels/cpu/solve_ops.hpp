// What solvers of codes (room quant) are made of besides the tiles of dense_ops.hpp, once per instruction set
// (solve.inc). A panel is kPanel rows of a matrix side by side, [k][kPanel]: rows are independent given a Hessian, so
// they lie in the lanes of vectors. The same bits for any lane and any split into calls; multiply-adds are fused where
// the CPU fuses.
#pragma once

#include <cstdint>

#include "kernels/cpu/dense_ops.hpp"

namespace qf::kernel::detail {

// A code is clamp(round(w * inverse + zero), 0, top), ties to even, its value (code - zero) * scale; all but `top` by
// lane. A scale and inverse of 0 give the value 0.

// error[lane] = sum over i < count of weight[i] * (w - value)^2, i ascending.
struct NearestArgs {
  std::int64_t count;
  const float* w;                       // [count][kPanel]
  const float* weight;                  // [count]
  const float *scale, *inverse, *zero;  // [kPanel]
  float top;
  float* off;    // nullptr, or [count][kPanel] for w - value
  float* codes;  // nullptr, or [count][kPanel]
  float* error;  // [kPanel]
};

// One step of back substitution with a lower triangle L: for each column r of at most kTileRows, ascending,
//   residual = sum(r) + sum over c < r of L(r, c) * off(c)
//   code     = that of w(r) + residual / L(r, r)
//   off(r)   = w(r) - value, sum(r) = residual + L(r, r) * off(r)
struct RoundArgs {
  int columns, panels;
  const float* l;  // L(r, c) = l[r * l_stride + c]
  std::int64_t l_stride;
  const float* inverse_diagonal;  // [columns], 1 / L(r, r)
  const float* w;                 // this and the next three [columns][kPanel], panels `panel` elements apart
  float *sum, *off, *codes;
  std::int64_t panel;
  const float *scale, *inverse, *zero;  // [groups][kPanel], panels `grid_panel` elements apart
  std::int64_t grid_panel;
  const std::int32_t* group;  // [columns]
  float top;
};

// A pass of coordinate descent over each of `rows` rows, columns ascending: steps = round(gradient * rate) is added to
// the code, which stays in [0, top]; then gradient -= H(column, .) * (change of the code * scale * factor), and at the
// column itself by (change * scale * ridge) more. Returns how many codes changed.
struct DescendArgs {
  std::int64_t rows, k;
  float *codes, *gradient;    // [k], rows `stride` apart
  const float *scale, *rate;  // likewise
  std::int64_t stride;
  const float* h;  // H(i, j) = h[i * h_stride + j]
  std::int64_t h_stride;
  float factor, ridge, top;
};

struct SolveOps {
  const char* name;
  void (*nearest)(const NearestArgs& a);
  void (*round_columns)(const RoundArgs& a);
  std::int64_t (*descend)(const DescendArgs& a);
};

extern const SolveOps kSolveScalar;
#if QF_X86
extern const SolveOps kSolveAvx2, kSolveAvx512;
#elif QF_ARM64
extern const SolveOps kSolveNeon;
#endif

const SolveOps& solve_ops();  // the best that this CPU and QF_MAX_ISA admit

}  // namespace qf::kernel::detail
