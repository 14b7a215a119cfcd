// Needs: link qf. What the tests of float operations share: random numbers, instruction sets of this CPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/dense_ops.hpp"
#include "qf/kernel/matmul.hpp"

namespace qf::kernel::test {

class Random {
 public:
  explicit Random(std::uint32_t seed) : rng_(seed) {}
  float operator()() { return normal_(rng_); }
  std::vector<float> many(std::int64_t n) {
    std::vector<float> out(static_cast<std::size_t>(n));
    for (float& x : out) x = normal_(rng_);
    return out;
  }

 private:
  std::mt19937 rng_;
  std::normal_distribution<float> normal_;
};

inline std::vector<const detail::DenseOps*> all_dense_ops() {
  std::vector<const detail::DenseOps*> ops = {&detail::kDenseScalar};
#if QF_X86
  if (cpu_isa() & isa::avx2) ops.push_back(&detail::kDenseAvx2);
  if (cpu_isa() & isa::avx512) ops.push_back(&detail::kDenseAvx512);
#elif QF_ARM64
  if (cpu_isa() & isa::neon) ops.push_back(&detail::kDenseNeon);
#endif
  return ops;
}

inline constexpr float kGuard = 1234.5f;

template <class T>
std::vector<T> stored(const std::vector<float>& from) {
  std::vector<T> out;
  for (const float x : from) out.push_back(T(x));
  return out;
}

// sqrt(sum (got - want)^2 / sum want^2); NaN counts as infinitely wrong.
template <class Got, class Want>
double relative_rms(const Got& got, const Want& want) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double off = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    error += off * off, norm += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  return error == error ? std::sqrt(error / (norm > 0 ? norm : 1)) : 1e30;
}

}  // namespace qf::kernel::test
