// y = x * w^T with w in f32, f16 or bf16, by the functions of the widest instruction set.
#include "qf/kernel/dense.hpp"

#include <fmt/format.h>

#include <cmath>
#include <random>

#include "benchmarks/ops.hpp"
#include "benchmarks/shapes.hpp"

namespace qf::bench {
namespace {

class DenseSetting {
 public:
  DenseSetting(const std::string& name, DType type, const std::array<std::int64_t, 3>& mnk,
               const Request& request)
      : request_(request), name_(name), m_(mnk[0]), n_(mnk[1]), k_(mnk[2]) {
    x_ = Array<float>::make(static_cast<std::size_t>(m_ * k_)).value();
    y_ = Array<float>::make(static_cast<std::size_t>(m_ * n_)).value();
    std::mt19937 rng(11);
    std::normal_distribution<float> normal;
    for (float& value : x_) value = normal(rng);
    auto rows = Array<float>::make(static_cast<std::size_t>(64 * k_)).value();
    for (float& value : rows) value = normal(rng);
    std::uint64_t total = 0;
    do {
      weights_.push_back(kernel::DenseWeight::make(n_, k_, type).value());
      for (std::int64_t i = 0; i < n_; i += 64)
        weights_.back().fill(i, {rows.data(), {std::min<std::int64_t>(64, n_ - i), k_}});
      total += weights_.back().bytes();
    } while (!request.warm && total < 4 * last_cache_bytes());
  }

  Case make_case() {
    Case made;
    made.kernel = "dense_matmul";
    made.about = {{"weights", name_}, {"m", m_}, {"n", n_}, {"k", k_}};
    run();
    double error = 0, norm = 0;
    std::vector<float> w(static_cast<std::size_t>(k_));
    for (std::int64_t j = 0; j < n_; j += std::max<std::int64_t>(1, n_ / 61)) {
      weights_[0].copy_row(j, w.data());
      for (std::int64_t i = 0; i < std::min<std::int64_t>(m_, 16); ++i) {
        double sum = 0;
        for (std::int64_t c = 0; c < k_; ++c)
          sum += static_cast<double>(w[static_cast<std::size_t>(c)]) *
                 static_cast<double>(x_[static_cast<std::size_t>(i * k_ + c)]);
        const double off = sum - static_cast<double>(y_[static_cast<std::size_t>(i * n_ + j)]);
        error += off * off, norm += sum * sum;
      }
    }
    made.relative_rms = std::sqrt(error / norm);
    made.relative_rms_allowed = 3e-7;
    made.bytes = static_cast<double>(weights_[0].bytes());
    made.cold = !request_.warm;
    made.operations = 2.0 * static_cast<double>(m_) * static_cast<double>(n_) * static_cast<double>(k_);
    if (m_ > 1 || request_.warm) made.peak = peak_loop(Numbers::f32, kernel::cpu_isa());
    made.copies = static_cast<int>(weights_.size());
    made.run = [this] { run(); };
    return made;
  }

 private:
  void run() {
    const Status status = kernel::dense_matmul({x_.data(), {m_, k_}}, weights_[next_++ % weights_.size()],
                                               {y_.data(), {m_, n_}}, {}, request_.parallel);
    if (!status.ok()) throw Error(status);
  }

  const Request& request_;
  std::string name_;
  std::int64_t m_, n_, k_;
  Array<float> x_, y_;
  std::vector<kernel::DenseWeight> weights_;
  std::size_t next_ = 0;
};

}  // namespace

int dense_cases(const Request& request, const Use& use) {
  const auto names = request.weights.empty() ? std::vector<std::string>{"f32", "bf16"} : request.weights;
  const auto shapes =
      request.shapes.empty() ? std::vector<std::string>{"1x11008x4096", "128x11008x4096"} : request.shapes;
  for (const std::string& name : names)
    for (const std::string& text : shapes) {
      const auto mnk = parse_shape(text);
      const bool known = name == "f32" || name == "f16" || name == "bf16";
      if (!mnk || !known) {
        fmt::print(stderr, "qf-bench: weights '{}' and shape '{}', expected f32, f16 or bf16, and MxNxK\n",
                   name, text);
        return 2;
      }
      DenseSetting setting(name,
                           name == "f32"   ? DType::f32
                           : name == "f16" ? DType::f16
                                           : DType::bf16,
                           *mnk, request);
      std::vector<Case> cases{setting.make_case()};
      if (const int code = use(cases)) return code;
    }
  return 0;
}

}  // namespace qf::bench
