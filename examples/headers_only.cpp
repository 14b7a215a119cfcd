// Quantizes a matrix and measures the loss with headers alone: link qf::headers, or add include/ to the
// include path.
#include <cmath>
#include <cstdio>
#include <vector>

#include "qf/quant/error.hpp"
#include "qf/quant/rtn.hpp"

int main() {
  const std::int64_t n = 64, k = 200;  // 200 = 3 groups of 64 and a ragged one of 8
  std::vector<float> weights(static_cast<std::size_t>(n * k));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = std::sin(0.37f * static_cast<float>(i));

  qf::quant::QuantizerInput in;
  in.w = {weights.data(), {n, k}};
  in.scheme = {.bits = 4, .group = 64};
  in.name = "example";
  auto q = qf::quant::Rtn().quantize(in);
  if (!q.ok()) return std::fprintf(stderr, "%s\n", q.status().text().c_str()), 1;
  const auto error = qf::quant::measure_error(in.w, *q);
  if (!error.ok()) return std::fprintf(stderr, "%s\n", error.status().text().c_str()), 1;

  std::vector<float> row(static_cast<std::size_t>(k));
  q->dequantize_row(0, row.data());
  std::printf(
      "%s: %.2f bits a weight, SNR %.1f dB, ||W - Q|| = %.3f of at most %.3f; w[0][1] = %.4f -> %.4f\n",
      qf::scheme_name(in.scheme).c_str(), in.scheme.bits_per_weight(k), error->snr_db(), error->frobenius(),
      error->bound(), static_cast<double>(weights[1]), static_cast<double>(row[1]));
  return error->frobenius() <= error->bound() ? 0 : 1;
}
