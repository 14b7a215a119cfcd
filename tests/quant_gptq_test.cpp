#include "qf/quant/gptq.hpp"

#include <catch2/catch.hpp>
#include <numeric>
#include <thread>

#include "qf/quant/error.hpp"
#include "qf/quant/rtn.hpp"
#include "tests/solve_tools.hpp"

using namespace qf;
using namespace qf::quant;
using namespace qf::test;

namespace {

void check_sound(const QuantizedMatrix& q) {
  const Scheme& s = q.scheme();
  for (std::int64_t r = 0; r < q.n(); ++r) {
    for (std::int64_t c = 0; c < q.k(); ++c) REQUIRE(q.codes()(r, c) < s.levels());
    for (std::int64_t g = 0; g < q.groups(); ++g) {
      const float scale = q.scales()(r, g);
      REQUIRE(std::isfinite(scale));
      REQUIRE(round_to(s.scale, scale) == scale);
      REQUIRE(scale >= 0);
      if (s.zero == ZeroKind::integer) {
        const float z = q.zeros()(r, g);
        REQUIRE(z == std::floor(z));
        REQUIRE((z >= 0 && z < static_cast<float>(s.levels())));
      }
      if (s.zero == ZeroKind::floating) REQUIRE(round_to(s.scale, q.zeros()(r, g)) == q.zeros()(r, g));
    }
  }
}

double ridge_of(const Layer& layer, double damping) {
  double trace = 0;
  for (std::int64_t i = 0; i < layer.k; ++i)
    trace += static_cast<double>(layer.statistics.hessian_view()(i, i));
  return damping * trace / static_cast<double>(layer.k);
}

// The method as the paper has it, in f64: the inverse Hessian by elimination, one column after the other, on grids
// of the weights, in order of falling diagonal.
std::vector<int> reference_codes(const Layer& layer, const QuantizedMatrix& grids, double damping,
                                 bool act_order) {
  const auto k = static_cast<std::size_t>(layer.k);
  std::vector<std::size_t> order(k);
  std::iota(order.begin(), order.end(), 0u);
  const auto h = layer.statistics.hessian_view();
  const auto diagonal = [&](std::size_t i) {
    return h(static_cast<std::int64_t>(i), static_cast<std::int64_t>(i));
  };
  if (act_order)
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return diagonal(a) > diagonal(b); });
  const double ridge = ridge_of(layer, damping);
  std::vector<double> a(k * k), inverse(k * k, 0.0);
  for (std::size_t i = 0; i < k; ++i)
    for (std::size_t j = 0; j < k; ++j)
      a[i * k + j] =
          static_cast<double>(h(static_cast<std::int64_t>(order[i]), static_cast<std::int64_t>(order[j]))) +
          (i == j ? ridge : 0);
  for (std::size_t i = 0; i < k; ++i) inverse[i * k + i] = 1;
  for (std::size_t i = 0; i < k; ++i) {
    const double pivot = a[i * k + i];
    for (std::size_t j = 0; j < k; ++j) a[i * k + j] /= pivot, inverse[i * k + j] /= pivot;
    for (std::size_t r = 0; r < k; ++r) {
      if (r == i) continue;
      const double by = a[r * k + i];
      for (std::size_t j = 0; j < k; ++j)
        a[r * k + j] -= by * a[i * k + j], inverse[r * k + j] -= by * inverse[i * k + j];
    }
  }
  std::vector<double> w(static_cast<std::size_t>(layer.n) * k);
  for (std::size_t r = 0; r < static_cast<std::size_t>(layer.n); ++r)
    for (std::size_t j = 0; j < k; ++j) w[r * k + j] = static_cast<double>(layer.w[r * k + order[j]]);
  std::vector<int> codes(w.size());
  const int top = grids.scheme().levels() - 1;
  for (std::size_t j = 0; j < k; ++j) {
    for (std::size_t r = 0; r < static_cast<std::size_t>(layer.n); ++r) {
      const auto row = static_cast<std::int64_t>(r);
      const std::int64_t g = grids.group_index(static_cast<std::int64_t>(order[j]));
      const double s = static_cast<double>(grids.scales()(row, g)),
                   z = static_cast<double>(grids.zero(row, g));
      const double code = std::clamp(std::nearbyint(w[r * k + j] / s + z), 0.0, static_cast<double>(top));
      codes[r * k + order[j]] = static_cast<int>(code);
      const double error = (w[r * k + j] - (code - z) * s) / inverse[j * k + j];
      for (std::size_t i = j + 1; i < k; ++i) w[r * k + i] -= error * inverse[j * k + i];
    }
    // The inverse of what remains: one step of elimination takes column j out.
    const double pivot = inverse[j * k + j];
    for (std::size_t r = j + 1; r < k; ++r)
      for (std::size_t i = j + 1; i < k; ++i)
        inverse[r * k + i] -= inverse[r * k + j] * inverse[j * k + i] / pivot;
  }
  return codes;
}

void run_scattered(void* user, std::int64_t count, void (*body)(void*, std::int64_t), void* context) {
  const int threads = *static_cast<int*>(user);
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t)
    pool.emplace_back([=] {
      for (std::int64_t i = count - 1 - t; i >= 0; i -= threads) body(context, i);
    });
  for (std::thread& t : pool) t.join();
}

}  // namespace

TEST_CASE("gptq: the codes of the paper's method in f64") {
  for (const std::int64_t k : {5, 32, 100, 131})
    for (const bool act_order : {false, true}) {
      const Layer layer = make_layer(19, k, 3 * k, 7);
      const Scheme scheme{.bits = 3, .group = 32};
      const auto q = Gptq({.act_order = act_order}).quantize(input(layer, scheme));
      REQUIRE(q.ok());
      const auto grids = Rtn{}.quantize(input(layer, scheme));
      const std::vector<int> want = reference_codes(layer, *grids, 0.01, act_order);
      std::int64_t differ = 0;
      for (std::size_t i = 0; i < want.size(); ++i) differ += want[i] != q->codes().data[i];
      CAPTURE(k, act_order, differ);
      // A code at a tie goes the other way in f32, and what follows in that row after it.
      CHECK(differ <= static_cast<std::int64_t>(want.size()) / 100);
    }
}

TEST_CASE("gptq: the report's errors are those of f64, and fall from stage to stage") {
  for (const int bits : {2, 3, 4, 8})
    for (const ZeroKind zero : kZeros)
      for (const std::int64_t group : {0, 24, 64}) {
        const Layer layer = make_layer(37, 150, 400, static_cast<unsigned>(bits));
        const Scheme scheme{.bits = bits, .group = group, .zero = zero};
        CAPTURE(scheme_name(scheme));
        const double ridge = ridge_of(layer, 0.01);
        GptqReport plain, descended, all;
        const auto first = Gptq().quantize(input(layer, scheme), &plain);
        const auto second = Gptq({.descents = 3}).quantize(input(layer, scheme), &descended);
        const auto third = Gptq({.descents = 3, .refits = 2}).quantize(input(layer, scheme), &all);
        REQUIRE((first.ok() && second.ok() && third.ok()));
        for (const auto* q : {&*first, &*second, &*third}) check_sound(*q);
        CHECK(plain.damping == 0.01);
        CHECK(plain.dampings_tried == 1);
        CHECK(plain.error_gptq == Approx(output_error(layer, *first, ridge)).epsilon(1e-3));
        CHECK(plain.error == plain.error_gptq);
        CHECK(descended.error == Approx(output_error(layer, *second, ridge)).epsilon(1e-3));
        CHECK(all.error == Approx(output_error(layer, *third, ridge)).epsilon(1e-3));
        CHECK(plain.error_nearest ==
              Approx(output_error(layer, *Rtn{}.quantize(input(layer, scheme)), ridge)).epsilon(2e-3));
        CHECK(plain.error_gptq < 0.95 * plain.error_nearest);
        CHECK(descended.error_gptq == plain.error_gptq);
        CHECK(descended.error <= plain.error * (1 + 1e-5));
        CHECK(all.error <= descended.error * (1 + 1e-5));
        if (bits < 4) CHECK(all.error < plain.error);
      }
}

TEST_CASE("gptq: below round to nearest on every kind of grid") {
  for (const ClipKind clip :
       {ClipKind::none, ClipKind::squares, ClipKind::hessian_diagonal, ClipKind::hessian_blocks}) {
    const Layer layer = make_layer(20, 96, 300, 3);
    const Scheme scheme{.bits = 3, .group = 40};
    const auto nearest = ClippedRtn({.kind = clip}).quantize(input(layer, scheme));
    const auto q = Gptq({.clip = {.kind = clip}}).quantize(input(layer, scheme));
    REQUIRE((nearest.ok() && q.ok()));
    CAPTURE(static_cast<int>(clip));
    CHECK(output_error(layer, *q) < 0.9 * output_error(layer, *nearest));
  }
}

TEST_CASE("gptq: the same bytes for any number of threads") {
  const Layer layer = make_layer(150, 210, 400, 11, true);
  const Gptq gptq = Gptq::best(0.5);
  const auto one = gptq.quantize(input(layer, {.bits = 3, .group = 64}));
  REQUIRE(one.ok());
  for (int threads : {2, 7}) {
    const auto many =
        gptq.quantize(input(layer, {.bits = 3, .group = 64}, {run_scattered, &threads, threads}));
    REQUIRE(many.ok());
    CHECK(same(*one, *many));
  }
}

TEST_CASE("gptq: the asymmetric target is the least squares fit to the float model's outputs") {
  const Layer layer = make_layer(8, 48, 200, 13, true);
  // With 8 bits and little damping codes follow the target: W (H + D) H^-1.
  GptqReport report;
  const Scheme scheme{.bits = 8, .group = 0, .scale = DType::f32};
  const auto q = Gptq({.damping = 1e-5, .alpha = 1}).quantize(input(layer, scheme), &report);
  REQUIRE(q.ok());
  const std::int64_t k = layer.k;
  const auto h = layer.statistics.hessian_view(), d = layer.statistics.cross_view();
  double missed = 0, before = 0, size = 0;
  for (std::int64_t r = 0; r < layer.n; ++r)
    for (std::int64_t j = 0; j < k; ++j) {
      double got = 0, want = 0, plain = 0;  // of the outputs' correlation with input j
      for (std::int64_t i = 0; i < k; ++i) {
        const auto w = static_cast<double>(layer.w[static_cast<std::size_t>(r * k + i)]);
        got += static_cast<double>(q->value(r, i)) * static_cast<double>(h(i, j));
        want += w * static_cast<double>(h(i, j) + d(i, j));
        plain += w * static_cast<double>(h(i, j));
      }
      missed += (got - want) * (got - want), before += (plain - want) * (plain - want), size += want * want;
    }
  CHECK(missed < 0.01 * before);
  // Half the way is the mean of both targets.
  const auto half = Gptq({.damping = 1e-5, .alpha = 0.5}).quantize(input(layer, scheme));
  const auto none = Gptq({.damping = 1e-5}).quantize(input(layer, scheme));
  double off = 0, shift = 0;
  for (std::int64_t r = 0; r < layer.n; ++r)
    for (std::int64_t c = 0; c < k; ++c) {
      off += std::fabs(static_cast<double>(half->value(r, c) - (q->value(r, c) + none->value(r, c)) / 2));
      shift += std::fabs(static_cast<double>(q->value(r, c) - none->value(r, c)));
    }
  CHECK(off < 0.15 * shift);
}

TEST_CASE("gptq: a Hessian of three samples, of dead columns, of zeros, of huge and tiny units") {
  const Scheme scheme{.bits = 4, .group = 32};
  SECTION("three samples") {
    for (const double damping : {0.0, 1e-9, 0.01}) {
      const Layer layer = make_layer(10, 200, 3, 17);
      GptqReport report;
      const auto q =
          Gptq({.damping = damping, .descents = 2, .refits = 1}).quantize(input(layer, scheme), &report);
      REQUIRE(q.ok());
      check_sound(*q);
      CAPTURE(damping, report.damping, report.dampings_tried);
      CHECK(report.damping >= damping);
      CHECK(report.damping <= 0.01);
      CHECK((damping == 0.01) == (report.dampings_tried == 1));
      CHECK(output_error(layer, *q) < 0.2 * output_error(layer, *Rtn{}.quantize(input(layer, scheme))));
    }
  }
  SECTION("dead columns") {
    Layer layer = make_layer(10, 64, 100, 19);
    for (const std::int64_t c : {0, 5, 63})
      for (std::int64_t j = 0; j < 64; ++j)
        layer.statistics.hessian.data()[c * 64 + j] = layer.statistics.hessian.data()[j * 64 + c] = 0;
    for (const double damping : {0.0, 0.01}) {
      GptqReport report;
      const auto q = Gptq({.damping = damping, .descents = 2}).quantize(input(layer, scheme), &report);
      REQUIRE(q.ok());
      CHECK(report.dead_columns == 3);
      // They are rounded to nearest: a weight that nothing is known of keeps its value.
      for (std::int64_t r = 0; r < 10; ++r)
        for (const std::int64_t c : {0, 5, 63})
          CHECK(std::fabs(q->value(r, c) - layer.w[static_cast<std::size_t>(r * 64 + c)]) <=
                q->scales()(r, c / 32) * 0.501f);
    }
  }
  SECTION("no tokens, or zeros") {
    Layer layer = make_layer(10, 64, 0, 23);
    const auto nearest = Rtn{}.quantize(input(layer, scheme));
    for (const bool empty : {true, false}) {
      if (empty) layer.statistics.hessian = {};
      layer.statistics.tokens = empty ? 0 : 5;
      if (!empty) layer.statistics.hessian = std::move(*Array<float>::make(64 * 64));
      GptqReport report;
      const auto q = Gptq({.alpha = 0.5, .descents = 2, .refits = 1}).quantize(input(layer, scheme), &report);
      REQUIRE(q.ok());
      CHECK(report.no_statistics);
      for (std::int64_t i = 0; i < 640; ++i)
        CHECK(std::abs(q->codes().data[i] - nearest->codes().data[i]) <= 1);
      const auto clipped = Gptq::best(0.5).quantize(input(layer, scheme));
      REQUIRE(clipped.ok());
      CHECK(measure_error(layer.view(), *clipped)->error_squares <
            measure_error(layer.view(), *nearest)->error_squares);
    }
  }
  SECTION("units") {
    Layer layer = make_layer(10, 64, 300, 29);
    const auto q = Gptq::best().quantize(input(layer, scheme));
    for (const float unit : {0x1p-100f, 0x1p90f}) {
      Layer other = make_layer(10, 64, 300, 29);
      for (float& x : other.statistics.hessian) x *= unit;
      const auto p = Gptq::best().quantize(input(other, scheme));
      REQUIRE(p.ok());
      CHECK(same(*q, *p));
    }
  }
}

TEST_CASE("gptq: odd matrices") {
  for (const ZeroKind zero : kZeros)
    for (const DType type : {DType::f16, DType::bf16, DType::f32})
      for (const std::int64_t k : {1, 2, 17, 70}) {
        Layer layer = make_layer(9, k, 2 * k + 3, 31);
        const auto row = [&](std::int64_t r) { return layer.w.data() + r * k; };
        std::fill_n(row(0), k, 0.0f);
        std::fill_n(row(1), k, 0.25f);
        std::fill_n(row(2), k, -3e-3f);
        row(3)[k / 2] = 1000;
        std::fill_n(row(4), k, 1e-40f);
        for (std::int64_t c = 0; c < k; ++c) row(5)[c] *= 1e-36f;
        for (std::int64_t group : {0, 1, 32, 1000}) {
          const Scheme scheme{.bits = 3, .group = group, .zero = zero, .scale = type};
          CAPTURE(scheme_name(scheme), k);
          GptqReport report;
          const auto q = Gptq::best().quantize(input(layer, scheme), &report);
          REQUIRE(q.ok());
          check_sound(*q);
          for (std::int64_t c = 0; c < k; ++c) {
            CHECK(q->value(0, c) == 0);
            CHECK(std::isfinite(q->value(3, c)));
            CHECK(std::fabs(q->value(4, c)) < 1e-4f);
          }
          CHECK(std::isfinite(report.error));
        }
      }
}

TEST_CASE("gptq: what it refuses, by name") {
  Layer layer = make_layer(20, 40, 100, 37);
  const Scheme scheme{.bits = 4, .group = 16};
  const auto text = [&](const Gptq& gptq, const QuantizerInput& in, Errc code) {
    const auto q = gptq.quantize(in);
    REQUIRE(!q.ok());
    CHECK(q.status().code() == code);
    return q.status().text();
  };
  QuantizerInput in = input(layer, scheme);
  in.statistics = nullptr;
  CHECK(text(Gptq(), in, Errc::invalid_argument) ==
        "tensor 'a.weight': method 'gptq' needs statistics of the layer's inputs, and there are none: give "
        "calibration text");
  in = input(layer, scheme);
  CHECK(text(Gptq::best(0.5), in, Errc::invalid_argument) ==
        "tensor 'a.weight': method 'best' with alpha above 0 needs how inputs differ from the float model's "
        "(cross, 40 x 40), "
        "and the statistics hold 0 of its elements");
  CHECK(text(Gptq({.damping = NAN}), in, Errc::invalid_argument) ==
        "tensor 'a.weight': method 'gptq': damping, expected a share from 0 to 1");
  CHECK(text(Gptq({.clip = {.least = 0}}), in, Errc::invalid_argument).find("clip: least share") !=
        std::string::npos);
  Scheme book = scheme;
  book.codebook = CodebookKind::per_row;
  CHECK(text(Gptq(), input(layer, book), Errc::unsupported) ==
        "tensor 'a.weight': method 'gptq' makes no codebooks");
  layer.w[static_cast<std::size_t>(18 * 40 + 33)] = NAN;
  in.first_row = 100;
  for (const Gptq& gptq : {Gptq(), Gptq::best()})
    CHECK(text(gptq, in, Errc::bad_format) ==
          "tensor 'a.weight': row 118, column 33: weight is NaN, finite expected");
  layer.w[static_cast<std::size_t>(18 * 40 + 33)] = 2e6f;
  CHECK(text(Gptq(), in, Errc::invalid_argument) ==
        "tensor 'a.weight': row 118, columns 32 to 39: the scale doesn't fit F16; use scales of type BF16 or "
        "F32");
  layer.w[static_cast<std::size_t>(18 * 40 + 33)] = 0;
  layer.statistics.hessian[7 * 40 + 3] = INFINITY;
  CHECK(text(Gptq(), in, Errc::invalid_argument) ==
        "tensor 'a.weight': method 'gptq' got a Hessian whose row 7 isn't finite or whose diagonal is "
        "negative");
  layer.statistics.k = 41;
  CHECK(text(Gptq(), in, Errc::invalid_argument) ==
        "tensor 'a.weight': method 'gptq' got statistics of 41 columns for weights of 40");
}
