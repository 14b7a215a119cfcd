// Float layers with AVX2, FMA and F16C. Twelve vectors of sums leave room for a pair of weights and a broadcast.
#include "kernels/cpu/dense_ops.hpp"

#if QF_X86
#include <immintrin.h>

QF_TARGET_BEGIN("avx2,fma,f16c")
namespace qf::kernel::detail {
namespace {

#include "kernels/cpu/x86_asm.inc"

#include "kernels/cpu/lanes_avx2.inc"

#include "kernels/cpu/dense.inc"

}  // namespace

constinit const DenseOps kDenseAvx2 = QF_DENSE_OPS("avx2");

}  // namespace qf::kernel::detail
QF_TARGET_END
#endif
