// Float layers with AVX-512 (F, BW, VL, DQ): a vector is a panel's row, and a tile is 6 rows of x 4 panels.
#include "kernels/cpu/dense_ops.hpp"

#if QF_X86
// g++ 12 warns of the undefined vectors that its own header passes to masked instructions.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

QF_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")
namespace qf::kernel::detail {
namespace {

#include "kernels/cpu/x86_asm.inc"

#include "kernels/cpu/lanes_avx512.inc"

#include "kernels/cpu/dense.inc"

}  // namespace

constinit const DenseOps kDenseAvx512 = QF_DENSE_OPS("avx512");

}  // namespace qf::kernel::detail
QF_TARGET_END
#endif
