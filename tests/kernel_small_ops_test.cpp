#include "qf/kernel/small_ops.hpp"

#include <catch2/catch.hpp>

#include "tests/dense_tools.hpp"

using namespace qf::kernel;
using namespace qf::kernel::test;
using qf::kernel::detail::DenseOps;

namespace {

constexpr std::int64_t kLengths[] = {1, 3, 4, 7, 8, 15, 16, 17, 33, 64, 100, 576};

double largest_relative(const std::vector<float>& got, const std::vector<double>& want, double floor) {
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(got[i])) return 1e30;
    if (std::abs(want[i]) > floor) worst = std::max(worst, std::abs(got[i] - want[i]) / std::abs(want[i]));
  }
  return worst;
}

}  // namespace

TEST_CASE("norms, rotations and sums of every instruction set agree with double") {
  Random random(1);
  for (const DenseOps* op : all_dense_ops())
    for (const std::int64_t n : kLengths) {
      CAPTURE(op->name, n);
      const std::vector<float> x = random.many(n), w = random.many(n);
      std::vector<float> out(static_cast<std::size_t>(n + 1), kGuard);
      op->rms_norm(x.data(), w.data(), n, 1e-5, out.data());
      double sum = 0;
      for (const float v : x) sum += static_cast<double>(v) * v;
      std::vector<double> want;
      for (std::size_t i = 0; i < x.size(); ++i)
        want.push_back(x[i] / std::sqrt(sum / static_cast<double>(n) + 1e-5) * w[i]);
      CHECK(largest_relative(out, want, 0) < 5e-7);
      CHECK(out.back() == kGuard);
      std::vector<float> same = x;
      op->rms_norm(same.data(), w.data(), n, 1e-5, same.data());
      out.pop_back();
      CHECK(same == out);

      std::vector<float> pairs = random.many(2 * n), cosine, sine;
      const std::vector<float> before = pairs;
      for (std::int64_t i = 0; i < n; ++i) {
        const float angle = 3 * random();
        cosine.push_back(std::cos(angle)), sine.push_back(std::sin(angle));
      }
      pairs.push_back(kGuard);
      op->rope(pairs.data(), cosine.data(), sine.data(), n);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double a = before[i], b = before[i + x.size()], c = cosine[i], s = sine[i];
        REQUIRE(std::abs(pairs[i] - (a * c - b * s)) <= 2e-7 * std::hypot(a, b));
        REQUIRE(std::abs(pairs[i + x.size()] - (b * c + a * s)) <= 2e-7 * std::hypot(a, b));
      }
      CHECK(pairs.back() == kGuard);

      std::vector<float> to = x, mixed = x;
      to.push_back(kGuard), mixed.push_back(kGuard);
      op->add(to.data(), w.data(), n);
      op->mix(mixed.data(), 0.5f, w.data(), 3, n);
      for (std::size_t i = 0; i < x.size(); ++i) {
        REQUIRE(to[i] == x[i] + w[i]);
        REQUIRE(std::abs(mixed[i] - (0.5 * x[i] + 3.0 * w[i])) <= 1e-6 * (std::abs(x[i]) + std::abs(w[i])));
      }
      CHECK((to.back() == kGuard && mixed.back() == kGuard));
    }
}

TEST_CASE("exponentials of every instruction set keep their error and their limits") {
  for (const DenseOps* op : all_dense_ops()) {
    CAPTURE(op->name);
    // Through silu: gate / (1 + exp(-gate)) with `up` 1.
    std::vector<float> gate, up;
    for (int i = -88 * 64; i <= 88 * 64; ++i) gate.push_back(static_cast<float>(i) / 64.37f);
    const std::vector<float> in = gate;
    up.assign(gate.size(), 1);
    op->silu_mul(gate.data(), up.data(), static_cast<std::int64_t>(gate.size()));
    std::vector<double> want;
    for (const float g : in) want.push_back(g / (1 + std::exp(-static_cast<double>(g))));
    CHECK(largest_relative(gate, want, 1e-36) < 1e-6);
    const float infinity = std::numeric_limits<float>::infinity();
    std::vector<float> edge = {100, -100, -3e38f, 3e38f, 0, NAN, -89, 1}, one(8, 1);
    op->silu_mul(edge.data(), one.data(), 8);
    CHECK((edge[0] == 100 && edge[1] == 0 && edge[2] == 0 && edge[3] == 3e38f && edge[4] == 0 &&
           std::isnan(edge[5]) && edge[6] == 0));

    for (const std::int64_t n : {16, 32, 64, 256})
      for (const std::int64_t lo : {0, 3, 15})
        for (const std::int64_t hi : {n, n - 5}) {
          if (lo >= hi) continue;
          Random random(2);
          std::vector<float> s = random.many(n), before = s;
          s[0] = before[0] = lo ? NAN : 60.0f;  // outside: not looked at; inside: much larger than the others
          float largest = 0;
          const float sum = op->softmax(s.data(), n, lo, hi, &largest);
          CHECK(largest == *std::max_element(before.begin() + lo, before.begin() + hi));
          double total = 0;
          for (std::int64_t i = 0; i < n; ++i) {
            const auto at = static_cast<std::size_t>(i);
            const double e = i >= lo && i < hi ? std::exp(static_cast<double>(before[at] - largest)) : 0;
            total += e;
            REQUIRE(std::abs(s[at] - e) <= 3e-7 * e + 1e-38);
          }
          CHECK(std::abs(sum - total) < 5e-7 * total);
        }
    std::vector<float> s(32, -infinity);
    s[7] = -200, s[8] = NAN;
    float largest = 0;
    CHECK(std::isnan(op->softmax(s.data(), 32, 0, 32, &largest)));
    s.assign(32, -infinity);
    s[7] = -200, s[8] = -201;
    CHECK(op->softmax(s.data(), 32, 0, 32, &largest) == Approx(1 + std::exp(-1.0)));
    CHECK((largest == -200 && s[6] == 0 && s[7] == 1));
  }
}

TEST_CASE("rounding to f16 of every instruction set") {
  Random random(4);
  for (const DenseOps* op : all_dense_ops())
    for (const std::int64_t n : kLengths) {
      std::vector<float> x = random.many(n);
      const float edges[] = {65504, 65520, -1e9f, 1e-8f, 6e-8f, 1.00048828125f, 1.00146484375f, -0.0f};
      for (std::size_t i = 0; i < x.size() && i < 8; ++i) x[x.size() - 1 - i] = edges[i];
      std::vector<qf::f16> out(x.size() + 1, qf::f16(kGuard));
      op->to_f16(x.data(), n, out.data());
      CAPTURE(op->name, n);
      for (std::size_t i = 0; i < x.size(); ++i) REQUIRE(out[i].bits == qf::f16(x[i]).bits);
      CHECK(float(out.back()) == float(qf::f16(kGuard)));
    }
}

TEST_CASE("softmax of any length") {
  Random random(3);
  for (const std::int64_t n : kLengths) {
    std::vector<float> x = random.many(n), before = x;
    x.push_back(kGuard);
    softmax(x.data(), n);
    double sum = 0;
    for (const float v : before) sum += std::exp(static_cast<double>(v));
    std::vector<double> want;
    for (const float v : before) want.push_back(std::exp(static_cast<double>(v)) / sum);
    CAPTURE(n);
    CHECK(largest_relative(x, want, 0) < 1e-6);
    CHECK(x.back() == kGuard);
  }
  std::vector<float> far = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 300};
  softmax(far.data(), 17);
  CHECK((far[0] == 0 && far[16] == 1));
}
