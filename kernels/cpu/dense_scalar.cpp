// Float layers in plain C++, for any machine, multiplying and adding with two roundings. 4-wide vector
// extensions, which every baseline has (SSE2, NEON), carry what would otherwise be arrays.
#include <bit>
#include <cstring>

#include "kernels/cpu/dense_ops.hpp"

namespace qf::kernel::detail {
namespace {

#include "kernels/cpu/lanes_scalar.inc"

#include "kernels/cpu/dense.inc"

}  // namespace

constinit const DenseOps kDenseScalar = QF_DENSE_OPS("scalar");

}  // namespace qf::kernel::detail
