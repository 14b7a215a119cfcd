// Solvers of codes on the layers of SmolLM2-135M (or any shape, 1xNxK), from Hessians of random correlated inputs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "benchmarks/ops.hpp"
#include "benchmarks/shapes.hpp"
#include "qf/calib/statistics.hpp"
#include "qf/kernel/dense.hpp"
#include "qf/quant/gptq.hpp"
#include "qf/quant/rtn.hpp"

namespace qf::bench {
namespace {

struct Method {
  const char* name;
  quant::Gptq solver;
  double alpha;
};
const Method kMethods[] = {
    {"gptq", quant::Gptq(), 0},
    {"gptq_clip", quant::Gptq({.clip = {.kind = quant::ClipKind::hessian_diagonal}}), 0},
    {"best", quant::Gptq::best(0), 0},
    {"best_alpha", quant::Gptq::best(0.5), 0.5},
};

class Layer {
 public:
  Layer(std::int64_t n, std::int64_t k, bool with_cross) : n_(n), k_(k) {
    std::mt19937 rng(5);
    std::normal_distribution<float> normal;
    w_ = Array<float>::make(static_cast<std::size_t>(n * k)).value();
    for (float& x : w_) x = 0.05f * normal(rng);
    // H = F^T F / tokens of few tokens, with a common part in all channels; dense_matmul sums it.
    const std::int64_t tokens = 1024;
    auto x = Array<float>::make(static_cast<std::size_t>(k * tokens)).value();
    std::vector<float> scale(static_cast<std::size_t>(k));
    for (float& s : scale) s = std::exp(0.7f * normal(rng)) / 32;
    std::vector<float> common(static_cast<std::size_t>(tokens * 8));
    for (float& c : common) c = normal(rng);
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t t = 0; t < tokens; ++t)
        x[static_cast<std::size_t>(i * tokens + t)] =
            scale[static_cast<std::size_t>(i)] *
            (common[static_cast<std::size_t>(t * 8 + i % 8)] +
             common[static_cast<std::size_t>(t * 8 + i / 8 % 8)] + normal(rng));
    auto rows = kernel::DenseWeight::make(k, tokens).value();
    rows.fill(0, {x.data(), {k, tokens}});
    statistics_.k = k, statistics_.tokens = tokens;
    statistics_.hessian = Array<float>::make(static_cast<std::size_t>(k * k)).value();
    const Status status =
        kernel::dense_matmul({x.data(), {k, tokens}}, rows, {statistics_.hessian.data(), {k, k}});
    if (!status.ok()) throw Error(status);
    for (std::int64_t i = 0; i < k; ++i)  // symmetric to the bit
      for (std::int64_t j = 0; j < i; ++j)
        statistics_.hessian[static_cast<std::size_t>(i * k + j)] =
            statistics_.hessian[static_cast<std::size_t>(j * k + i)];
    if (!with_cross) return;
    statistics_.cross = Array<float>::make(static_cast<std::size_t>(k * k)).value();
    for (std::size_t i = 0; i < statistics_.cross.size(); ++i)
      statistics_.cross[i] = 0.1f * statistics_.hessian[i];
  }

  quant::QuantizerInput input(const Scheme& scheme, const ParallelFor& parallel) const {
    return {.w = {w_.data(), {n_, k_}},
            .scheme = scheme,
            .statistics = &statistics_,
            .name = "bench",
            .parallel = parallel};
  }
  double error(const QuantizedMatrix& q) const {
    std::vector<double> e(static_cast<std::size_t>(k_));
    double total = 0;
    for (std::int64_t r = 0; r < n_; r += std::max<std::int64_t>(1, n_ / 61)) {
      for (std::int64_t c = 0; c < k_; ++c)
        e[static_cast<std::size_t>(c)] = static_cast<double>(w_[static_cast<std::size_t>(r * k_ + c)]) -
                                         static_cast<double>(q.value(r, c));
      for (std::int64_t i = 0; i < k_; ++i)
        for (std::int64_t j = 0; j < k_; ++j)
          total += e[static_cast<std::size_t>(i)] * e[static_cast<std::size_t>(j)] *
                   static_cast<double>(statistics_.hessian[static_cast<std::size_t>(i * k_ + j)]);
    }
    return total;
  }

 private:
  std::int64_t n_, k_;
  Array<float> w_;
  calib::LinearStatistics statistics_;
};

}  // namespace

int solve_cases(const Request& request, const Use& use) {
  const auto shapes = request.shapes.empty()
                          ? std::vector<std::string>{"1x576x576", "1x192x576", "1x1536x576", "1x576x1536"}
                          : request.shapes;
  for (const std::string& text : shapes) {
    const auto mnk = parse_shape(text);
    if (!mnk) {
      fmt::print(stderr, "qf-bench: shape '{}', expected 1xNxK\n", text);
      return 2;
    }
    const auto [m, n, k] = *mnk;
    const Layer layer(n, k, true);
    const quant::QuantizerInput input = layer.input({.bits = 3, .group = 64}, request.parallel);
    const double nearest = layer.error(quant::Rtn().quantize(input).value());
    for (const Method& method : kMethods) {
      if (!request.weights.empty() &&
          std::find(request.weights.begin(), request.weights.end(), method.name) == request.weights.end())
        continue;
      Case made;
      made.kernel = method.name;
      made.about = {{"problem", fmt::format("w3g64 {}x{}", n, k)}, {"n", n}, {"k", k}};
      if (method.alpha == 0) {  // else the target is another
        made.relative_rms = std::sqrt(layer.error(method.solver.quantize(input).value()) / nearest);
        made.relative_rms_allowed = 0.9;  // of the error of rounding to nearest
      }
      made.cold = false;
      // Multiply-adds of GPTQ itself: half of n k^2 and a Cholesky factor.
      const auto size = static_cast<double>(k);
      made.operations = static_cast<double>(n) * size * size + size * size * size / 3;
      made.peak = peak_loop(Numbers::f32, kernel::cpu_isa());
      made.run = [&method, input] {
        const auto q = method.solver.quantize(input);
        if (!q.ok()) throw Error(q.status());
      };
      std::vector<Case> cases{std::move(made)};
      if (const int code = use(cases)) return code;
    }
  }
  return 0;
}

}  // namespace qf::bench
