// Steps of solvers with AVX2, FMA and F16C.
#include "kernels/cpu/solve_ops.hpp"

#if QF_X86
#include <immintrin.h>

QF_TARGET_BEGIN("avx2,fma,f16c")
namespace qf::kernel::detail {
namespace {

#include "kernels/cpu/x86_asm.inc"

#include "kernels/cpu/lanes_avx2.inc"

#include "kernels/cpu/solve.inc"

}  // namespace

constinit const SolveOps kSolveAvx2 = QF_SOLVE_OPS("avx2");

}  // namespace qf::kernel::detail
QF_TARGET_END
#endif
