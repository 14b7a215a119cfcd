// Every row of kernels.inc against an oracle of this file, over edge shapes, schemes, strides and unaligned
// pointers, with guard pages around everything a kernel may touch. The only test that is also built for other
// CPUs, so it needs nothing but Catch2's header.
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <iostream>
#include <random>
#include <thread>
#include <vector>

#include "qf/kernel/matmul.hpp"

using namespace qf;
using namespace qf::kernel;

namespace {

using Rng = std::mt19937;

std::int64_t pick(Rng& rng, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
}

// Bytes between two pages that may not be touched. The data ends at the second one, less `slack` bytes.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes, std::size_t slack = 0) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    inner_ = (bytes + slack + page - 1) / page * page;
    if (inner_ == 0) inner_ = page;
    total_ = inner_ + 2 * page;
    void* mapped = mmap(nullptr, total_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(mapped != MAP_FAILED);
    base_ = static_cast<std::byte*>(mapped);
    REQUIRE(mprotect(base_ + page, inner_, PROT_READ | PROT_WRITE) == 0);
    data_ = base_ + page + inner_ - slack - bytes;
  }
  ~Guarded() { munmap(base_, total_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte *base_ = nullptr, *data_ = nullptr;
  std::size_t inner_ = 0, total_ = 0;
};

// An allocator whose memory ends at a guard page (up to the alignment of 64 bytes, which sizes of weights
// have).
const Allocator& guarded_allocator() {
  static const Allocator kAllocator{
      [](void*, std::size_t bytes, std::size_t) -> void* {
        const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        const std::size_t inner = (bytes + page - 1) / page * page, rounded = (bytes + 63) / 64 * 64;
        void* mapped = mmap(nullptr, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped == MAP_FAILED) return nullptr;
        auto* base = static_cast<std::byte*>(mapped);
        if (mprotect(base + page, inner, PROT_READ | PROT_WRITE) != 0) return nullptr;
        std::memset(base + page, 0x7f, inner);  // NaN-like rubbish: scratch isn't zeroed
        return base + page + inner - rounded;
      },
      [](void*, void* pointer, std::size_t bytes) {
        const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        const std::size_t inner = (bytes + page - 1) / page * page, rounded = (bytes + 63) / 64 * 64;
        munmap(static_cast<std::byte*>(pointer) - (inner - rounded) - page, inner + 2 * page);
      },
      nullptr};
  return kAllocator;
}

// Threads of the standard library behind a ParallelFor; item i runs on thread i % threads.
ParallelFor threads_of(int& count) {
  return {[](void* user, std::int64_t items, void (*body)(void*, std::int64_t), void* context) {
            const int threads = *static_cast<int*>(user);
            std::vector<std::thread> running;
            for (int t = 0; t < threads; ++t)
              running.emplace_back([=] {
                for (std::int64_t i = t; i < items; i += threads) body(context, i);
              });
            for (std::thread& thread : running) thread.join();
          },
          &count, count};
}

Scheme random_scheme(Rng& rng, std::int64_t k) {
  static constexpr DType kScales[] = {DType::f16, DType::bf16, DType::f32};
  static constexpr std::int64_t kGroups[] = {0,  1,  2,  3,  4,  5,   7,   8,   12,
                                             16, 31, 32, 33, 64, 100, 128, 256, 1000};
  Scheme s;
  s.bits = static_cast<int>(pick(rng, 0, 2) ? pick(rng, 0, 1) * 4 + 4 : pick(rng, 1, 8));
  s.group = kGroups[pick(rng, 0, 17)];
  if (pick(rng, 0, 9) == 0) s.group = pick(rng, 1, k + 2);
  s.zero = static_cast<ZeroKind>(pick(rng, 0, 2));
  s.scale = kScales[pick(rng, 0, 2)];
  return s;
}

QuantizedMatrix random_matrix(Rng& rng, const Scheme& scheme, std::int64_t n, std::int64_t k) {
  auto made = QuantizedMatrix::make(scheme, n, k);
  REQUIRE(made.ok());
  QuantizedMatrix w = std::move(*made);
  std::normal_distribution<float> normal;
  const float middle = scheme.symmetric_zero();
  for (std::int64_t r = 0; r < n; ++r) {
    for (std::int64_t c = 0; c < k; ++c) {
      const float code = std::nearbyint(middle + normal(rng) * middle / 3);
      w.codes()(r, c) = static_cast<std::uint8_t>(
          pick(rng, 0, 15) == 0 ? pick(rng, 0, 1) * (scheme.levels() - 1)
                                : std::min(std::max(code, 0.0f), static_cast<float>(scheme.levels() - 1)));
    }
    for (std::int64_t g = 0; g < w.groups(); ++g) {
      w.scales()(r, g) =
          round_to(scheme.scale, 0.02f * (1 + std::fabs(normal(rng))) * (pick(rng, 0, 7) ? 1.f : -1.f));
      if (w.zeros().data)
        w.zeros()(r, g) = scheme.zero == ZeroKind::integer
                              ? static_cast<float>(pick(rng, 0, scheme.levels() - 1))
                              : middle * (1 + 0.3f * normal(rng));
    }
  }
  for (float& entry : std::span<float>(w.codebook().data, static_cast<std::size_t>(w.codebook().size())))
    entry = normal(rng);
  return w;
}

// What y must be, and how large the sum of the magnitudes is: errors of f32 are measured against that.
struct Truth {
  std::vector<double> y, size;
};

Truth truth_of(const QuantizedMatrix& w, const float* x, std::int64_t m, std::int64_t x_stride,
               const float* bias) {
  Truth t;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < w.n(); ++j) {
      double sum = bias ? static_cast<double>(bias[j]) : 0, size = std::fabs(sum);
      for (std::int64_t c = 0; c < w.k(); ++c) {
        const double product = static_cast<double>(w.value(j, c)) * static_cast<double>(x[i * x_stride + c]);
        sum += product;
        size += std::fabs(product);
      }
      t.y.push_back(sum);
      t.size.push_back(size);
    }
  return t;
}

std::vector<const Kernel*> fitting(const PackedWeight& w, std::int64_t m) {
  std::vector<const Kernel*> found;
  for (const Kernel* kernel : kernels()) {
    MatmulOptions options;
    options.kernel = kernel;
    if (choose_kernel(w, m, options).ok()) found.push_back(kernel);
  }
  return found;
}

double relative_rms(const Truth& t, const float* y, std::int64_t m, std::int64_t n, std::int64_t y_stride) {
  double error = 0, norm = 0;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      const double want = t.y[static_cast<std::size_t>(i * n + j)];
      const double off = static_cast<double>(y[i * y_stride + j]) - want;
      error += off * off;
      norm += want * want;
    }
  return norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
}

struct Case {
  std::int64_t m, n, k;
  bool bias, canonical;
  std::int64_t x_gap, y_gap;     // added to strides
  std::size_t x_shift, y_shift;  // bytes off the end of the page, multiples of 4: unaligned pointers
};

// Runs every fitting kernel on one case with 1, 2 and 7 threads.
void run_case(Rng& rng, const Scheme& scheme, const Case& c, bool permuted = false) {
  QuantizedMatrix w = random_matrix(rng, scheme, c.n, c.k);
  if (permuted && c.k > 0) {
    std::vector<std::int32_t> group_of;
    for (std::int64_t i = 0; i < c.k; ++i)
      group_of.push_back(static_cast<std::int32_t>(pick(rng, 0, w.groups() - 1)));
    REQUIRE(w.set_group_of(group_of).ok());
  }
  PackOptions pack;
  pack.layout = c.canonical ? Layout::canonical : Layout::rows16;
  pack.allocator = &guarded_allocator();
  auto packed = prepack(w, pack);
  REQUIRE(packed.ok());

  const std::int64_t x_stride = c.k + c.x_gap, y_stride = c.n + c.y_gap;
  const std::size_t rows = static_cast<std::size_t>(c.m ? c.m - 1 : 0);
  const std::size_t x_count =
      c.m ? rows * static_cast<std::size_t>(x_stride) + static_cast<std::size_t>(c.k) : 0;
  const std::size_t y_count =
      c.m ? rows * static_cast<std::size_t>(y_stride) + static_cast<std::size_t>(c.n) : 0;
  Guarded x_memory(4 * x_count, c.x_shift), y_memory(4 * y_count, c.y_shift);
  Guarded bias_memory(4 * static_cast<std::size_t>(c.n));
  float *x = x_memory.as<float>(), *y = y_memory.as<float>(), *bias = bias_memory.as<float>();
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < x_count; ++i) x[i] = std::nanf("");
  for (std::int64_t i = 0; i < c.m; ++i)
    for (std::int64_t j = 0; j < c.k; ++j) x[i * x_stride + j] = normal(rng);
  for (std::int64_t j = 0; j < c.n; ++j) bias[j] = normal(rng);
  const Truth truth = truth_of(w, x, c.m, x_stride, c.bias ? bias : nullptr);
  const MatrixView<const float> x_view(x, {c.m, c.k}, {x_stride, 1});
  const MatrixView<float> y_view(y, {c.m, c.n}, {y_stride, 1});
  const std::span<const float> bias_view(bias, c.bias ? static_cast<std::size_t>(c.n) : 0);

  for (const Kernel* kernel : fitting(*packed, c.m)) {
    INFO(kernel->name << ' ' << scheme_name(scheme) << " m=" << c.m << " n=" << c.n << " k=" << c.k
                      << " bias=" << c.bias << " gaps " << c.x_gap << ' ' << c.y_gap);
    std::vector<float> first;
    for (int threads : {1, 2, 7}) {
      for (std::size_t i = 0; i < y_count; ++i) y[i] = 12345.0f;
      MatmulOptions options;
      options.kernel = kernel;
      options.parallel = threads_of(threads);
      options.allocator = &guarded_allocator();
      const Status status = matmul(x_view, *packed, y_view, bias_view, options);
      INFO(status.text());
      REQUIRE(status.ok());
      for (std::int64_t i = 0; i < c.m; ++i)
        for (std::int64_t j = c.n; j < y_stride && i + 1 < c.m; ++j) REQUIRE(y[i * y_stride + j] == 12345.0f);
      if (threads > 1) {
        REQUIRE(std::memcmp(first.data(), y, 4 * y_count) == 0);
        continue;
      }
      first.assign(y, y + y_count);
      const double bound = kernel->accuracy == Accuracy::exact ? 2e-6 : 0.05;
      for (std::int64_t i = 0; i < c.m; ++i)
        for (std::int64_t j = 0; j < c.n; ++j) {
          const auto at = static_cast<std::size_t>(i * c.n + j);
          INFO("row " << i << " output " << j);
          REQUIRE(std::fabs(static_cast<double>(y[i * y_stride + j]) - truth.y[at]) <=
                  bound * truth.size[at] + 1e-30);
        }
    }
  }
}

}  // namespace

TEST_CASE("every kernel agrees with the oracle on random and edge shapes") {
  Rng rng(1);
  const bool quick = std::getenv("QF_TEST_QUICK") != nullptr;  // under slow emulators
  const int cases = quick ? 150 : 600;
  static constexpr std::int64_t kM[] = {0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 33};
  for (int i = 0; i < cases; ++i) {
    Case c{};
    c.m = kM[pick(rng, 0, 12)];
    c.n = pick(rng, 1, 70);
    c.k = pick(rng, 1, 70);
    if (i % 8 == 0) c.n = 127;
    if (i % 9 == 0) c.k = pick(rng, 200, 700);
    c.bias = pick(rng, 0, 1);
    c.canonical = pick(rng, 0, 5) == 0;
    c.x_gap = pick(rng, 0, 2) ? 0 : pick(rng, 1, 9);
    c.y_gap = pick(rng, 0, 2) ? 0 : pick(rng, 1, 9);
    c.x_shift = static_cast<std::size_t>(4 * pick(rng, 0, 5));
    c.y_shift = static_cast<std::size_t>(4 * pick(rng, 0, 5));
    run_case(rng, random_scheme(rng, c.k), c);
  }
}

TEST_CASE("codebooks and permuted groups run on the canonical layout") {
  Rng rng(2);
  for (int i = 0; i < 60; ++i) {
    Case c{pick(rng, 1, 4), pick(rng, 1, 40), pick(rng, 1, 70), pick(rng, 0, 1) == 1, false, 0, 0, 0, 0};
    Scheme s = random_scheme(rng, c.k);
    if (i % 2) s.codebook = static_cast<CodebookKind>(pick(rng, 1, 2));
    run_case(rng, s, c, i % 3 != 1);
  }
}

TEST_CASE("the exact path stays below a relative RMS of 1e-6, the fast one below 1 %") {
  Rng rng(3);
  const bool quick = std::getenv("QF_TEST_QUICK") != nullptr;
  const std::int64_t k = 2048, n = quick ? 32 : 96;
  for (int bits : {4, 8})
    for (std::int64_t group : {0, 32, 128})
      for (ZeroKind zero : {ZeroKind::symmetric, ZeroKind::integer, ZeroKind::floating}) {
        const Scheme scheme{bits, group, zero, DType::f16, CodebookKind::none};
        const QuantizedMatrix w = random_matrix(rng, scheme, n, k);
        auto packed = prepack(w);
        REQUIRE(packed.ok());
        for (std::int64_t m : {1, 7}) {
          std::vector<float> x(static_cast<std::size_t>(m * k)), y(static_cast<std::size_t>(m * n));
          std::normal_distribution<float> normal;
          for (float& value : x) value = normal(rng);
          const Truth truth = truth_of(w, x.data(), m, k, nullptr);
          for (const Kernel* kernel : fitting(*packed, m)) {
            MatmulOptions options;
            options.kernel = kernel;
            REQUIRE(matmul({x.data(), {m, k}}, *packed, {y.data(), {m, n}}, {}, options).ok());
            INFO(kernel->name << ' ' << scheme_name(scheme) << " m=" << m);
            CHECK(relative_rms(truth, y.data(), m, n, n) <
                  (kernel->accuracy == Accuracy::exact ? 1e-6 : 1e-2));
          }
        }
      }
}
