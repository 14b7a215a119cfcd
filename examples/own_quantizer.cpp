// A quantizer of one's own: any type that fits the concept qf::quant::Quantizer. This one clips: it tries
// narrower ranges for each group and keeps the one with the least squared error.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "qf/quant/error.hpp"
#include "qf/quant/rtn.hpp"

struct Clip {
  static constexpr std::string_view name() { return "clip"; }

  qf::Result<qf::QuantizedMatrix> quantize(const qf::quant::QuantizerInput& in) const {
    QF_TRY_ASSIGN(auto q,
                  qf::quant::Rtn().quantize(in));  // refuses what can't be quantized; a start to better
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(q.group_size()));
    for (std::int64_t r = 0; r < q.n(); ++r)
      for (std::int64_t g = 0; g < q.groups(); ++g) {
        const std::int64_t first = g * q.group_size(), count = std::min(q.group_size(), q.k() - first);
        const float* w = in.w.row(r) + first;
        const auto [lo, hi] = std::minmax_element(w, w + count);
        double best = HUGE_VAL;
        for (float share = 1.0f; share > 0.5f; share -= 0.05f) {
          const auto grid = qf::quant::make_grid(in.scheme, *lo * share, *hi * share);
          qf::quant::nearest_codes(in.scheme, grid, w, count, codes.data());
          double error = 0;
          for (std::int64_t c = 0; c < count; ++c)
            error += std::pow(
                w[c] - (static_cast<float>(codes[static_cast<std::size_t>(c)]) - grid.zero) * grid.scale, 2);
          if (error >= best) continue;
          best = error;
          q.scales()(r, g) = grid.scale;
          if (q.zeros().data) q.zeros()(r, g) = grid.zero;
          std::copy_n(codes.data(), count, q.codes().row(r) + first);
        }
      }
    return q;
  }
};
static_assert(qf::quant::Quantizer<Clip>);

int main() {
  std::vector<float> weights(32 * 256);
  std::uint32_t state = 1;
  for (float& w : weights) {  // about normal: sums of uniform numbers
    w = -6;
    for (int i = 0; i < 12; ++i)
      w += static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-24f;
  }
  qf::quant::QuantizerInput in;
  in.w = {weights.data(), {32, 256}};
  in.scheme = {.bits = 3, .group = 128};
  const Clip clip;
  const qf::quant::Rtn rtn;
  double snr[2] = {};
  const qf::quant::QuantizerRef methods[] = {rtn, clip};
  for (int i = 0; i < 2; ++i) {
    const auto q = methods[i].quantize(in);
    if (!q.ok()) return std::fprintf(stderr, "%s\n", q.status().text().c_str()), 1;
    snr[i] = qf::quant::measure_error(in.w, *q)->snr_db();
    std::printf("%-5.*s %.2f dB\n", static_cast<int>(methods[i].name().size()), methods[i].name().data(),
                snr[i]);
  }
  return snr[1] > snr[0] ? 0 : 1;
}
