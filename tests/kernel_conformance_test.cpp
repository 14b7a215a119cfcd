// Every row of kernels.inc against an oracle of this file, over edge shapes, schemes, strides and unaligned
// pointers, with guard pages around everything a kernel may touch. The only test that is also built for other
// CPUs, so it needs nothing but Catch2's header.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "qf/kernel/matmul.hpp"
#include "tests/kernel_tools.hpp"

using namespace qf;
using namespace qf::kernel;
using namespace qf::kernel::test;

namespace {

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

// What y must be; how large the sum of the magnitudes is: errors of f32 are measured against that; and the largest |x|
// times the sum of the weights' distances from the middle of the codes: what rounding x to integers can change.
struct Truth {
  std::vector<double> y, size, reach;
};

Truth truth_of(const QuantizedMatrix& w, const float* x, std::int64_t m, std::int64_t x_stride,
               const float* bias) {
  Truth t;
  double entry_most = 0;  // fast kernels round the entries of a codebook too
  for (const float entry : std::span(w.codebook().data, static_cast<std::size_t>(w.codebook().size())))
    entry_most = std::max(entry_most, std::fabs(static_cast<double>(entry)));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < w.n(); ++j) {
      double sum = bias ? static_cast<double>(bias[j]) : 0, size = std::fabs(sum), most = 0, distance = 0;
      for (std::int64_t c = 0; c < w.k(); ++c) {
        const double product = static_cast<double>(w.value(j, c)) * static_cast<double>(x[i * x_stride + c]);
        sum += product;
        size += std::fabs(product);
        const std::int64_t g = w.group_index(c);
        most = std::max(most, std::fabs(static_cast<double>(x[i * x_stride + c])));
        distance +=
            std::fabs(static_cast<double>(w.value(j, c))) +
            std::fabs(static_cast<double>((w.zero(j, g) - w.scheme().symmetric_zero()) * w.scales()(j, g))) +
            2 * std::fabs(entry_most * static_cast<double>(w.scales()(j, g)));
      }
      t.y.push_back(sum);
      t.size.push_back(size);
      t.reach.push_back(most * distance);
    }
  return t;
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

enum class Order { as_is, permuted, uneven };  // of the columns: groups as large as without an order, or any

// Runs every fitting kernel on one case with 1, 2 and 7 threads.
void run_case(Rng& rng, const Scheme& scheme, const Case& c, Order order = Order::as_is) {
  QuantizedMatrix w = random_matrix(rng, scheme, c.n, c.k);
  if (order != Order::as_is) {
    std::vector<std::int32_t> group_of;
    for (std::int64_t i = 0; i < c.k; ++i) group_of.push_back(static_cast<std::int32_t>(i / w.group_size()));
    std::shuffle(group_of.begin(), group_of.end(), rng);
    if (order == Order::uneven && w.groups() > 1) group_of[0] = group_of[0] ? 0 : 1;
    REQUIRE(w.set_group_of(group_of).ok());
  }
  PackOptions pack;
  pack.layout = c.canonical ? Layout::canonical : Layout::rows16;
  pack.allocator = &guarded_allocator();
  auto packed = prepack(w, pack);
  REQUIRE(packed.ok());
  const bool uneven = order == Order::uneven && w.groups() > 1;
  REQUIRE(packed->layout() == (c.canonical || uneven ? Layout::canonical : Layout::rows16));

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
      const double top = kernel->accuracy == Accuracy::exact   ? 127.0 * 65536 / 4  // and the sum of x in f32
                         : kernel->accuracy == Accuracy::int16 ? 127.0 * 256
                                                               : 127.0;
      for (std::int64_t i = 0; i < c.m; ++i)
        for (std::int64_t j = 0; j < c.n; ++j) {
          const auto at = static_cast<std::size_t>(i * c.n + j);
          INFO("row " << i << " output " << j);
          REQUIRE(std::fabs(static_cast<double>(y[i * y_stride + j]) - truth.y[at]) <=
                  2e-6 * truth.size[at] + 0.505 / top * truth.reach[at] + 1e-30);
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

TEST_CASE("codebooks and permuted groups run on every kernel that reads them") {
  Rng rng(2);
  for (int i = 0; i < (std::getenv("QF_TEST_QUICK") ? 100 : 300); ++i) {
    Case c{pick(rng, 1, 9),
           pick(rng, 1, 70),
           pick(rng, 1, 70),
           pick(rng, 0, 1) == 1,
           pick(rng, 0, 5) == 0,
           0,
           0,
           0,
           0};
    if (i % 9 == 0) c.k = pick(rng, 200, 700);
    Scheme s = random_scheme(rng, c.k);
    if (i % 4) s.codebook = static_cast<CodebookKind>(pick(rng, 1, 2));
    run_case(rng, s, c, static_cast<Order>(i % 3));
  }
}

TEST_CASE("the exact path stays below a relative RMS of 1e-6, 16 bits below 3e-5, the fast one below 1 %") {
  const auto most_rms = [](Accuracy a) {
    return a == Accuracy::exact ? 1e-6 : a == Accuracy::int16 ? 3e-5 : 1e-2;
  };
  Rng rng(3);
  const std::int64_t k = 2048, n = 96;
  for (int bits : {2, 3, 4, 5, 6, 8})
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
            // Zeros far from the middle of the codes cancel: what is left is small beside what was rounded.
            const double cancels = zero == ZeroKind::floating ? 1.5 : 1;
            CHECK(relative_rms(truth, y.data(), m, n, n) < most_rms(kernel->accuracy) * cancels);
          }
        }
      }
}

TEST_CASE("codebooks of 4 bits stay below 1 % with integers") {
  // NF4 (Dettmers et al. 2023) and E2M1.
  static constexpr float kNf4[] = {
      -1.0f,       -0.69619280f, -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f, -0.09105004f, 0.0f,
      0.07958030f, 0.16093020f,  0.24611230f,  0.33791524f,  0.44070983f,  0.56261700f,  0.72295684f,  1.0f};
  static constexpr float kFp4[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, 0, -.5f, -1, -1.5f, -2, -3, -4, -6};
  Rng rng(13);
  const std::int64_t n = 96, k = 2048;
  for (const float* book : {kNf4, kFp4})
    for (std::int64_t m : {1, 7, 40}) {
      QuantizedMatrix w =
          random_matrix(rng, {4, 64, ZeroKind::symmetric, DType::f16, CodebookKind::per_matrix}, n, k);
      std::copy(book, book + 16, w.codebook().data);
      auto packed = prepack(w);
      REQUIRE(packed.ok());
      std::vector<float> x(static_cast<std::size_t>(m * k)), y(static_cast<std::size_t>(m * n));
      std::normal_distribution<float> normal;
      for (float& value : x) value = normal(rng);
      const Truth truth = truth_of(w, x.data(), m, k, nullptr);
      bool fast = false;
      for (const Kernel* kernel : fitting(*packed, m)) {
        MatmulOptions options;
        options.kernel = kernel;
        REQUIRE(matmul({x.data(), {m, k}}, *packed, {y.data(), {m, n}}, {}, options).ok());
        INFO(kernel->name << " m=" << m << (book == kNf4 ? " NF4" : " FP4"));
        const double rms = relative_rms(truth, y.data(), m, n, n);
        CHECK(rms < (kernel->accuracy == Accuracy::exact ? 1e-6 : book == kNf4 ? 1e-2 : 8e-3));
        fast = fast || kernel->accuracy == Accuracy::fast;
      }
      CHECK(fast);
    }
}

TEST_CASE("codebooks of 8-bit floats give what their entries say, denormal ones too") {
  Rng rng(14);
  const std::int64_t n = 37, k = 300;
  for (const bool e4m3 : {true, false})
    for (std::int64_t m : {1, 5}) {
      QuantizedMatrix w =
          random_matrix(rng, {8, 128, ZeroKind::symmetric, DType::f16, CodebookKind::per_matrix}, n, k);
      for (int code = 0; code < 256; ++code) {
        f8e4m3 four;
        f8e5m2 five;
        four.bits = five.bits = static_cast<std::uint8_t>(code);
        w.codebook()(0, code) = e4m3 ? static_cast<float>(four) : static_cast<float>(five);
      }
      const int most = e4m3 ? 0x7e : 0x7b;
      for (std::int64_t i = 0; i < n * k; ++i)
        w.codes().data[i] = static_cast<std::uint8_t>(pick(rng, 0, i % 3 ? most : 7) | (i % 2 ? 0x80 : 0));
      auto packed = prepack(w);
      REQUIRE(packed.ok());
      std::vector<float> x(static_cast<std::size_t>(m * k)), y(static_cast<std::size_t>(m * n));
      std::normal_distribution<float> normal;
      for (float& value : x) value = normal(rng);
      const Truth truth = truth_of(w, x.data(), m, k, nullptr);
      for (const Kernel* kernel : fitting(*packed, m)) {
        MatmulOptions options;
        options.kernel = kernel;
        REQUIRE(matmul({x.data(), {m, k}}, *packed, {y.data(), {m, n}}, {}, options).ok());
        INFO(kernel->name << " m=" << m << (e4m3 ? " E4M3" : " E5M2"));
        CHECK(relative_rms(truth, y.data(), m, n, n) < 1e-6);
      }
    }
}

TEST_CASE("any split of n and any number of threads give the same bits") {
  Rng rng(4);
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (std::int64_t m : {1, 13}) {
      const std::int64_t n = 333, k = 517;
      const QuantizedMatrix w =
          random_matrix(rng, {bits, 64, ZeroKind::integer, DType::f16, CodebookKind::none}, n, k);
      auto packed = prepack(w);
      REQUIRE(packed.ok());
      std::vector<float> x(static_cast<std::size_t>(m * k));
      std::normal_distribution<float> normal;
      for (float& value : x) value = normal(rng);
      for (const Kernel* kernel : fitting(*packed, m)) {
        INFO(kernel->name);
        MatmulOptions options;
        options.kernel = kernel;
        std::vector<float> whole(static_cast<std::size_t>(m * n));
        REQUIRE(matmul({x.data(), {m, k}}, *packed, {whole.data(), {m, n}}, {}, options).ok());
        for (int threads : {2, 7}) {
          std::vector<float> y(whole.size());
          options.parallel = threads_of(threads);
          REQUIRE(matmul({x.data(), {m, k}}, *packed, {y.data(), {m, n}}, {}, options).ok());
          CHECK(std::memcmp(y.data(), whole.data(), 4 * y.size()) == 0);
        }
        for (int split = 0; split < 5; ++split) {
          std::vector<float> y(whole.size());
          MatmulArgs args{};
          args.m = m, args.n = n, args.k = k, args.x = x.data(), args.x_stride = k;
          args.weight = packed->buffer().data(), args.y = y.data(), args.y_stride = n;
          const KernelFunctions& f = *kernel->functions;
          const auto bytes = [&](auto of) { return of ? static_cast<std::size_t>(of(args)) : 0; };
          Array<std::byte> scratch = Array<std::byte>::make(bytes(f.scratch_bytes)).value();
          Array<std::byte> prepared = Array<std::byte>::make(bytes(f.prepared_bytes)).value();
          args.scratch = scratch.data(), args.prepared = prepared.data();
          for (std::int64_t row = 0; f.prepare && row < m; row += f.prepare_step)
            f.prepare(args, row, std::min(m, row + f.prepare_step));
          while (args.n_begin < n) {
            args.n_end = std::min(n, args.n_begin + kernel->n_step * pick(rng, 1, 9));
            f.run(args);
            args.n_begin = args.n_end;
          }
          CHECK(std::memcmp(y.data(), whole.data(), 4 * y.size()) == 0);
        }
      }
    }
}

TEST_CASE("the table is sound, and the environment cuts and forces what runs") {
  for (std::size_t i = 0; i < kernels().size(); ++i) {
    const Kernel& kernel = *kernels()[i];
    CHECK(find_kernel(kernel.name) == &kernel);  // names are unique
    CHECK(kernel.m_min >= 1);
    CHECK(kernel.n_step >= 1);
    CHECK((kernel.bits == 0 || (kernel.bits >= 2 && kernel.bits <= 8)));
    CHECK(kernel.codes != 0);
    if (QF_EMULATED && kernel.isa)
      std::printf("emulated %s\n", kernel.name);
    else if (!std::getenv("QF_MAX_ISA") && (kernel.isa & ~cpu_isa()))
      std::printf("SKIPPED %s: this CPU lacks %s\n", kernel.name, isa_name(kernel.isa & ~cpu_isa()).c_str());
  }
  Rng rng(11);
  auto packed =
      prepack(random_matrix(rng, {4, 32, ZeroKind::integer, DType::f16, CodebookKind::none}, 3, 64));
  REQUIRE(packed.ok());
  const char *force = std::getenv("QF_FORCE_KERNEL"), *most = std::getenv("QF_MAX_ISA");
  auto chosen = choose_kernel(*packed, 1);
  if (most && std::string(most) == "none") {
    CHECK(cpu_isa() == isa::scalar);
    CHECK(isa_name(cpu_isa()) == "scalar");
  }
  if (most && std::string(most) == "nonsense") {
    CHECK(cpu_isa() == isa::scalar);
    CHECK(chosen.status().text().find("QF_MAX_ISA is 'nonsense', expected none|avx2|") == 0);
  } else if (force && std::string(force) == "nonsense") {
    CHECK(chosen.status().text() == "QF_FORCE_KERNEL: no kernel 'nonsense' in this library");
  } else {
    REQUIRE(chosen.ok());
    if (force && find_kernel(force)) {
      CHECK(std::string((*chosen)->name) == force);  // it fits; other calls choose as usual
      CHECK(choose_kernel(*packed, 2).ok());
    }
  }
}
