// Needs: link qf. What the tests of kernels share: threads, random matrices.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include "qf/kernel/matmul.hpp"

namespace qf::kernel::test {

using Rng = std::mt19937;

inline std::int64_t pick(Rng& rng, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
}

// Threads of the standard library behind a ParallelFor; item i runs on thread i % threads.
inline ParallelFor threads_of(int& count) {
  return {[](void* user, std::int64_t items, void (*body)(void*, std::int64_t), void* context) {
            const int threads = *static_cast<int*>(user);
            std::vector<std::thread> running;
            for (int t = 0; t < threads; ++t)
              running.emplace_back([=] {
                for (std::int64_t i = t; i < items; i += threads) body(context, i);
              });
            for (std::thread& thread : running) thread.join();
          },
          &count, count};
}

inline QuantizedMatrix random_matrix(Rng& rng, const Scheme& scheme, std::int64_t n, std::int64_t k) {
  auto made = QuantizedMatrix::make(scheme, n, k);
  REQUIRE(made.ok());
  QuantizedMatrix w = std::move(*made);
  std::normal_distribution<float> normal;
  const float middle = scheme.symmetric_zero();
  for (std::int64_t r = 0; r < n; ++r) {
    for (std::int64_t c = 0; c < k; ++c) {
      const float code = std::nearbyint(middle + normal(rng) * middle / 3);
      w.codes()(r, c) = static_cast<std::uint8_t>(
          pick(rng, 0, 15) == 0 ? pick(rng, 0, 1) * (scheme.levels() - 1)
                                : std::min(std::max(code, 0.0f), static_cast<float>(scheme.levels() - 1)));
    }
    for (std::int64_t g = 0; g < w.groups(); ++g) {
      w.scales()(r, g) =
          round_to(scheme.scale, 0.02f * (1 + std::fabs(normal(rng))) * (pick(rng, 0, 7) ? 1.f : -1.f));
      if (w.zeros().data)
        w.zeros()(r, g) = scheme.zero == ZeroKind::integer
                              ? static_cast<float>(pick(rng, 0, scheme.levels() - 1))
                              : middle * (1 + 0.3f * normal(rng));
    }
  }
  for (float& entry : std::span<float>(w.codebook().data, static_cast<std::size_t>(w.codebook().size())))
    entry = normal(rng);
  return w;
}

inline Scheme random_scheme(Rng& rng, std::int64_t k) {
  static constexpr DType kScales[] = {DType::f16, DType::bf16, DType::f32};
  static constexpr std::int64_t kGroups[] = {0,  1,  2,  3,  4,  5,   7,   8,   12,
                                             16, 31, 32, 33, 64, 100, 128, 256, 1000};
  Scheme s;
  s.bits = static_cast<int>(pick(rng, 1, 8));
  s.group = kGroups[pick(rng, 0, 17)];
  if (pick(rng, 0, 9) == 0) s.group = pick(rng, 1, k + 2);
  s.zero = static_cast<ZeroKind>(pick(rng, 0, 2));
  s.scale = kScales[pick(rng, 0, 2)];
  return s;
}

// The kernels of the table that accept w and m rows on this CPU.
inline std::vector<const Kernel*> fitting(const PackedWeight& w, std::int64_t m) {
  std::vector<const Kernel*> found;
  for (const Kernel* kernel : kernels()) {
    MatmulOptions options;
    options.kernel = kernel;
    if (choose_kernel(w, m, options).ok()) found.push_back(kernel);
  }
  return found;
}

}  // namespace qf::kernel::test
