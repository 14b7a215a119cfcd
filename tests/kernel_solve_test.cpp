#include <catch2/catch.hpp>
#include <cstring>

#include "kernels/cpu/solve_ops.hpp"
#include "tests/dense_tools.hpp"

using namespace qf::kernel;
using namespace qf::kernel::test;
using namespace qf::kernel::detail;

namespace {

std::vector<const SolveOps*> all_solve_ops() {
  std::vector<const SolveOps*> ops = {&kSolveScalar};
#if QF_X86
  if (cpu_isa() & isa::avx2) ops.push_back(&kSolveAvx2);
  if (cpu_isa() & isa::avx512) ops.push_back(&kSolveAvx512);
#elif QF_ARM64
  if (cpu_isa() & isa::neon) ops.push_back(&kSolveNeon);
#endif
  return ops;
}

double code_of(double w, double inverse, double zero, double top) {
  return std::nearbyint(std::min(std::max(w * inverse + zero, 0.0), top));
}

// Grids of `groups` x 16 lanes; inverses are powers of two, so that codes are the same in f32 and f64 but for ties.
struct Grids {
  std::vector<float> scale, inverse, zero;

  Grids(Random& random, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      scale.push_back(i % 7 == 3 ? 0 : std::ldexp(1.0f, static_cast<int>(2 * random()) - 2));
      inverse.push_back(scale.back() == 0 ? 0 : 1 / scale.back());
      zero.push_back(std::round(3 + 2 * random()));
    }
  }
};

}  // namespace

TEST_CASE("solve: nearest codes and their error, for every instruction set") {
  for (const SolveOps* op : all_solve_ops())
    for (const std::int64_t count : {1, 5, 64}) {
      CAPTURE(op->name, count);
      Random random(1);
      const Grids g(random, kPanel);
      std::vector<float> w = random.many(count * kPanel), weight = random.many(count);
      for (float& x : weight) x = std::fabs(x);
      w[0] = 1e9f;
      std::vector<float> off(w.size() + 1, kGuard), codes(w.size() + 1, kGuard), error(kPanel + 1, kGuard);
      NearestArgs a{count,         w.data(), weight.data(), g.scale.data(), g.inverse.data(),
                    g.zero.data(), 7,        off.data(),    codes.data(),   error.data()};
      op->nearest(a);
      for (int lane = 0; lane < kPanel; ++lane) {
        double want = 0;
        for (std::int64_t i = 0; i < count; ++i) {
          const auto at = static_cast<std::size_t>(i * kPanel + lane), l = static_cast<std::size_t>(lane);
          const double x = w[at], code = code_of(x, g.inverse[l], g.zero[l], 7);
          const double left = x - (code - g.zero[l]) * g.scale[l];
          REQUIRE(static_cast<double>(codes[at]) == code);
          REQUIRE(off[at] == Approx(left).margin(1e-6));
          want += weight[static_cast<std::size_t>(i)] * left * left;
        }
        REQUIRE(error[static_cast<std::size_t>(lane)] == Approx(want).epsilon(1e-5));
      }
      const std::vector<float> before = error;
      a.off = nullptr, a.codes = nullptr;
      op->nearest(a);
      REQUIRE(error == before);
      REQUIRE((off.back() == kGuard && codes.back() == kGuard && error.back() == kGuard));
    }
}

TEST_CASE("solve: a step of back substitution, for every instruction set") {
  constexpr int kColumns = 6;
  constexpr std::int64_t kGroups = 3, kApart = kColumns * kPanel;
  const std::int32_t group[kColumns] = {0, 2, 1, 1, 0, 2};
  for (const SolveOps* op : all_solve_ops())
    for (int columns = 1; columns <= kColumns; ++columns)
      for (int panels = 1; panels <= 4; ++panels) {
        CAPTURE(op->name, columns, panels);
        Random random(3);
        const Grids g(random, panels * kGroups * kPanel);
        std::vector<float> l = random.many(kColumns * kColumns), over(kColumns);
        for (std::size_t r = 0; r < kColumns; ++r) {
          l[r * kColumns + r] = 1 + std::fabs(l[r * kColumns + r]);
          over[r] = 1 / l[r * kColumns + r];
        }
        const std::vector<float> w = random.many(panels * kApart), start = random.many(panels * kApart);
        std::vector<float> sum = start, off(w.size(), kGuard), codes(w.size(), kGuard);
        op->round_columns({columns, panels, l.data(), kColumns, over.data(), w.data(), sum.data(), off.data(),
                           codes.data(), kApart, g.scale.data(), g.inverse.data(), g.zero.data(),
                           kGroups * kPanel, group, 7});
        for (int p = 0; p < panels; ++p)
          for (int lane = 0; lane < kPanel; ++lane)
            for (int r = 0; r < kColumns; ++r) {
              const auto at = static_cast<std::size_t>(p * kApart + r * kPanel + lane);
              const auto grid = static_cast<std::size_t>((p * kGroups + group[r]) * kPanel + lane);
              if (r >= columns) {
                REQUIRE((sum[at] == start[at] && off[at] == kGuard && codes[at] == kGuard));
                continue;
              }
              double residual = start[at];
              const auto row = static_cast<std::size_t>(r * kColumns);
              for (int c = 0; c < r; ++c)
                residual += static_cast<double>(l[row + static_cast<std::size_t>(c)]) *
                            off[at - static_cast<std::size_t>((r - c) * kPanel)];
              const double diagonal = l[row + static_cast<std::size_t>(r)];
              const double exact = (w[at] + residual / diagonal) * g.inverse[grid] + g.zero[grid];
              const double code = code_of(w[at] + residual / diagonal, g.inverse[grid], g.zero[grid], 7);
              if (std::fabs(exact - std::floor(exact) - 0.5) > 1e-4)
                REQUIRE(static_cast<double>(codes[at]) == code);
              const double left = w[at] - (static_cast<double>(codes[at]) - g.zero[grid]) * g.scale[grid];
              REQUIRE(off[at] == Approx(left).margin(1e-5));
              REQUIRE(sum[at] == Approx(residual + diagonal * left).margin(1e-4));
            }
      }
}

TEST_CASE("solve: coordinate descent takes each column to its best code in turn, for every instruction set") {
  for (const SolveOps* op : all_solve_ops())
    for (const std::int64_t k : {1, 3, 16, 37, 130}) {
      CAPTURE(op->name, k);
      Random random(5);
      constexpr std::int64_t kRows = 3;
      const std::int64_t stride = (k + 15) / 16 * 16;
      const auto size = static_cast<std::size_t>(kRows * stride);
      std::vector<float> h(static_cast<std::size_t>(k * k), 0.0f), x = random.many(2 * k * k);
      for (std::int64_t i = 0; i < k; ++i)
        for (std::int64_t j = 0; j < k; ++j) {
          double sum = 0;
          for (std::int64_t t = 0; t < 2 * k; ++t)
            sum += static_cast<double>(x[static_cast<std::size_t>(t * k + i)]) *
                   x[static_cast<std::size_t>(t * k + j)];
          h[static_cast<std::size_t>(i * k + j)] = static_cast<float>(sum / static_cast<double>(2 * k));
        }
      std::vector<float> codes(size, kGuard), gradient(size, kGuard), scale(size, 0.5f), rate(size, 0.0f);
      std::vector<double> off(size);
      const float ridge = 0.25f, factor = 2;
      for (std::int64_t r = 0; r < kRows; ++r)
        for (std::int64_t c = 0; c < k; ++c) {
          const auto at = static_cast<std::size_t>(r * stride + c);
          codes[at] = std::min(std::max(std::round(3 + 2 * random()), 0.0f), 7.0f);
          off[at] = static_cast<double>(random());
          rate[at] =
              c % 11 == 10 ? 0 : 1 / (0.5f * (factor * h[static_cast<std::size_t>(c * k + c)] + ridge));
        }
      const auto slope = [&](std::int64_t r, std::int64_t c) {
        double sum = static_cast<double>(ridge) * off[static_cast<std::size_t>(r * stride + c)];
        for (std::int64_t i = 0; i < k; ++i)
          sum += static_cast<double>(factor) * off[static_cast<std::size_t>(r * stride + i)] *
                 h[static_cast<std::size_t>(i * k + c)];
        return sum;
      };
      for (std::int64_t r = 0; r < kRows; ++r)
        for (std::int64_t c = 0; c < k; ++c)
          gradient[static_cast<std::size_t>(r * stride + c)] = static_cast<float>(slope(r, c));
      const std::vector<float> start = codes;
      const std::int64_t changed = op->descend({kRows, k, codes.data(), gradient.data(), scale.data(),
                                                rate.data(), stride, h.data(), k, factor, ridge, 7});
      std::int64_t want_changed = 0;
      for (std::int64_t r = 0; r < kRows; ++r) {
        for (std::int64_t c = 0; c < k; ++c) {
          const auto at = static_cast<std::size_t>(r * stride + c);
          const double steps = slope(r, c) * static_cast<double>(rate[at]);
          const double code = std::min(std::max(start[at] + std::nearbyint(steps), 0.0), 7.0);
          if (std::fabs(steps - std::floor(steps) - 0.5) > 1e-3)
            REQUIRE(static_cast<double>(codes[at]) == code);
          off[at] -= (static_cast<double>(codes[at]) - start[at]) * 0.5;
          want_changed += codes[at] != start[at];
        }
        for (std::int64_t c = 0; c < k; ++c)
          REQUIRE(gradient[static_cast<std::size_t>(r * stride + c)] == Approx(slope(r, c)).margin(1e-3));
        for (std::int64_t c = k; c < stride; ++c)
          REQUIRE((codes[static_cast<std::size_t>(r * stride + c)] == kGuard &&
                   gradient[static_cast<std::size_t>(r * stride + c)] == kGuard));
      }
      CHECK(changed == want_changed);
    }
}
