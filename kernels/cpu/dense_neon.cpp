// Float layers with NEON (AArch64): four vectors a panel.
#include "kernels/cpu/dense_ops.hpp"

#if QF_ARM64
#include <arm_neon.h>

namespace qf::kernel::detail {
namespace {

#include "kernels/cpu/lanes_neon.inc"

#include "kernels/cpu/dense.inc"

}  // namespace

constinit const DenseOps kDenseNeon = QF_DENSE_OPS("neon");

}  // namespace qf::kernel::detail
#endif
