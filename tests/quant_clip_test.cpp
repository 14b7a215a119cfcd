#include "qf/quant/clip.hpp"

#include <catch2/catch.hpp>

#include "qf/quant/error.hpp"
#include "qf/quant/histogram.hpp"
#include "qf/quant/rtn.hpp"
#include "tests/kernel_tools.hpp"
#include "tests/solve_tools.hpp"

using namespace qf;
using namespace qf::quant;
using namespace qf::test;
using qf::kernel::test::threads_of;

namespace {

// What each kind of search makes least.
double objective(const Layer& layer, const QuantizedMatrix& q, ClipKind kind) {
  double total = 0;
  const auto h = layer.statistics.hessian_view();
  for (std::int64_t r = 0; r < layer.n; ++r) {
    const auto off = [&](std::int64_t c) {
      return static_cast<double>(layer.w[static_cast<std::size_t>(r * layer.k + c)]) -
             static_cast<double>(q.value(r, c));
    };
    for (std::int64_t c = 0; c < layer.k; ++c) {
      if (kind != ClipKind::hessian_blocks) {
        total += off(c) * off(c) * (kind == ClipKind::squares ? 1 : static_cast<double>(h(c, c)));
        continue;
      }
      const std::int64_t first = c / q.group_size() * q.group_size();
      for (std::int64_t d = first; d < std::min(layer.k, first + q.group_size()); ++d)
        total += off(c) * off(d) * static_cast<double>(h(c, d));
    }
  }
  return total;
}

}  // namespace

TEST_CASE("clip: never worse than the whole range by the objective of its kind, better for few bits") {
  for (const ClipKind kind : {ClipKind::squares, ClipKind::hessian_diagonal, ClipKind::hessian_blocks})
    for (int bits = 1; bits <= 8; ++bits)
      for (const ZeroKind zero : kZeros)
        for (const DType type : {DType::f16, DType::bf16, DType::f32})
          for (const std::int64_t group : {0, 32}) {
            const Layer layer = make_layer(19, 70, 90, static_cast<unsigned>(bits));
            const Scheme scheme{.bits = bits, .group = group, .zero = zero, .scale = type};
            CAPTURE(scheme_name(scheme), static_cast<int>(kind));
            const auto plain = Rtn{}.quantize(input(layer, scheme));
            const auto clipped = ClippedRtn({.kind = kind}).quantize(input(layer, scheme));
            REQUIRE((plain.ok() && clipped.ok()));
            const double before = objective(layer, *plain, kind), after = objective(layer, *clipped, kind);
            CHECK(after <= before * (1 + 1e-4));
            if (bits <= 3 && bits > 1) CHECK(after < 0.9 * before);
          }
}

TEST_CASE(
    "clip: none is round to nearest, bytes don't depend on threads, statistics are asked for where needed") {
  const Layer layer = make_layer(50, 100, 90, 5);
  const Scheme scheme{.bits = 3, .group = 24};
  CHECK(same(*ClippedRtn({.kind = ClipKind::none}).quantize(input(layer, scheme)),
             *Rtn{}.quantize(input(layer, scheme))));
  for (const ClipKind kind : {ClipKind::squares, ClipKind::hessian_blocks}) {
    const auto one = ClippedRtn({.kind = kind}).quantize(input(layer, scheme));
    for (int threads : {2, 7})
      CHECK(same(*one, *ClippedRtn({.kind = kind}).quantize(input(layer, scheme, threads_of(threads)))));
  }
  QuantizerInput in = input(layer, scheme);
  in.statistics = nullptr;
  CHECK(ClippedRtn().quantize(in).ok());
  CHECK(ClippedRtn({.kind = ClipKind::hessian_diagonal}).quantize(in).status().text() ==
        "tensor 'a.weight': method 'rtn' needs statistics of the layer's inputs, and there are none: give "
        "calibration text");
  CHECK(ClippedRtn({.steps = 0}).quantize(in).status().code() == Errc::invalid_argument);
}

TEST_CASE("histogram: the cut of a share and of entropy") {
  std::vector<std::int64_t> counts(2048);
  for (std::size_t i = 0; i < counts.size(); ++i)
    counts[i] = static_cast<std::int64_t>(1e6 * std::exp(-0.5 * std::pow(static_cast<double>(i) / 200, 2)));
  const std::int64_t keep = entropy_cut(counts, 8);
  CHECK(keep > 200);
  CHECK(keep < 1000);
  CHECK(entropy_cut(counts, 128) > keep);
  CHECK(entropy_cut(std::vector<std::int64_t>(64, 5), 8) == 64);
  CHECK(entropy_cut(std::vector<std::int64_t>(64, 0), 8) == 64);

  for (const ZeroKind zero : kZeros) {
    Layer layer = make_layer(40, 256, 5, 9);
    for (std::int64_t r = 0; r < 40; ++r)
      layer.w[static_cast<std::size_t>(r * 256 + r)] = r % 2 ? 1.5f : -1.5f;
    for (const int bits : {1, 2, 4, 8}) {
      const Scheme scheme{.bits = bits, .group = 0, .zero = zero};
      CAPTURE(scheme_name(scheme));
      const auto plain = Rtn{}.quantize(input(layer, scheme));
      const HistogramRtn share({.kind = HistogramKind::percentile, .share = 0.01}), kl;
      CHECK(share.name() == "percentile");
      CHECK(kl.name() == "kl");
      for (const HistogramRtn& method : {share, kl}) {
        const auto q = method.quantize(input(layer, scheme));
        REQUIRE(q.ok());
        for (int threads : {2, 7})
          CHECK(same(*q, *method.quantize(input(layer, scheme, threads_of(threads)))));
        // The outliers no longer stretch the grid of all others.
        double before = 0, after = 0;
        for (std::int64_t r = 0; r < 40; ++r)
          for (std::int64_t c = 0; c < 256; ++c)
            if (c != r) {
              const double w = static_cast<double>(layer.w[static_cast<std::size_t>(r * 256 + c)]);
              before += std::pow(w - static_cast<double>(plain->value(r, c)), 2);
              after += std::pow(w - static_cast<double>(q->value(r, c)), 2);
            }
        // With 8 bits the steps are small anyway, and a cut can cost more than it saves.
        if (bits > 1 && bits < 8) CHECK(after < 0.5 * before);
      }
      CHECK(
          same(*HistogramRtn({.kind = HistogramKind::percentile, .share = 0}).quantize(input(layer, scheme)),
               *plain));
    }
  }
  Layer layer = make_layer(9, 64, 5, 9);
  CHECK(HistogramRtn({.bins = 3}).quantize(input(layer, {})).status().code() == Errc::invalid_argument);
  layer.w[70] = NAN;
  CHECK(HistogramRtn().quantize(input(layer, {})).status().text() ==
        "tensor 'a.weight': row 1, column 6: weight is NaN, finite expected");
}
