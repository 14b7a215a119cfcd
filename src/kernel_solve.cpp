// The choice of instruction set for solvers.
#include "kernels/cpu/solve_ops.hpp"
#include "qf/kernel/matmul.hpp"

namespace qf::kernel::detail {

const SolveOps& solve_ops() {
  static const SolveOps& kBest = []() -> const SolveOps& {
    [[maybe_unused]] const IsaMask isa = cpu_isa();
#if QF_X86
    if (isa & isa::avx512) return kSolveAvx512;
    if (isa & isa::avx2) return kSolveAvx2;
#elif QF_ARM64
    if (isa & isa::neon) return kSolveNeon;
#endif
    return kSolveScalar;
  }();
  return kBest;
}

}  // namespace qf::kernel::detail
