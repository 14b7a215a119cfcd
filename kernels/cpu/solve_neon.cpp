// Steps of solvers with NEON (AArch64).
#include "kernels/cpu/solve_ops.hpp"

#if QF_ARM64
#include <arm_neon.h>

namespace qf::kernel::detail {
namespace {

#include "kernels/cpu/lanes_neon.inc"

#include "kernels/cpu/solve.inc"

}  // namespace

constinit const SolveOps kSolveNeon = QF_SOLVE_OPS("neon");

}  // namespace qf::kernel::detail
#endif
