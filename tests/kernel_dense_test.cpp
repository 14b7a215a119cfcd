#include "qf/kernel/dense.hpp"

#include "tests/dense_tools.hpp"
#include "tests/kernel_tools.hpp"

using namespace qf::kernel;
using namespace qf::kernel::test;
using qf::bf16;
using qf::DType;
using qf::f16;
using qf::kernel::detail::DenseOps;
using qf::kernel::detail::Sum;
using qf::kernel::detail::TileArgs;

namespace {

std::vector<float> rounded(const std::vector<float>& from, DType type) {
  std::vector<float> out = from;
  for (float& x : out) x = type == DType::f16 ? float(f16(x)) : type == DType::bf16 ? float(bf16(x)) : x;
  return out;
}

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

}  // namespace

TEST_CASE("float products equal double ones, at every edge") {
  Random random(1);
  for (const DType type : kTypes)
    for (std::int64_t m : {1, 2, 5, 6, 7, 13, 97, 100})
      for (std::int64_t n : {1, 15, 16, 17, 63, 64, 65, 130})
        for (std::int64_t k : {1, 7, 8, 33, 128, 300}) {
          const std::vector<float> full = random.many(n * k), w = rounded(full, type),
                                   x = random.many(m * (k + 3)), bias = random.many(n);
          auto weight = DenseWeight::make(n, k, type);
          REQUIRE(weight.ok());
          weight->fill(0, {full.data(), {n, k}});
          std::vector<float> row(static_cast<std::size_t>(k));
          weight->copy_row(n - 1, row.data());
          REQUIRE(std::equal(row.begin(), row.end(), w.begin() + (n - 1) * k));
          for (bool biased : {false, true}) {
            std::vector<float> y(static_cast<std::size_t>(m * (n + 1)), kGuard);
            REQUIRE(dense_matmul({x.data(), {m, k}, {k + 3, 1}}, *weight, {y.data(), {m, n}, {n + 1, 1}},
                                 biased ? std::span<const float>(bias) : std::span<const float>())
                        .ok());
            double error = 0, norm = 0;
            for (std::int64_t i = 0; i < m; ++i) {
              for (std::int64_t j = 0; j < n; ++j) {
                double want = biased ? bias[static_cast<std::size_t>(j)] : 0, size = std::abs(want);
                for (std::int64_t p = 0; p < k; ++p) {
                  const double term = static_cast<double>(x[static_cast<std::size_t>(i * (k + 3) + p)]) *
                                      w[static_cast<std::size_t>(j * k + p)];
                  want += term, size += std::abs(term);
                }
                const double off = y[static_cast<std::size_t>(i * (n + 1) + j)] - want;
                REQUIRE(std::abs(off) <= 1e-6 * size);
                error += off * off, norm += want * want;
              }
              REQUIRE(y[static_cast<std::size_t>(i * (n + 1) + n)] == kGuard);
            }
            CAPTURE(m, n, k, biased);
            if (m * n > 100) CHECK(std::sqrt(error / norm) < 3e-7);
          }
        }
}

TEST_CASE("float products are the same bits for any number of rows and threads") {
  Random random(4);
  const std::int64_t m = 200, n = 210, k = 300;
  const std::vector<float> w = random.many(n * k), x = random.many(m * k), bias = random.many(n);
  for (const DType type : kTypes) {
    auto weight = DenseWeight::make(n, k, type);
    REQUIRE(weight.ok());
    weight->fill(0, {w.data(), {n, k}});
    std::vector<float> want(static_cast<std::size_t>(m * n));
    REQUIRE(dense_matmul({x.data(), {m, k}}, *weight, {want.data(), {m, n}}, bias).ok());
    for (int threads : {1, 2, 7}) {
      std::vector<float> y(want.size());
      REQUIRE(dense_matmul({x.data(), {m, k}}, *weight, {y.data(), {m, n}}, bias, threads_of(threads)).ok());
      CHECK(y == want);
      for (std::int64_t rows : {1, 3, 9, 20}) {
        std::vector<float> some(static_cast<std::size_t>(rows * n));
        REQUIRE(dense_matmul({x.data() + 5 * k, {rows, k}}, *weight, {some.data(), {rows, n}}, bias,
                             threads_of(threads))
                    .ok());
        CHECK(std::equal(some.begin(), some.end(), want.begin() + 5 * n));
      }
    }
  }
}

TEST_CASE("long sums keep their accuracy") {
  Random random(5);
  const std::int64_t n = 48, k = 20000;
  const std::vector<float> w = random.many(n * k), x = random.many(k);
  auto weight = DenseWeight::make(n, k);
  REQUIRE(weight.ok());
  weight->fill(0, {w.data(), {n, k}});
  std::vector<float> y(static_cast<std::size_t>(n));
  REQUIRE(dense_matmul({x.data(), {1, k}}, *weight, {y.data(), {1, n}}).ok());
  std::vector<double> want(y.size());
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t p = 0; p < k; ++p)
      want[static_cast<std::size_t>(j)] +=
          static_cast<double>(x[static_cast<std::size_t>(p)]) * w[static_cast<std::size_t>(j * k + p)];
  CHECK(relative_rms(y, want) < 3e-7);
}

TEST_CASE("shapes and types of float products are checked") {
  auto w = DenseWeight::make(5, 4);
  REQUIRE(w.ok());
  std::vector<float> x(8), y(10, kGuard);
  CHECK(dense_matmul({x.data(), {2, 3}}, *w, {y.data(), {2, 5}}).text() ==
        "product of x [2, 3] and w [5, 4] into y [2, 5] with 0 biases");
  CHECK_FALSE(dense_matmul({x.data(), {2, 4}}, *w, {y.data(), {1, 5}}).ok());
  CHECK_FALSE(dense_matmul({x.data(), {2, 4}}, *w, {y.data(), {2, 4}}).ok());
  CHECK_FALSE(dense_matmul({x.data(), {2, 4}}, *w, {y.data(), {2, 5}}, x).ok());
  CHECK(dense_matmul({x.data(), {0, 4}}, *w, {y.data(), {0, 5}}).ok());
  CHECK_FALSE(DenseWeight::make(-1, 4).ok());
  CHECK_FALSE(DenseWeight::make(std::int64_t{1} << 40, std::int64_t{1} << 40).ok());
  CHECK(DenseWeight::make(5, 4, DType::i8).status().text() ==
        "a float matrix of I8, expected F32, F16 or BF16");
  auto none = DenseWeight::make(5, 0);
  REQUIRE(none.ok());
  REQUIRE(dense_matmul({x.data(), {2, 0}}, *none, {y.data(), {2, 5}}).ok());
  CHECK(y == std::vector<float>(10));
  CHECK(DenseWeight::make(16, 4, DType::bf16)->bytes() == 128);
}

TEST_CASE("tiles of every instruction set agree with double and touch nothing else") {
  Random random(2);
  for (const DenseOps* op : all_dense_ops()) {
    CAPTURE(op->name);
    for (int rows = 1; rows <= detail::kTileRows; ++rows)
      for (int panels : {1, 2, 4, 5, 7})
        for (int columns : {1, 4, 9, 16})
          for (const Sum mode : {Sum::set, Sum::add, Sum::go_on}) {
            const std::int64_t k = 21, width = (panels - 1) * 16 + columns;
            const std::vector<float> x = random.many(rows * k), w = random.many(k * width);
            // The last row of w ends with the vector, so that a sanitizer sees what is read beyond it.
            const std::vector<f16> w16 = stored<f16>(w);
            const std::vector<bf16> wb16 = stored<bf16>(w);
            const void* data[] = {w.data(), w16.data(), wb16.data()};
            for (int type = 0; type < detail::kStoredTypes; ++type) {
              std::vector<float> y(static_cast<std::size_t>(rows * (width + 1)), kGuard);
              op->tile[type]({rows, panels, k, x.data(), k, data[type], width, 16, y.data(), width + 1, 16,
                              columns, mode});
              for (int r = 0; r < rows; ++r)
                for (std::int64_t c = 0; c <= width; ++c) {
                  double want = mode == Sum::set ? 0 : kGuard;
                  for (std::int64_t p = 0; p < k && c < width; ++p) {
                    const auto at = static_cast<std::size_t>(p * width + c);
                    want += static_cast<double>(x[static_cast<std::size_t>(r * k + p)]) *
                            (type == 0   ? w[at]
                             : type == 1 ? float(w16[at])
                                         : float(wb16[at]));
                  }
                  const float got = y[static_cast<std::size_t>(r * (width + 1) + c)];
                  REQUIRE(
                      (c < width ? std::abs(got - want) < (mode == Sum::set ? 1e-5 : 1e-3) : got == kGuard));
                }
            }
          }
    for (const std::int64_t k : {1, 8, 19}) {
      const std::vector<float> rows = random.many(16 * k);
      const std::vector<f16> rows16 = stored<f16>(rows);
      const std::vector<bf16> rowsb16 = stored<bf16>(rows);
      const void* from[3][16];
      for (int r = 0; r < 16; ++r)
        from[0][r] = rows.data() + r * k, from[1][r] = rows16.data() + r * k,
        from[2][r] = rowsb16.data() + r * k;
      for (int type = 0; type < detail::kStoredTypes; ++type) {
        std::vector<float> panel(static_cast<std::size_t>(k * 16), kGuard),
            wide(static_cast<std::size_t>(k), kGuard);
        op->pack[type](from[type], k, panel.data(), nullptr);
        op->widen[type](from[type][3], k, wide.data());
        for (std::int64_t p = 0; p < k; ++p)
          for (int r = 0; r < 16; ++r) {
            const auto at = static_cast<std::size_t>(r * k + p);
            const float want = type == 0 ? rows[at] : type == 1 ? float(rows16[at]) : float(rowsb16[at]);
            REQUIRE(panel[static_cast<std::size_t>(p * 16 + r)] == want);
            if (r == 3) REQUIRE(wide[static_cast<std::size_t>(p)] == want);
          }
      }
    }
  }
}
