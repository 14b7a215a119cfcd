// What a kernel is: plain data. Kernels see this header, core/{config,dtype,half} and format/*, nothing else.
#pragma once

#include <cstdint>

#include "qf/core/dtype.hpp"
#include "qf/format/scheme.hpp"

namespace qf::kernel {

enum class Op : std::uint8_t { gemv, gemm };  // one row of x; several

// Instruction sets as bits; a kernel needs all of its bits.
using IsaMask = std::uint32_t;
namespace isa {
inline constexpr IsaMask scalar = 0, avx2 = 1u << 0 /* with FMA and F16C */,
                         avx512 = 1u << 1 /* F BW VL DQ */, avx512_vnni = 1u << 2, avx_vnni = 1u << 3,
                         avx512_bf16 = 1u << 4, neon = 1u << 8, neon_dotprod = 1u << 9, neon_i8mm = 1u << 10;
}

// How weights lie in a PackedWeight. The buffer names its layout, and the layout chooses the kernel.
enum class Layout : std::uint16_t {
  canonical = 0,  // codes as bytes [n, k], scales and zeros as f32 [n, groups]: the scalar oracle's
  rows16 = 1,     // blocks of 16 rows; docs/kernels.md states every byte
};

// How activations are computed with.
enum class Accuracy : std::uint8_t {
  exact,  // f32 activations: as good as a float matmul (relative RMS <= 1e-6)
  fast,   // int8 activations per group (relative RMS <= 1 %)
};

// y [m, n] = x [m, k] * w^T [k, n] + bias. Everything is checked by matmul() before a kernel sees it.
struct MatmulArgs {
  std::int64_t m, n, k;
  const float* x;  // row stride x_stride elements
  std::int64_t x_stride;
  const std::byte* weight;  // a PackedWeight's buffer, header included
  float* y;                 // row stride y_stride elements
  std::int64_t y_stride;
  const float* bias;            // [n] or nullptr
  std::int64_t n_begin, n_end;  // the outputs to compute; n_begin is a multiple of n_step
  void* scratch;                // as large as the kernel's scratch_bytes says, 64-byte aligned
};

// One row of kernels.inc. `run` is noexcept: no checks, no allocation, no threads; it never touches memory
// outside the extents given, and y(i, j) doesn't depend on how n is split.
struct Kernel {
  const char* name;
  Op op;
  Accuracy accuracy;
  Layout layout;
  int bits;  // of a weight
  IsaMask isa;
  std::int64_t m_min, m_max;  // rows of x it accepts
  std::int64_t n_step;        // the host may split n at multiples of it
  void (*run)(const MatmulArgs&);
};

}  // namespace qf::kernel
