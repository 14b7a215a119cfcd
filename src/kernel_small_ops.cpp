// The choice of instruction set for float operations, and the small ones of them.
#include "qf/kernel/small_ops.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/dense_ops.hpp"
#include "qf/kernel/matmul.hpp"

namespace qf::kernel {

namespace detail {

const DenseOps& dense_ops() {
  static const DenseOps& kBest = []() -> const DenseOps& {
    [[maybe_unused]] const IsaMask isa = cpu_isa();
#if QF_X86
    if (isa & isa::avx512) return kDenseAvx512;
    if (isa & isa::avx2) return kDenseAvx2;
#elif QF_ARM64
    if (isa & isa::neon) return kDenseNeon;
#endif
    return kDenseScalar;
  }();
  return kBest;
}

}  // namespace detail

using detail::dense_ops;
using detail::kPanel;

void rms_norm(const float* x, const float* weight, std::int64_t n, double eps, float* out) {
  dense_ops().rms_norm(x, weight, n, eps, out);
}

void rope(float* x, const float* cosine, const float* sine, std::int64_t pairs) {
  dense_ops().rope(x, cosine, sine, pairs);
}

void softmax(float* x, std::int64_t n) {
  const detail::DenseOps& op = dense_ops();
  // The last elements that don't fill a panel go through one of their own; both are then brought to one scale.
  const std::int64_t whole = n / kPanel * kPanel, rest = n - whole;
  float tail[kPanel] = {}, most[2] = {-__builtin_inff(), -__builtin_inff()}, sum[2] = {};
  if (whole) sum[0] = op.softmax(x, whole, 0, whole, &most[0]);
  if (rest) {
    std::copy_n(x + whole, rest, tail);
    sum[1] = op.softmax(tail, kPanel, 0, rest, &most[1]);
  }
  const float top = std::max(most[0], most[1]);
  const float share[2] = {whole ? std::exp(most[0] - top) : 0, rest ? std::exp(most[1] - top) : 0};
  const float total = sum[0] * share[0] + sum[1] * share[1];
  op.mix(x, share[0] / total, x, 0, whole);
  for (std::int64_t i = 0; i < rest; ++i) x[whole + i] = tail[i] * (share[1] / total);
}

void silu_mul(float* gate, const float* up, std::int64_t n) {
  dense_ops().silu_mul(gate, up, n);
}

void to_f16(const float* from, std::int64_t n, f16* to) {
  dense_ops().to_f16(from, n, to);
}

void add(float* to, const float* from, std::int64_t n) {
  dense_ops().add(to, from, n);
}

}  // namespace qf::kernel
