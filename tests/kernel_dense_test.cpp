#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "kernels/cpu/dense_ops.hpp"
#include "qf/kernel/dense.hpp"
#include "qf/kernel/matmul.hpp"
#include "qf/model/sampler.hpp"

using namespace qf::kernel;
using qf::MatrixView;
using qf::kernel::detail::DenseOps;

namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : random_(seed) {}
  float operator()() { return static_cast<float>(random_.uniform() * 4 - 2); }
  std::vector<float> many(std::int64_t n) {
    std::vector<float> out(static_cast<std::size_t>(n));
    for (float& x : out) x = (*this)();
    return out;
  }

 private:
  qf::model::Pcg32 random_;
};

std::vector<const DenseOps*> all_ops() {
  std::vector<const DenseOps*> ops = {&qf::kernel::detail::kDenseGeneric};
#if QF_X86
  if (cpu_isa() & isa::avx2) ops.push_back(&qf::kernel::detail::kDenseAvx2);
#endif
  return ops;
}

constexpr float kGuard = 1234.5f;

}  // namespace

TEST_CASE("float products equal double ones, at every edge") {
  Random random(1);
  for (std::int64_t m : {1, 2, 5, 6, 7, 97, 100})
    for (std::int64_t n : {1, 15, 16, 17, 63, 64, 65, 130})
      for (std::int64_t k : {1, 7, 8, 33}) {
        const std::vector<float> w = random.many(n * k), x = random.many(m * (k + 3)), bias = random.many(n);
        auto weight = DenseWeight::make(n, k);
        REQUIRE(weight.ok());
        weight->fill(0, {w.data(), {n, k}});
        std::vector<float> row(static_cast<std::size_t>(k));
        weight->copy_row(n - 1, row.data());
        REQUIRE(std::equal(row.begin(), row.end(), w.begin() + (n - 1) * k));
        for (bool biased : {false, true}) {
          std::vector<float> y(static_cast<std::size_t>(m * (n + 1)), kGuard);
          REQUIRE(dense_matmul({x.data(), {m, k}, {k + 3, 1}}, *weight, {y.data(), {m, n}, {n + 1, 1}},
                               biased ? std::span<const float>(bias) : std::span<const float>())
                      .ok());
          double worst = 0;
          for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t j = 0; j < n; ++j) {
              double want = biased ? bias[static_cast<std::size_t>(j)] : 0;
              for (std::int64_t p = 0; p < k; ++p)
                want += static_cast<double>(x[static_cast<std::size_t>(i * (k + 3) + p)]) *
                        w[static_cast<std::size_t>(j * k + p)];
              worst = std::max(worst, std::abs(y[static_cast<std::size_t>(i * (n + 1) + j)] - want));
            }
            REQUIRE(y[static_cast<std::size_t>(i * (n + 1) + n)] == kGuard);
          }
          CAPTURE(m, n, k, biased);
          CHECK(worst < 2e-6 * std::sqrt(static_cast<double>(k)) * 4);
        }
      }
}

TEST_CASE("shapes of products are checked") {
  auto w = DenseWeight::make(5, 4);
  REQUIRE(w.ok());
  std::vector<float> x(8), y(10);
  CHECK(dense_matmul({x.data(), {2, 3}}, *w, {y.data(), {2, 5}}).text() ==
        "product of x [2, 3] and w [5, 4] into y [2, 5] with 0 biases");
  CHECK_FALSE(dense_matmul({x.data(), {2, 4}}, *w, {y.data(), {1, 5}}).ok());
  CHECK_FALSE(dense_matmul({x.data(), {2, 4}}, *w, {y.data(), {2, 4}}).ok());
  CHECK_FALSE(dense_matmul({x.data(), {2, 4}}, *w, {y.data(), {2, 5}}, x).ok());
  CHECK(dense_matmul({x.data(), {0, 4}}, *w, {y.data(), {0, 5}}).ok());
  CHECK_FALSE(DenseWeight::make(-1, 4).ok());
  CHECK_FALSE(DenseWeight::make(std::int64_t{1} << 40, std::int64_t{1} << 40).ok());
}

TEST_CASE("building blocks of every instruction set agree with double") {
  Random random(2);
  for (const DenseOps* op : all_ops()) {
    CAPTURE(op->name);
    for (int rows = 1; rows <= qf::kernel::detail::kTileRows; ++rows)
      for (int columns : {1, 9, 16}) {
        const std::int64_t k = 21;
        const std::vector<float> x = random.many(rows * k), w = random.many(k * 20);
        std::vector<float> y(static_cast<std::size_t>(rows * 17), kGuard);
        op->tile(rows, k, x.data(), k, w.data(), 20, y.data(), 17, columns);
        for (int r = 0; r < rows; ++r)
          for (int c = 0; c < 17; ++c) {
            double want = 0;
            for (std::int64_t p = 0; p < k; ++p)
              want += static_cast<double>(x[static_cast<std::size_t>(r * k + p)]) *
                      w[static_cast<std::size_t>(p * 20 + c)];
            const float got = y[static_cast<std::size_t>(r * 17 + c)];
            REQUIRE((c < columns ? std::abs(got - want) < 1e-5 : got == kGuard));
          }
      }
    for (int panels = 1; panels <= 4; ++panels) {
      const std::int64_t k = 13;
      const std::vector<float> x = random.many(k), w = random.many(panels * k * 16);
      std::vector<float> y(64), one(16);
      op->row(k, x.data(), w.data(), k * 16, panels, y.data());
      for (int p = 0; p < panels; ++p) {
        op->tile(1, k, x.data(), k, w.data() + p * k * 16, 16, one.data(), 16, 16);
        REQUIRE(std::equal(one.begin(), one.end(), y.begin() + p * 16));  // the same bits
      }
    }
    for (int count : {1, 15, 16}) {
      const std::int64_t k = 19;
      const std::vector<float> rows = random.many(count * 23);
      std::vector<float> panel(static_cast<std::size_t>(k * 16), kGuard);
      op->pack(rows.data(), 23, count, k, panel.data());
      for (std::int64_t p = 0; p < k; ++p)
        for (int r = 0; r < 16; ++r)
          REQUIRE(panel[static_cast<std::size_t>(p * 16 + r)] ==
                  (r < count ? rows[static_cast<std::size_t>(r * 23 + p)] : 0));
    }
    for (std::int64_t n : {8, 24, 64})
      for (std::int64_t lo : {0, 3})
        for (std::int64_t hi : {n, n - 5}) {
          if (lo >= hi) continue;
          std::vector<float> s = random.many(n), in = s;
          s[0] = in[0] = lo ? NAN : 60.0f;  // outside: not looked at; inside: much larger than the others
          const float sum = op->softmax(s.data(), n, lo, hi);
          float most = -1e30f;
          double total = 0;
          for (std::int64_t i = lo; i < hi; ++i) most = std::max(most, in[static_cast<std::size_t>(i)]);
          for (std::int64_t i = 0; i < n; ++i) {
            const double want =
                i >= lo && i < hi ? std::exp(static_cast<double>(in[static_cast<std::size_t>(i)] - most)) : 0;
            total += want;
            REQUIRE(std::abs(s[static_cast<std::size_t>(i)] - want) <= 3e-7 * want + 1e-38);
          }
          REQUIRE(std::abs(sum - total) < 1e-6 * total);
        }
    std::vector<float> gate = random.many(37), up = random.many(37), in = gate;
    gate[3] = in[3] = 100, gate[4] = in[4] = -100, gate[5] = in[5] = -3e38f;
    op->silu_mul(gate.data(), up.data(), 37);
    for (std::size_t i = 0; i < 37; ++i) {
      const double want = in[i] / (1 + std::exp(-static_cast<double>(in[i]))) * up[i];
      REQUIRE(std::abs(gate[i] - want) <= 1e-6 * std::abs(want) + 1e-30);
    }
  }
}

TEST_CASE("attention equals its definition") {
  Random random(3);
  for (std::int64_t d : {8, 10, 16, 24, 64})
    for (std::int64_t position : {0, 5, 37})
      for (std::int64_t window : {0, 1, 7, 18}) {
        const std::int64_t heads = 6, kv_heads = 2, tokens = 23, reach = position + tokens;
        const std::vector<float> q = random.many(tokens * heads * d),
                                 keys = random.many(kv_heads * reach * d),
                                 values = random.many(kv_heads * reach * d);
        std::vector<float> out(q.size(), NAN);
        AttentionArgs a;
        a.tokens = tokens, a.heads = heads, a.kv_heads = kv_heads, a.head_dim = d;
        a.position = position, a.window = window, a.scale = .3f;
        a.q = {q.data(), {tokens, heads * d}};
        const float* k[] = {keys.data(), keys.data() + reach * d};
        const float* v[] = {values.data(), values.data() + reach * d};
        const std::int64_t stride[] = {d, d};
        a.keys = k, a.values = v, a.key_stride = stride, a.value_stride = stride;
        a.out = {out.data(), {tokens, heads * d}};
        AttentionScratch scratch;
        REQUIRE(attention(a, scratch).ok());
        double worst = 0;
        for (std::int64_t t = 0; t < tokens; ++t)
          for (std::int64_t h = 0; h < heads; ++h) {
            const std::int64_t last = position + t,
                               first = window ? std::max<std::int64_t>(0, last - window + 1) : 0;
            std::vector<double> p(static_cast<std::size_t>(last + 1)), want(static_cast<std::size_t>(d));
            double sum = 0;
            for (std::int64_t j = first; j <= last; ++j) {
              double s = 0;
              for (std::int64_t c = 0; c < d; ++c)
                s += static_cast<double>(q[static_cast<std::size_t>((t * heads + h) * d + c)]) *
                     k[h / 3][j * d + c];
              sum += p[static_cast<std::size_t>(j)] = std::exp(s * .3);
            }
            for (std::int64_t j = first; j <= last; ++j)
              for (std::int64_t c = 0; c < d; ++c)
                want[static_cast<std::size_t>(c)] +=
                    p[static_cast<std::size_t>(j)] / sum * v[h / 3][j * d + c];
            for (std::int64_t c = 0; c < d; ++c) {
              const double error = std::abs(out[static_cast<std::size_t>((t * heads + h) * d + c)] -
                                            want[static_cast<std::size_t>(c)]);
              worst = std::isnan(error) ? 1 : std::max(worst, error);
            }
          }
        CAPTURE(d, position, window);
        CHECK(worst < 2e-5);
      }
}
