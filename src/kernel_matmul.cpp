// matmul(): checks once, chooses a kernel, splits n over the host's threads.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "qf/kernel/matmul.hpp"
#include "src/kernel_env.hpp"

namespace qf::kernel {
namespace {

// Why a kernel doesn't fit; empty if it does.
std::string misfit(const Kernel& kernel, const PackedWeight& w, std::int64_t m) {
  if (kernel.layout != w.layout() || (kernel.bits != 0 && kernel.bits != w.stored_bits()))
    return cat({"it reads ", kernel.layout == Layout::rows16 ? "rows16" : "canonical", " of ",
                kernel.bits ? num(kernel.bits) : std::string("any"), " bits, and the weight is ",
                w.layout() == Layout::rows16 ? "rows16" : "canonical", " of ", num(w.stored_bits())});
  if (m < kernel.m_min || m > kernel.m_max)
    return cat({num(m), " rows of x, it takes ", num(kernel.m_min), " to ", num(kernel.m_max)});
  if (kernel.isa & ~cpu_isa())
    return cat({"it needs ", isa_name(kernel.isa), ", and this CPU offers ", isa_name(cpu_isa())});
  return {};
}

struct Forced {
  std::vector<const Kernel*> kernels;
  Status status;
};

const Forced& forced() {
  static const Forced kForced = [] {
    Forced made;
    const char* text = std::getenv("QF_FORCE_KERNEL");
    std::string_view rest = text ? text : "";
    while (!rest.empty()) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      const std::string_view name = rest.substr(0, comma);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      if (const Kernel* kernel = find_kernel(name))
        made.kernels.push_back(kernel);
      else
        made.status = Status(Errc::invalid_argument,
                             cat({"QF_FORCE_KERNEL: no kernel ", printable(name), " in this library"}));
    }
    return made;
  }();
  return kForced;
}

Status check_shapes(const MatrixView<const float>& x, const PackedWeight& w, const MatrixView<float>& y,
                    std::span<const float> bias) {
  const auto shape = [](std::int64_t a, std::int64_t b) { return cat({"[", num(a), ", ", num(b), "]"}); };
  const std::int64_t m = x.shape[0], n = w.n(), k = w.k();
  if (m < 0 || x.shape[1] != k || y.shape[0] != m || y.shape[1] != n)
    return Status(Errc::invalid_argument,
                  cat({"matmul: x ", shape(m, x.shape[1]), ", w ", shape(n, k), ", y ",
                       shape(y.shape[0], y.shape[1]), "; expected x [m, k], w [n, k], y [m, n]"}));
  if (!bias.empty() && static_cast<std::int64_t>(bias.size()) != n)
    return Status(Errc::invalid_argument,
                  cat({"matmul: bias of ", num(bias.size()), ", expected ", num(n), " or none"}));
  const auto check_matrix = [&](std::string_view name, const void* data, std::int64_t columns,
                                std::int64_t row, std::int64_t column) -> Status {
    if (m == 0 || columns == 0) return {};
    if (!data) return Status(Errc::invalid_argument, cat({"matmul: ", name, " has no data"}));
    if ((columns > 1 && column != 1) || (m > 1 && row < columns))
      return Status(Errc::invalid_argument, cat({"matmul: strides of ", name, " ", shape(row, column),
                                                 ", expected [", num(columns), " or more, 1]"}));
    return {};
  };
  QF_TRY(check_matrix("x", x.data, k, x.stride[0], x.stride[1]));
  return check_matrix("y", y.data, n, y.stride[0], y.stride[1]);
}

// Scratch of one call. Not zeroed and not an Array for that reason.
struct Scratch {
  const Allocator* allocator;
  std::size_t bytes;
  void* memory;
  Scratch(const Allocator* from, std::size_t size)
      : allocator(from),
        bytes(size),
        memory(size ? from->allocate(from->user, size, kBufferAlignment) : nullptr) {}
  ~Scratch() {
    if (memory) allocator->release(allocator->user, memory, bytes);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

}  // namespace

Status check_environment() {
  QF_TRY(check_max_isa());
  return forced().status;
}

Result<const Kernel*> choose_kernel(const PackedWeight& w, std::int64_t m, const MatmulOptions& options) {
  if (options.kernel) {
    const std::string why = misfit(*options.kernel, w, m);
    if (!why.empty())
      return Status(Errc::invalid_argument, cat({"kernel ", options.kernel->name, " doesn't fit: ", why}));
    return options.kernel;
  }
  QF_TRY(check_environment());
  for (const Kernel* kernel : forced().kernels)
    if (misfit(*kernel, w, m).empty()) return kernel;
  for (const Kernel* kernel : kernels())
    if ((options.accuracy == Accuracy::fast || kernel->accuracy == Accuracy::exact) &&
        misfit(*kernel, w, m).empty())
      return kernel;
  return Status(Errc::internal, cat({"no kernel for ", scheme_name(w.scheme()), ", ", num(m), " rows of x"}));
}

Status matmul(MatrixView<const float> x, const PackedWeight& w, MatrixView<float> y,
              std::span<const float> bias, const MatmulOptions& options) {
  QF_TRY(check_shapes(x, w, y, bias));
  const std::int64_t m = x.shape[0], n = w.n(), k = w.k();
  if (m == 0 || n == 0) return {};
  if (k == 0) {
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        y.data[i * y.stride[0] + j] = bias.empty() ? 0.0f : bias[static_cast<std::size_t>(j)];
    return {};
  }
  QF_TRY_ASSIGN(const Kernel* kernel, choose_kernel(w, m, options));
  MatmulArgs args{m,      n,           k,
                  x.data, x.stride[0], w.buffer().data(),
                  y.data, y.stride[0], bias.empty() ? nullptr : bias.data(),
                  0,      n,           nullptr};

  // A call costs some microseconds on another thread: below that much work it stays here.
  constexpr double kWorkOfTask = 1 << 18;  // multiplications
  const std::int64_t steps = (n + kernel->n_step - 1) / kernel->n_step;
  std::int64_t tasks = 1;
  if (options.parallel.run && options.parallel.threads > 1) {
    const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    tasks = std::min<std::int64_t>(steps, std::int64_t{options.parallel.threads} * (m == 1 ? 1 : 2));
    tasks = std::clamp<std::int64_t>(static_cast<std::int64_t>(work / kWorkOfTask), 1, tasks);
  }
  std::int64_t each = kernel->scratch_bytes(args), total = 0;
  each = (each + 63) / 64 * 64;
  if (__builtin_mul_overflow(each, tasks, &total)) return Status(Errc::out_of_memory, "matmul: scratch");
  const Scratch scratch(options.allocator, static_cast<std::size_t>(total));
  if (total && !scratch.memory)
    return Status(Errc::out_of_memory, cat({"matmul: no memory for ", num(total), " bytes of scratch"}));

  parallel_for(options.parallel, tasks, [&](std::int64_t task) {
    MatmulArgs part = args;
    part.n_begin = steps * task / tasks * kernel->n_step;
    part.n_end = std::min(n, steps * (task + 1) / tasks * kernel->n_step);
    part.scratch = static_cast<std::byte*>(scratch.memory) + task * each;
    kernel->run(part);
  });
  return {};
}

}  // namespace qf::kernel
