// y = x * w^T with low-bit w, by every kernel that fits.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <random>

#include "benchmarks/ops.hpp"
#include "benchmarks/shapes.hpp"
#include "benchmarks/weights.hpp"

namespace qf::bench {
namespace {

using kernel::Kernel;
using kernel::PackedWeight;

struct Problem {
  std::string weights;
  WeightKind kind;
  std::int64_t m, n, k;
};

bool has_word(const Kernel& kernel, std::string_view word) {
  return std::string_view(kernel.name).find(word) != std::string_view::npos;
}

// How wrong a kernel of this accuracy may be (docs/kernels.md).
double allowed_rms(const Kernel& kernel) {
  return kernel.accuracy == kernel::Accuracy::exact   ? 1e-6
         : kernel.accuracy == kernel::Accuracy::int16 ? 3e-5
                                                      : 1e-2;
}

// One problem: the matrix, and enough copies of the packed weight that none is in a cache when its turn comes.
class Setting {
 public:
  Setting(const Problem& problem, const Request& request)
      : problem_(problem),
        request_(request),
        matrix_(random_weights(problem.kind, problem.n, problem.k)),
        x_(Array<float>::make(static_cast<std::size_t>(problem.m * problem.k)).value()),
        y_(Array<float>::make(static_cast<std::size_t>(problem.m * problem.n)).value()) {
    std::mt19937 rng(11);
    std::normal_distribution<float> normal;
    for (float& value : x_) value = normal(rng);
  }

  // First what matmul() chooses, then the rest in the table's order.
  std::vector<Case> cases() {
    std::vector<const Kernel*> found;
    kernel::MatmulOptions options;
    options.accuracy = request_.accuracy;
    const auto fits = [&](const Kernel* kernel) {
      options.kernel = kernel;
      return choose_kernel(copies(kernel->layout).front(), problem_.m, options).ok();
    };
    if (request_.kernel.empty()) {
      auto packed = kernel::prepack(matrix_, {.parallel = request_.parallel});
      found.push_back(kernel::choose_kernel(packed.value(), problem_.m, options).value());
    }
    for (const Kernel* kernel : kernel::kernels()) {
      if (request_.chosen_only && !found.empty()) break;
      if (!request_.kernel.empty()) {
        if (request_.kernel == kernel->name && fits(kernel)) found.push_back(kernel);
        continue;
      }
      // The oracle and what has no vectors are slow, and kernels for several rows say nothing new of one.
      const bool dull = kernel->layout == kernel::Layout::canonical || kernel->isa == kernel::isa::scalar ||
                        (kernel->op == kernel::Op::gemm && problem_.m == 1 && kernel->m_min <= 1);
      if (kernel != found.front() && !dull && fits(kernel)) found.push_back(kernel);
    }
    std::vector<Case> made;
    for (const Kernel* kernel : found) made.push_back(make_case(*kernel));
    return made;
  }

 private:
  Case make_case(const Kernel& kernel) {
    const auto bytes = copies(kernel.layout).front().buffer().size() - sizeof(kernel::PackedHeader);
    Case made;
    made.kernel = kernel.name;
    made.about = {{"weights", problem_.weights}, {"m", problem_.m}, {"n", problem_.n}, {"k", problem_.k}};
    made.relative_rms = check(kernel);
    made.relative_rms_allowed = allowed_rms(kernel);
    made.bytes = static_cast<double>(bytes);
    made.cold = !request_.warm;
    made.operations = 2.0 * static_cast<double>(problem_.m) * static_cast<double>(problem_.n) *
                      static_cast<double>(problem_.k);
    // Of one row the weights are the work; what they are multiplied with hardly counts.
    if (problem_.m > 1 || request_.warm)
      made.peak = peak_loop(has_word(kernel, "_f32_") ? Numbers::f32 : Numbers::i8, kernel.isa);
    made.copies = static_cast<int>(copies(kernel.layout).size());
    made.run = [this, &kernel] { run(kernel); };
    return made;
  }

  // Relative RMS against f64, over the first rows of x and outputs spread over the matrix.
  double check(const Kernel& kernel) {
    std::fill(y_.begin(), y_.end(), std::nanf(""));
    run(kernel);
    double error = 0, norm = 0;
    const std::int64_t rows = std::min<std::int64_t>(problem_.m, 16),
                       step = std::max<std::int64_t>(1, problem_.n / 61);
    std::vector<float> w(static_cast<std::size_t>(problem_.k));
    for (std::int64_t j = 0; j < problem_.n; j += step) {
      matrix_.dequantize_row(j, w.data());
      for (std::int64_t i = 0; i < rows; ++i) {
        double sum = 0;
        const float* x = x_.data() + i * problem_.k;
        for (std::int64_t c = 0; c < problem_.k; ++c)
          sum += static_cast<double>(w[static_cast<std::size_t>(c)]) * static_cast<double>(x[c]);
        const double off = sum - static_cast<double>(y_[static_cast<std::size_t>(i * problem_.n + j)]);
        error += off * off;
        norm += sum * sum;
      }
    }
    return std::sqrt(error / norm);
  }

  void run(const Kernel& kernel) {
    auto& weights = copies(kernel.layout);
    kernel::MatmulOptions options;
    options.accuracy = kernel.accuracy;
    options.kernel = &kernel;
    options.parallel = request_.parallel;
    const PackedWeight& w = weights[next_++ % weights.size()];
    const Status status =
        matmul({x_.data(), {problem_.m, problem_.k}}, w, {y_.data(), {problem_.m, problem_.n}}, {}, options);
    if (!status.ok()) throw Error(status);
  }

  std::vector<PackedWeight>& copies(kernel::Layout layout) {
    std::vector<PackedWeight>& weights = copies_[layout];
    if (!weights.empty()) return weights;
    kernel::PackOptions options;
    options.layout = layout;
    options.parallel = request_.parallel;
    const Allocator& allocator = request_.small_pages ? default_allocator() : kernel::weight_allocator();
    options.allocator = &allocator;
    weights.push_back(prepack(matrix_, options).value());
    const std::span<const std::byte> first = weights.front().buffer();
    for (std::size_t total = first.size(); !request_.warm && total < 4 * last_cache_bytes();
         total += first.size()) {
      auto copy = Array<std::byte>::make(first.size(), allocator).value();
      std::memcpy(copy.data(), first.data(), first.size());
      weights.push_back(PackedWeight::from_buffer(std::move(copy), "copy").value());
    }
    return weights;
  }

  const Problem& problem_;
  const Request& request_;
  QuantizedMatrix matrix_;
  Array<float> x_, y_;
  std::map<kernel::Layout, std::vector<PackedWeight>> copies_;
  std::size_t next_ = 0;
};

}  // namespace

int matmul_cases(const Request& request, const Use& use) {
  if (!request.kernel.empty() && !kernel::find_kernel(request.kernel)) {
    fmt::print(stderr, "qf-bench: no kernel '{}'; --list shows all\n", request.kernel);
    return 2;
  }
  std::vector<Problem> problems;
  const auto weights =
      request.weights.empty() ? std::vector<std::string>{"w4g128", "w8g128"} : request.weights;
  for (const std::string& name : weights) {
    const auto kind = parse_weights(name);
    if (!kind) {
      fmt::print(stderr, "qf-bench: weights '{}', expected {}\n", name, kWeightNames);
      return 2;
    }
    for (const std::string& shape : request.shapes) {
      const auto mnk = parse_shape(shape);
      if (!mnk) {
        fmt::print(stderr, "qf-bench: shape '{}', expected MxNxK, such as 1x4096x4096\n", shape);
        return 2;
      }
      problems.push_back({name, *kind, (*mnk)[0], (*mnk)[1], (*mnk)[2]});
    }
    if (request.models)
      for (const Shape& shape : kShapes)
        for (std::int64_t m : {1, 32}) problems.push_back({name, *kind, m, shape.n, shape.k});
    if (request.shapes.empty() && !request.models)
      for (std::int64_t m : {1, 128}) problems.push_back({name, *kind, m, 11008, 4096});
  }
  for (const Problem& problem : problems) {
    Setting setting(problem, request);
    std::vector<Case> cases = setting.cases();
    if (cases.empty()) {
      fmt::print(stderr, "qf-bench: no kernel {}fits {} {}x{}x{} on this CPU\n",
                 request.kernel.empty() ? "" : request.kernel + " ", problem.weights, problem.m, problem.n,
                 problem.k);
      return 2;
    }
    if (const int code = use(cases)) return code;
  }
  return 0;
}

}  // namespace qf::bench
