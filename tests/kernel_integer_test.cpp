// What integer kernels promise beyond being right: the same bits everywhere, no saturation; and several products in a call.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "qf/kernel/dense.hpp"
#include "qf/kernel/matmul.hpp"
#include "tests/kernel_tools.hpp"

using namespace qf;
using namespace qf::kernel;
using namespace qf::kernel::test;

// int_x.inc: sums inside a chain are exact, and every kernel ends a chain in the same way.
TEST_CASE(
    "all integer kernels with the same digits give the same bits, whatever their instruction set and tile") {
  Rng rng(12);
  const int cases = std::getenv("QF_TEST_QUICK") ? 24 : 60;  // under slow emulators
  for (int i = 0; i < cases; ++i) {
    const std::int64_t n = pick(rng, 1, 120), k = i % 3 ? pick(rng, 1, 700) : 512, m = pick(rng, 1, 40);
    Scheme scheme = random_scheme(rng, k);
    if (scheme.bits <= 4 && i % 2) scheme.codebook = CodebookKind::per_matrix;
    const QuantizedMatrix w = random_matrix(rng, scheme, n, k);
    auto packed = prepack(w);
    REQUIRE(packed.ok());
    std::vector<float> x(static_cast<std::size_t>(m * k)), y(static_cast<std::size_t>(m * n));
    std::normal_distribution<float> normal;
    for (float& value : x) value = normal(rng);
    std::map<std::string, std::vector<float>> first;  // by digits
    for (const Kernel* kernel : kernels()) {
      const std::string name = kernel->name;
      const auto at = name.find("_i");
      if (at == std::string::npos || (kernel->isa & ~cpu_isa())) continue;
      for (std::int64_t rows : {std::int64_t{1}, m}) {
        MatmulOptions options;
        options.kernel = kernel;
        if (!choose_kernel(*packed, rows, options).ok()) continue;
        for (std::int64_t row = 0; row + rows <= m; row += rows)
          REQUIRE(
              matmul({x.data() + row * k, {rows, k}}, *packed, {y.data() + row * n, {rows, n}}, {}, options)
                  .ok());
        INFO(name << ' ' << scheme_name(scheme) << " m=" << m << " n=" << n << " k=" << k << " rows "
                  << rows);
        auto& wanted = first[name.substr(at, name.find('_', at + 1) - at)];
        if (wanted.empty()) wanted = y;
        REQUIRE(std::memcmp(wanted.data(), y.data(), 4 * y.size()) == 0);
      }
    }
  }
}

TEST_CASE("the largest codes and activations don't saturate") {
  for (int bits = 1; bits <= 8; ++bits)
    for (int high : {0, 1})
      for (float sign : {1.0f, -1.0f}) {
        const std::int64_t n = 17, k = 1024;
        auto w = QuantizedMatrix::make({bits, 256, ZeroKind::symmetric, DType::f32, CodebookKind::none}, n, k)
                     .value();
        const int code = high ? w.scheme().levels() - 1 : 0;
        for (std::int64_t r = 0; r < n; ++r) {
          std::memset(w.codes().row(r), code, static_cast<std::size_t>(k));
          for (std::int64_t g = 0; g < w.groups(); ++g) w.scales()(r, g) = 1;
        }
        auto packed = prepack(w);
        REQUIRE(packed.ok());
        const std::int64_t m = 5;
        std::vector<float> x(static_cast<std::size_t>(m * k), sign), y(static_cast<std::size_t>(m * n));
        const float wanted =
            (static_cast<float>(code) - w.scheme().symmetric_zero()) * sign * static_cast<float>(k);
        for (std::int64_t rows : {std::int64_t{1}, m})
          for (const Kernel* kernel : fitting(*packed, rows)) {
            MatmulOptions options;
            options.kernel = kernel;
            REQUIRE(matmul({x.data(), {rows, k}}, *packed, {y.data(), {rows, n}}, {}, options).ok());
            INFO(kernel->name << " bits " << bits << " code " << code << " x " << sign);
            for (std::int64_t i = 0; i < rows * n; ++i)
              CHECK(y[static_cast<std::size_t>(i)] == Approx(wanted).epsilon(1e-6));
          }
      }
}

TEST_CASE("several products in one call give the bits of one call each") {
  Rng rng(13);
  for (std::int64_t m : {1, 5, 40})
    for (Accuracy accuracy : {Accuracy::exact, Accuracy::int16, Accuracy::fast}) {
      const std::int64_t k = 300;
      const std::int64_t outputs[] = {100, 1, 33, 70};
      std::vector<PackedWeight> weights;
      for (int i = 0; i < 4; ++i)
        weights.push_back(prepack(random_matrix(rng, {i == 2 ? 8 : 4, 64, ZeroKind::integer, DType::f16, {}},
                                                outputs[i], k))
                              .value());
      std::vector<float> x(static_cast<std::size_t>(m * k)), bias(100);
      std::normal_distribution<float> normal;
      for (float& value : x) value = normal(rng);
      for (float& value : bias) value = normal(rng);
      std::vector<std::vector<float>> alone, together;
      std::vector<Product> products;
      MatmulOptions options;
      options.accuracy = accuracy;
      for (std::size_t i = 0; i < 4; ++i) {
        alone.emplace_back(static_cast<std::size_t>(m * outputs[i]));
        together.emplace_back(alone.back().size());
        const std::span<const float> b(bias.data(), i == 0 ? 100 : 0);
        REQUIRE(matmul({x.data(), {m, k}}, weights[i], {alone[i].data(), {m, outputs[i]}}, b, options).ok());
        products.push_back({{x.data(), {m, k}}, &weights[i], {together[i].data(), {m, outputs[i]}}, b});
      }
      for (int threads : {1, 2, 7}) {
        options.parallel = threads_of(threads);
        for (auto& y : together) std::fill(y.begin(), y.end(), 0.0f);
        REQUIRE(matmul(products, options).ok());
        CHECK(together == alone);
        const PackedWeight up =
            prepack(random_matrix(rng, {4, 64, ZeroKind::integer, DType::f16, {}}, 100, k)).value();
        std::vector<float> gate(static_cast<std::size_t>(m * 100)), second(gate.size()), fused(gate.size());
        REQUIRE(matmul({x.data(), {m, k}}, weights[0], {gate.data(), {m, 100}}, {}, options).ok());
        REQUIRE(matmul({x.data(), {m, k}}, up, {second.data(), {m, 100}}, {}, options).ok());
        silu_mul(gate.data(), second.data(), m * 100);
        REQUIRE(matmul_swiglu({x.data(), {m, k}}, weights[0], up, {fused.data(), {m, 100}}, options).ok());
        for (std::size_t i = 0; i < gate.size(); ++i)
          REQUIRE(fused[i] == Approx(gate[i]).epsilon(1e-6).margin(1e-30));
      }
      CHECK(matmul_swiglu({x.data(), {m, k}}, weights[0], weights[1], {x.data(), {m, 100}}).status().text() ==
            "matmul_swiglu: gate of 100 outputs, up of 1, expected the same");
    }
}

TEST_CASE("activations of 16 bits give the bits of the same values in 32") {
  Rng rng(14);
  for (std::int64_t m : {0, 1, 7}) {
    const std::int64_t n = 37, k = 203, stride = 207;
    const PackedWeight w =
        prepack(random_matrix(rng, {4, 64, ZeroKind::integer, DType::f16, {}}, n, k)).value();
    std::vector<f16> half(static_cast<std::size_t>(m * stride));
    std::vector<bf16> brain(half.size());
    std::vector<float> of_half(half.size()), of_brain(half.size());
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < half.size(); ++i) {
      half[i] = f16(normal(rng)), of_half[i] = half[i];
      brain[i] = bf16(normal(rng)), of_brain[i] = brain[i];
    }
    std::vector<float> wanted(static_cast<std::size_t>(m * n)), y(wanted.size());
    const MatrixView<float> wanted_view(wanted.data(), {m, n}), y_view(y.data(), {m, n});
    for (Accuracy accuracy : {Accuracy::exact, Accuracy::fast}) {
      MatmulOptions options;
      options.accuracy = accuracy;
      REQUIRE(
          matmul(MatrixView<const float>(of_half.data(), {m, k}, {stride, 1}), w, wanted_view, {}, options)
              .ok());
      REQUIRE(matmul(MatrixView<const f16>(half.data(), {m, k}, {stride, 1}), w, y_view, {}, options).ok());
      CHECK(y == wanted);
      REQUIRE(
          matmul(MatrixView<const float>(of_brain.data(), {m, k}, {stride, 1}), w, wanted_view, {}, options)
              .ok());
      REQUIRE(matmul(MatrixView<const bf16>(brain.data(), {m, k}, {stride, 1}), w, y_view, {}, options).ok());
      CHECK(y == wanted);
    }
  }
}

TEST_CASE("activations that are integers already (W4A8, W8A8)") {
  Rng rng(15);
  int accepted = 0;
  for (int i = 0; i < 120; ++i) {
    const std::int64_t m = pick(rng, 1, 20), n = pick(rng, 1, 60), k = pick(rng, 1, 700),
                       stride = k + pick(rng, 0, 3);
    Scheme scheme = random_scheme(rng, k);
    if (i % 2) scheme.group = i % 4 == 1 ? 64 : 0;
    const QuantizedMatrix w = random_matrix(rng, scheme, n, k);
    const PackedWeight packed = prepack(w).value();
    static constexpr std::int64_t kGroups[] = {0, 0, 64, 128, 256, 512, 100};
    Int8Rows x;
    x.group = kGroups[pick(rng, 0, 6)];
    const std::int64_t group = x.group ? x.group : k, groups = (k + group - 1) / group;
    std::vector<std::int8_t> q(static_cast<std::size_t>(m * stride));
    std::vector<float> scales(static_cast<std::size_t>(m * groups)), y(static_cast<std::size_t>(m * n));
    for (auto& value : q) value = static_cast<std::int8_t>(pick(rng, -128, 127));
    for (auto& value : scales) value = 0.01f * static_cast<float>(pick(rng, 1, 100));
    x.q = {q.data(), {m, k}, {stride, 1}};
    x.scales = {scales.data(), {m, groups}};
    INFO(scheme_name(scheme) << " m=" << m << " n=" << n << " k=" << k << " group of x " << x.group);
    std::vector<float> first;
    for (const Kernel* kernel : kernels()) {
      MatmulOptions options;
      options.kernel = kernel;
      if (!choose_kernel(packed, m, options).ok()) continue;
      const Status status = matmul(x, packed, {y.data(), {m, n}}, {}, options);
      if (!status.ok()) {
        const bool groups_differ = status.text().find("lie in two groups of x") != std::string::npos;
        CHECK((groups_differ || status.text().find("doesn't take x as 8-bit integers") != std::string::npos));
        continue;
      }
      ++accepted;
      if (first.empty()) first = y;
      CHECK(y == first);
    }
    if (first.empty()) continue;
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (std::int64_t c = 0; c < k; ++c) {
          const double value = static_cast<double>(q[static_cast<std::size_t>(r * stride + c)]) *
                               static_cast<double>(scales[static_cast<std::size_t>(r * groups + c / group)]);
          const std::int64_t g = w.group_index(c);
          sum += value * static_cast<double>(w.value(j, c));
          size +=
              std::fabs(value) *
              (std::fabs(static_cast<double>(w.value(j, c))) +
               std::fabs(static_cast<double>((w.zero(j, g) - scheme.symmetric_zero()) * w.scales()(j, g))));
        }
        REQUIRE(std::fabs(static_cast<double>(first[static_cast<std::size_t>(r * n + j)]) - sum) <=
                2e-6 * size + 1e-30);
      }
  }
  CHECK(accepted > 100);

  const PackedWeight w =
      prepack(random_matrix(rng, {4, 96, ZeroKind::symmetric, DType::f16, {}}, 8, 192)).value();
  std::vector<std::int8_t> q(192);
  std::vector<float> scales(3, 1.0f), y(8);
  Int8Rows x{{q.data(), {1, 192}}, {scales.data(), {1, 3}}, 64};
  CHECK(matmul(x, w, {y.data(), {1, 8}}).text() ==
        "matmul: columns 0 to 95 of w4g96 symmetric f16 are summed up together, and lie in two groups of x, "
        "which has groups of 64");
  x.scales.shape[1] = 2;
  CHECK(matmul(x, w, {y.data(), {1, 8}}).text() ==
        "matmul: scales of x [1, 2], x [1, 192] in groups of 64 columns");
}
