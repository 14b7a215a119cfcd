// Needs: link qf. Layers to quantize: random weights, and statistics of random inputs whose channels are correlated
// and of different size, as those of decoders are; what their error is, in f64.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "qf/calib/statistics.hpp"
#include "qf/format/quantized_matrix.hpp"
#include "qf/quant/quantizer.hpp"

namespace qf::test {

struct Layer {
  std::int64_t n = 0, k = 0;
  std::vector<float> w;
  calib::LinearStatistics statistics;

  MatrixView<const float> view() const { return {w.data(), {n, k}}; }
};

inline constexpr ZeroKind kZeros[] = {ZeroKind::symmetric, ZeroKind::integer, ZeroKind::floating};

inline quant::QuantizerInput input(const Layer& layer, const Scheme& scheme, ParallelFor parallel = {}) {
  return {.w = layer.view(),
          .scheme = scheme,
          .statistics = &layer.statistics,
          .name = "a.weight",
          .parallel = parallel};
}

// The same codes, scales and zeros, to the bit.
inline bool same(const QuantizedMatrix& a, const QuantizedMatrix& b) {
  const auto equal = [](auto x, auto y) {
    return x.shape == y.shape &&
           (x.size() == 0 ||
            std::memcmp(x.data, y.data, static_cast<std::size_t>(x.size()) * sizeof(*x.data)) == 0);
  };
  return equal(a.codes(), b.codes()) && equal(a.scales(), b.scales()) && equal(a.zeros(), b.zeros());
}

// Inputs are sums of `factors` common causes and noise, channels scaled log-normally; the float model's inputs are
// those plus a drift of the same causes.
inline Layer make_layer(std::int64_t n, std::int64_t k, std::int64_t tokens, unsigned seed,
                        bool with_cross = false) {
  Layer layer;
  layer.n = n, layer.k = k;
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (std::int64_t i = 0; i < n * k; ++i) layer.w.push_back(static_cast<float>(0.05 * normal(random)));
  const std::int64_t factors = std::max<std::int64_t>(1, k / 8);
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  std::vector<double> mix(size(factors * k)), scale(size(k));
  for (double& m : mix) m = normal(random) / std::sqrt(static_cast<double>(factors));
  for (double& s : scale) s = std::exp(0.8 * normal(random));
  std::vector<double> h(size(k * k)), cross(size(with_cross ? k * k : 0)), x(size(k)), d(size(k)),
      cause(size(factors));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (double& c : cause) c = normal(random);
    for (std::int64_t j = 0; j < k; ++j) {
      double sum = 0;
      for (std::int64_t f = 0; f < factors; ++f) sum += cause[size(f)] * mix[size(f * k + j)];
      x[size(j)] = scale[size(j)] * (sum + 0.4 * normal(random));
      d[size(j)] = scale[size(j)] * (0.1 * sum + 0.05 * normal(random));
    }
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t j = 0; j < k; ++j) {
        if (j <= i) h[size(i * k + j)] += x[size(i)] * x[size(j)];
        if (with_cross) cross[size(i * k + j)] += d[size(i)] * x[size(j)];
      }
  }
  calib::LinearStatistics& s = layer.statistics;
  s.k = k, s.tokens = tokens;
  s.hessian = std::move(*Array<float>::make(size(k * k)));
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t j = 0; j < k; ++j)
      s.hessian[size(i * k + j)] = static_cast<float>(h[size(std::max(i, j) * k + std::min(i, j))] /
                                                      static_cast<double>(std::max<std::int64_t>(tokens, 1)));
  if (with_cross) {
    s.cross = std::move(*Array<float>::make(size(k * k)));
    for (std::size_t i = 0; i < cross.size(); ++i)
      s.cross[i] = static_cast<float>(cross[i] / static_cast<double>(tokens));
  }
  return layer;
}

// tr((T - Q) (H + ridge) (T - Q)^T) in f64.
template <class Target>
double output_error(const Layer& layer, const std::vector<Target>& target, const QuantizedMatrix& q,
                    double ridge = 0) {
  double total = 0;
  const std::int64_t k = layer.k;
  std::vector<double> e(static_cast<std::size_t>(k));
  for (std::int64_t r = 0; r < layer.n; ++r) {
    for (std::int64_t c = 0; c < k; ++c)
      e[static_cast<std::size_t>(c)] = static_cast<double>(target[static_cast<std::size_t>(r * k + c)]) -
                                       static_cast<double>(q.value(r, c));
    for (std::int64_t i = 0; i < k; ++i) {
      double sum = ridge * e[static_cast<std::size_t>(i)];
      const float* h = layer.statistics.hessian.data() + i * k;
      for (std::int64_t j = 0; j < k; ++j) sum += static_cast<double>(h[j]) * e[static_cast<std::size_t>(j)];
      total += sum * e[static_cast<std::size_t>(i)];
    }
  }
  return total;
}
inline double output_error(const Layer& layer, const QuantizedMatrix& q, double ridge = 0) {
  return output_error(layer, layer.w, q, ridge);
}

}  // namespace qf::test
