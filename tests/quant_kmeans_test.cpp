#include "qf/quant/kmeans.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "qf/quant/error.hpp"
#include "qf/quant/rtn.hpp"
#include "tests/kernel_tools.hpp"
#include "tests/solve_tools.hpp"

using namespace qf;
using namespace qf::quant;
using namespace qf::test;
using qf::kernel::test::threads_of;

namespace {

double cost(std::span<const float> x, std::span<const float> w, std::size_t i, std::size_t j) {
  double sum = 0, mean = 0, total = 0;
  for (std::size_t t = i; t < j; ++t)
    sum += static_cast<double>(w[t]), mean += static_cast<double>(w[t] * x[t]);
  if (sum > 0) mean /= sum;
  for (std::size_t t = i; t < j; ++t)
    total += static_cast<double>(w[t]) * std::pow(static_cast<double>(x[t]) - mean, 2);
  return total;
}

// The least over all ways to cut points into clusters, tried one by one.
double brute_force(std::span<const float> x, std::span<const float> w, std::size_t from, int clusters) {
  if (clusters == 1) return cost(x, w, from, x.size());
  double best = HUGE_VAL;
  for (std::size_t end = from; end <= x.size(); ++end)
    best = std::min(best, cost(x, w, from, end) + brute_force(x, w, end, clusters - 1));
  return best;
}

double weighted_error(const Layer& layer, const QuantizedMatrix& q) {
  double total = 0;
  for (std::int64_t r = 0; r < layer.n; ++r)
    for (std::int64_t c = 0; c < layer.k; ++c)
      total +=
          static_cast<double>(layer.statistics.hessian_view()(c, c)) *
          std::pow(static_cast<double>(layer.w[static_cast<std::size_t>(r * layer.k + c)] - q.value(r, c)),
                   2);
  return total;
}

constexpr Scheme book(int bits, std::int64_t group = 0, DType scale = DType::f16) {
  return {.bits = bits, .group = group, .scale = scale, .codebook = CodebookKind::per_row};
}

}  // namespace

TEST_CASE("kmeans: the dynamic programme finds what brute force finds") {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> whole(-6, 6);  // many equal points
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < 60; ++trial) {
    const std::size_t count = 1 + static_cast<std::size_t>(trial) % 11;
    std::vector<float> x(count), w(count);
    for (float& v : x) v = trial % 2 ? normal(random) : static_cast<float>(whole(random));
    std::sort(x.begin(), x.end());
    for (float& v : w) v = trial % 3 == 0 ? 1 : std::fabs(normal(random));
    if (trial % 5 == 0) w[0] = 0;
    for (const int clusters : {1, 2, 3, 4}) {
      std::vector<std::int32_t> ends(static_cast<std::size_t>(clusters));
      REQUIRE(kmeans_exact(x, w, ends).ok());
      double got = 0;
      std::size_t begin = 0;
      for (const std::int32_t end : ends) {
        REQUIRE(static_cast<std::size_t>(end) >= begin);
        got += cost(x, w, begin, static_cast<std::size_t>(end));
        begin = static_cast<std::size_t>(end);
      }
      REQUIRE(begin == count);
      CHECK(got == Approx(brute_force(x, w, 0, clusters)).margin(1e-6));
    }
  }
}

TEST_CASE("kmeans: codebooks beat uniform grids, Lloyd comes near the exact optimum, weights help") {
  const Layer layer = make_layer(12, 320, 400, 3);
  for (const int bits : {2, 3, 4, 5}) {
    CAPTURE(bits);
    const auto uniform = Rtn{}.quantize(input(layer, {.bits = bits}));
    const auto lloyd = Kmeans().quantize(input(layer, book(bits)));
    const auto exact = Kmeans({.exact = true}).quantize(input(layer, book(bits)));
    const auto weighted = Kmeans({.exact = true, .weighted = true}).quantize(input(layer, book(bits)));
    REQUIRE((uniform.ok() && lloyd.ok() && exact.ok() && weighted.ok()));
    const auto squares = [&](const auto& q) { return measure_error(layer.view(), *q)->error_squares; };
    CHECK(squares(exact) <= squares(lloyd) * (1 + 1e-4));
    CHECK(squares(lloyd) <= squares(exact) * 1.02);
    CHECK(squares(lloyd) < 0.9 * squares(uniform));
    CHECK(weighted_error(layer, *weighted) < 0.9 * weighted_error(layer, *exact));
    for (std::int64_t r = 0; r < layer.n; ++r)
      for (int q = 0; q < 1 << bits; ++q) {
        const float entry = exact->codebook()(r, q);
        CHECK(round_to(DType::f16, entry) == entry);
        if (q) CHECK(entry >= exact->codebook()(r, q - 1));
      }
  }
}

TEST_CASE("kmeans: any group and row, the same bytes for any threads") {
  for (const std::int64_t k : {1, 3, 70})
    for (const DType type : {DType::f16, DType::bf16, DType::f32})
      for (const std::int64_t group : {0, 32, 1000})
        for (const int bits : {1, 4, 8})
          for (const bool exact : {false, true}) {
            Layer layer = make_layer(33, k, 5, 7);
            std::fill_n(layer.w.data(), k, 0.0f);
            std::fill_n(layer.w.data() + k, k, 0.3f);
            std::fill_n(layer.w.data() + 2 * k, k, 1e-41f);
            layer.w[static_cast<std::size_t>(3 * k)] = 6e4f;
            const Kmeans kmeans({.exact = exact, .weighted = true});
            const auto q = kmeans.quantize(input(layer, book(bits, group, type)));
            REQUIRE(q.ok());
            for (std::int64_t c = 0; c < k; ++c) {
              CHECK(q->value(0, c) == 0);
              CHECK(q->value(1, c) == Approx(0.3f).epsilon(5e-3));
              CHECK(std::fabs(q->value(2, c)) < 1e-6f);
            }
            CHECK(q->value(3, 0) == Approx(6e4).epsilon(bits == 1 && k > 2 ? 1 : 5e-3));
            for (int threads : {2, 7}) {
              const auto p = kmeans.quantize(input(layer, book(bits, group, type), threads_of(threads)));
              REQUIRE(p.ok());
              CHECK(std::memcmp(p->codes().data, q->codes().data, static_cast<std::size_t>(33 * k)) == 0);
              CHECK(std::memcmp(p->codebook().data, q->codebook().data,
                                static_cast<std::size_t>(33 << bits) * 4) == 0);
            }
          }
}

TEST_CASE("kmeans: what it refuses") {
  Layer layer = make_layer(20, 40, 100, 11);
  CHECK(Kmeans().quantize(input(layer, {.bits = 4})).status().text() ==
        "tensor 'a.weight': method 'kmeans' makes a codebook for each row");
  QuantizerInput in = input(layer, book(4));
  in.statistics = nullptr;
  CHECK(Kmeans().quantize(in).ok());
  CHECK(Kmeans({.weighted = true}).quantize(in).status().code() == Errc::invalid_argument);
  CHECK(Kmeans({.iterations = -1}).quantize(in).status().text() ==
        "tensor 'a.weight': -1 iterations, expected 0 to 1000");
  layer.w[static_cast<std::size_t>(17 * 40 + 5)] = INFINITY;
  CHECK(Kmeans().quantize(in).status().text() ==
        "tensor 'a.weight': row 17, column 5: weight is infinite, finite expected");
}
