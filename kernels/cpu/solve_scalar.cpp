// Steps of solvers in plain C++, multiplying and adding with two roundings.
#include <bit>
#include <cstring>

#include "kernels/cpu/solve_ops.hpp"

namespace qf::kernel::detail {
namespace {

#include "kernels/cpu/lanes_scalar.inc"

#include "kernels/cpu/solve.inc"

}  // namespace

constinit const SolveOps kSolveScalar = QF_SOLVE_OPS("scalar");

}  // namespace qf::kernel::detail
