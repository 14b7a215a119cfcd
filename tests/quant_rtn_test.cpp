#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <vector>

#include "qf/quant/error.hpp"
#include "qf/quant/rtn.hpp"

using namespace qf;
using namespace qf::quant;

namespace {

const ZeroKind kZeros[] = {ZeroKind::symmetric, ZeroKind::integer, ZeroKind::floating};
const DType kScales[] = {DType::f16, DType::bf16, DType::f32};

std::vector<float> random_weights(std::int64_t count, unsigned seed, float spread = 0.05f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> w(static_cast<std::size_t>(count));
  for (float& x : w) x = normal(random);
  return w;
}

Result<QuantizedMatrix> rtn(const std::vector<float>& w, std::int64_t n, std::int64_t k, const Scheme& scheme,
                            ParallelFor parallel = {}) {
  return Rtn{}.quantize(
      {.w = {w.data(), {n, k}}, .scheme = scheme, .name = "a.weight", .parallel = parallel});
}

bool same(const QuantizedMatrix& a, const QuantizedMatrix& b) {
  const auto equal = [](auto x, auto y) {
    return x.shape == y.shape &&
           (x.size() == 0 ||
            std::memcmp(x.data, y.data, static_cast<std::size_t>(x.size()) * sizeof(*x.data)) == 0);
  };
  return a.scheme() == b.scheme() && equal(a.codes(), b.codes()) && equal(a.scales(), b.scales()) &&
         equal(a.zeros(), b.zeros());
}

// A host's threads without any library: every index on a thread of its own kind, in reverse.
void run_scattered(void* user, std::int64_t count, void (*body)(void*, std::int64_t), void* context) {
  const int threads = *static_cast<int*>(user);
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t)
    pool.emplace_back([=] {
      for (std::int64_t i = count - 1 - t; i >= 0; i -= threads) body(context, i);
    });
  for (std::thread& t : pool) t.join();
}

struct Mine {
  static constexpr bool kNeedsWholeMatrix = true;
  std::string_view name() const { return "mine"; }
  Result<QuantizedMatrix> quantize(const QuantizerInput& in) const {
    QF_TRY_ASSIGN(auto q, QuantizedMatrix::make(in.scheme, in.w.shape[0], in.w.shape[1]));
    return q;
  }
};

}  // namespace

TEST_CASE("rtn: no weight moves by more than half a step, for any width, zero, scale type and group") {
  const std::int64_t n = 5, k = 70;
  for (unsigned seed = 0; seed < 4; ++seed) {
    std::vector<float> w = random_weights(n * k, seed, seed == 3 ? 300.0f : 0.05f);
    if (seed == 1)
      for (float& x : w) x = std::fabs(x) + 0.5f;  // far from zero, one sign
    if (seed == 2)
      for (float& x : w) x = x > 0.03f ? 1.0f : x * 1e-4f;  // outliers
    for (int bits = 1; bits <= 8; ++bits)
      for (std::int64_t group : {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{32},
                                 std::int64_t{64}, std::int64_t{128}})
        for (ZeroKind zero : kZeros)
          for (DType scale : kScales) {
            const Scheme scheme{.bits = bits, .group = group, .zero = zero, .scale = scale};
            INFO(scheme_name(scheme) << " seed " << seed);
            auto q = rtn(w, n, k, scheme);
            REQUIRE(q.ok());
            auto error = measure_error({w.data(), {n, k}}, *q);
            REQUIRE(error.ok());
            REQUIRE(error->elements == n * k);
            REQUIRE(error->max_steps <= 0.5 * (1 + kBoundSlack));
            REQUIRE(error->frobenius() <= error->bound() * (1 + kBoundSlack));
            for (std::int64_t r = 0; r < n; ++r)
              for (std::int64_t g = 0; g < q->groups(); ++g) {
                const float s = q->scales()(r, g);
                REQUIRE(round_to(scale, s) == s);
                REQUIRE(s > 0);
                if (zero == ZeroKind::integer) {
                  const float z = q->zeros()(r, g);
                  REQUIRE(z == std::floor(z));
                  REQUIRE(z >= 0);
                  REQUIRE(z < static_cast<float>(scheme.levels()));
                }
                if (zero == ZeroKind::floating)
                  REQUIRE(round_to(scale, q->zeros()(r, g)) == q->zeros()(r, g));
              }
            for (std::int64_t i = 0; i < n * k; ++i) REQUIRE(q->codes().data[i] < scheme.levels());
          }
  }
}

TEST_CASE("rtn: the bound with the step 2 max|W| / 15, per tensor and whole matrix") {
  // One group for the whole matrix: a row of n * k weights. f32 scales, so that the step is the formula
  // itself.
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<float> w = random_weights(48 * 64, seed);
    float largest = 0;
    for (float x : w) largest = std::max(largest, std::fabs(x));
    auto q = rtn(w, 1, 48 * 64, {.bits = 4, .group = 0, .zero = ZeroKind::symmetric, .scale = DType::f32});
    REQUIRE(q.ok());
    REQUIRE(q->scales()(0, 0) == Approx(2.0 * largest / 15).epsilon(1e-6));
    auto error = measure_error({w.data(), {1, 48 * 64}}, *q);
    REQUIRE(error->frobenius() <=
            2.0 * static_cast<double>(largest) / 15 / 2 * std::sqrt(48.0 * 64) * (1 + 1e-6));
    // The largest positive weight stands at 7.5 steps and clamps to 7.
    const auto top = std::max_element(w.begin(), w.end());
    if (*top == largest) {
      REQUIRE(q->codes().data[top - w.begin()] == 15);
      REQUIRE(error->max_steps == Approx(0.5));
    }
  }
}

TEST_CASE("rtn: every code is the nearest one") {
  const std::int64_t n = 3, k = 50;
  const std::vector<float> w = random_weights(n * k, 7);
  for (int bits : {1, 2, 3, 4, 5, 8})
    for (ZeroKind zero : kZeros) {
      const Scheme scheme{.bits = bits, .group = 16, .zero = zero};
      auto q = rtn(w, n, k, scheme);
      for (std::int64_t r = 0; r < n; ++r)
        for (std::int64_t c = 0; c < k; ++c) {
          const double x = static_cast<double>(w[static_cast<std::size_t>(r * k + c)]);
          const double mine = std::fabs(static_cast<double>(q->value(r, c)) - x);
          const std::int64_t g = q->group_index(c);
          for (int code = 0; code < scheme.levels(); ++code) {
            const double other =
                (code - static_cast<double>(q->zero(r, g))) * static_cast<double>(q->scales()(r, g));
            REQUIRE(mine <= std::fabs(other - x) + 1e-8);
          }
        }
    }
}

TEST_CASE("rtn: zero is a code of every integer grid, groups of zeros and equal weights are exact") {
  for (int bits = 1; bits <= 8; ++bits)
    for (ZeroKind zero : kZeros)
      for (DType scale : kScales) {
        INFO(bits << " bits, zero kind " << static_cast<int>(zero) << ", " << dtype_name(scale));
        const Scheme scheme{.bits = bits, .group = 8, .zero = zero, .scale = scale};
        auto zeros = rtn(std::vector<float>(20, 0.0f), 1, 20, scheme);
        REQUIRE(zeros.ok());
        for (int c = 0; c < 20; ++c) REQUIRE(zeros->value(0, c) == 0);
        for (float value : {0.75f, -0.75f, 1.5f, -64.0f}) {
          if (value > 0 && zero == ZeroKind::symmetric && bits == 1) continue;  // codes -1 and 0 only
          auto equal = rtn(std::vector<float>(20, value), 1, 20, scheme);
          REQUIRE(equal.ok());
          for (int c = 0; c < 20; ++c) REQUIRE(equal->value(0, c) == value);
        }
        std::vector<float> some = random_weights(8, 3);
        some[2] = 0;
        some[3] = -0.0f;
        if (zero != ZeroKind::floating) {
          auto q = rtn(some, 1, 8, scheme);
          REQUIRE(q->value(0, 2) == 0);
          REQUIRE(q->value(0, 3) == 0);
        }
      }
}

TEST_CASE("rtn: weights that lie on the grid come back exactly") {
  const Scheme scheme{.bits = 4, .group = 16, .zero = ZeroKind::integer};
  std::vector<float> w(32);
  for (int i = 0; i < 32; ++i)
    w[static_cast<std::size_t>(i)] = static_cast<float>(i % 16 - 6) * 0.0078125f * 3;
  auto q = rtn(w, 1, 32, scheme);
  for (int i = 0; i < 32; ++i) REQUIRE(q->value(0, i) == w[static_cast<std::size_t>(i)]);
  REQUIRE(q->zeros()(0, 0) == 6);
}

TEST_CASE("rtn: tiny and denormal weights stay finite and within half a step") {
  for (float size : {1e-7f, 1e-10f, 1e-38f, 1e-42f, 1.4e-45f})
    for (ZeroKind zero : kZeros)
      for (DType scale : kScales) {
        std::vector<float> w{size, -size, size / 2, 0, size / 3, -size / 4, size / 8, 0};
        auto q = rtn(w, 1, 8, {.bits = 4, .group = 0, .zero = zero, .scale = scale});
        REQUIRE(q.ok());
        auto error = measure_error({w.data(), {1, 8}}, *q);
        REQUIRE(std::isfinite(error->error_squares));
        REQUIRE(error->max_steps <= 0.5 * (1 + kBoundSlack));
        REQUIRE(std::isnormal(q->scales()(0, 0)));
      }
}

TEST_CASE("rtn: a scale that doesn't fit its type is an error that says what to do") {
  std::vector<float> w(20, 1.0f);
  w[13] = 1.2e6f;
  REQUIRE(
      rtn(w, 2, 10, {.bits = 4, .group = 4, .zero = ZeroKind::symmetric}).status().text() ==
      "tensor 'a.weight': row 1, columns 0 to 3: the scale doesn't fit F16; use scales of type BF16 or F32");
  REQUIRE(rtn(w, 2, 10, {.bits = 4, .group = 4, .zero = ZeroKind::symmetric, .scale = DType::bf16}).ok());
  const float huge = std::numeric_limits<float>::max();
  std::vector<float> wide{huge, -huge};
  REQUIRE(rtn(wide, 1, 2, {.bits = 4, .scale = DType::f32}).ok());
  REQUIRE(rtn(wide, 1, 2, {.bits = 1, .scale = DType::f32}).status().text() ==
          "tensor 'a.weight': row 0, columns 0 to 1: the scale doesn't fit F32");
}

TEST_CASE("rtn: NaN and infinity are refused by row and column, the first one whatever the threads") {
  const std::int64_t n = 70, k = 33;
  std::vector<float> w = random_weights(n * k, 1);
  w[60 * 33 + 1] = std::numeric_limits<float>::infinity();
  w[35 * 33 + 32] = std::numeric_limits<float>::quiet_NaN();
  int threads = 3;
  auto q = rtn(w, n, k, {.bits = 4, .group = 16}, {run_scattered, &threads, threads});
  REQUIRE(q.status().code() == Errc::bad_format);
  REQUIRE(q.status().text() == "tensor 'a.weight': row 35, column 32: weight is NaN, finite expected");
  w[35 * 33 + 32] = 0;
  REQUIRE(rtn(w, n, k, {}).status().text() ==
          "tensor 'a.weight': row 60, column 1: weight is infinite, finite expected");
  auto slab = Rtn{}.quantize({.w = {w.data() + 60 * 33, {1, k}}, .scheme = {}, .name = "b", .first_row = 60});
  REQUIRE(slab.status().text() == "tensor 'b': row 60, column 1: weight is infinite, finite expected");
}

TEST_CASE("rtn: the same bytes for any number of threads and any slabs of rows") {
  const std::int64_t n = 83, k = 100;
  const std::vector<float> w = random_weights(n * k, 11);
  for (ZeroKind zero : kZeros) {
    const Scheme scheme{.bits = 3, .group = 32, .zero = zero, .scale = DType::bf16};
    auto one = rtn(w, n, k, scheme);
    auto error = measure_error({w.data(), {n, k}}, *one);
    for (int threads : {2, 5}) {
      auto more = rtn(w, n, k, scheme, {run_scattered, &threads, threads});
      REQUIRE(same(*one, *more));
      auto again = measure_error({w.data(), {n, k}}, *more, {run_scattered, &threads, threads});
      REQUIRE(again->error_squares == error->error_squares);
    }
    for (std::int64_t first = 0; first < n; first += 7) {
      const std::int64_t rows = std::min<std::int64_t>(7, n - first);
      auto slab =
          Rtn{}.quantize({.w = {w.data() + first * k, {rows, k}}, .scheme = scheme, .name = "a.weight"});
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < k; ++c) REQUIRE(slab->codes()(r, c) == one->codes()(first + r, c));
    }
  }
}

TEST_CASE("rtn: empty shapes and bad options") {
  REQUIRE(rtn({}, 0, 8, {})->n() == 0);
  REQUIRE(rtn({}, 8, 0, {})->groups() == 0);
  REQUIRE(rtn({1}, 1, 1, {.bits = 9}).status().text() == "tensor 'a.weight': bits 9, expected 1 to 8");
  REQUIRE(rtn({1}, 1, 1, {.codebook = CodebookKind::per_row}).status().text() ==
          "tensor 'a.weight': method 'rtn' makes no codebooks");
  const std::vector<float> w(8, 1.0f);
  REQUIRE(Rtn{}.quantize({.w = {w.data(), {2, 2}, {1, 2}}, .name = "t"}).status().text() ==
          "tensor 't': weights of a row must lie side by side");
  auto q = rtn(w, 2, 4, {});
  REQUIRE(measure_error({w.data(), {4, 2}}, *q).status().text() == "weights of 4 x 2 against codes of 2 x 4");
}

TEST_CASE("grid: scales round up to the next value of their type") {
  REQUIRE(round_scale_up(DType::f16, 1.0) == 1.0f);
  REQUIRE(round_scale_up(DType::f16, 1.0001) == 1.0009765625f);
  REQUIRE(round_scale_up(DType::bf16, 1.0001) == 1.0078125f);
  REQUIRE(round_scale_up(DType::f16, 1e-12) == 0x1p-24f);
  REQUIRE(round_scale_up(DType::f16, 65504) == 65504.0f);
  REQUIRE(std::isinf(round_scale_up(DType::f16, 65504.1)));
  REQUIRE(round_scale_up(DType::f32, 1e-50) == kSmallestScale);
  REQUIRE(round_scale_up(DType::f32, 1 + 1e-12) == std::nextafterf(1.0f, 2.0f));
  std::mt19937 random(5);
  std::uniform_real_distribution<double> exponent(-30, 15);
  for (int i = 0; i < 20000; ++i) {
    const double x = std::exp2(exponent(random));
    for (DType type : kScales) {
      const float up = round_scale_up(type, x), nearest = round_to(type, static_cast<float>(x));
      REQUIRE(static_cast<double>(up) >= x);
      REQUIRE(round_to(type, up) == up);
      if (static_cast<double>(nearest) >= x) REQUIRE(up == nearest);
    }
  }
}

TEST_CASE("rtn: codes, scales and zeros equal those computed in exact arithmetic") {
  std::ifstream file(std::string(QF_GOLDEN) + "/quant/rtn.json");
  REQUIRE(file.good());
  const auto golden = nlohmann::json::parse(file);
  for (const auto& test : golden.at("cases")) {
    const std::int64_t n = test.at("n"), k = test.at("k");
    std::vector<float> w;
    for (std::uint32_t bits : test.at("weights")) w.push_back(std::bit_cast<float>(bits));
    Scheme scheme{.bits = test.at("bits"), .group = test.at("group")};
    scheme.zero = test.at("symmetric").get<bool>() ? ZeroKind::symmetric : ZeroKind::integer;
    scheme.scale = *dtype_from_name(test.at("scale").get<std::string>());
    INFO(scheme_name(scheme));
    auto q = rtn(w, n, k, scheme);
    REQUIRE(q.ok());
    for (std::int64_t i = 0; i < n * k; ++i)
      REQUIRE(q->codes().data[i] == test.at("codes")[static_cast<std::size_t>(i)]);
    for (std::int64_t i = 0; i < n * q->groups(); ++i) {
      REQUIRE(std::bit_cast<std::uint32_t>(q->scales().data[i]) ==
              test.at("scales")[static_cast<std::size_t>(i)].get<std::uint32_t>());
      if (q->zeros().data)
        REQUIRE(q->zeros().data[i] == test.at("zeros")[static_cast<std::size_t>(i)].get<float>());
    }
  }
}

TEST_CASE("quantizer: a user's own type behind QuantizerRef") {
  const Mine mine;
  const Rtn rtn_quantizer;
  const QuantizerRef a = mine, b = rtn_quantizer;
  REQUIRE(a.name() == "mine");
  REQUIRE_FALSE(a.rows_independent());
  REQUIRE(b.rows_independent());
  REQUIRE_FALSE(static_cast<bool>(QuantizerRef{}));
  const float w[2] = {1, 2};
  REQUIRE(a.quantize({.w = {w, {1, 2}}})->k() == 2);
}
