// Which kernel runs: what fits, and what the environment says.
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
  if (w.layout() == Layout::rows16 && !(kernel.codes & w.code_meaning()))
    return "it doesn't read the weight's kind of codebook";
  if (m < kernel.m_min || m > kernel.m_max)
    return cat({num(m), " rows of x, it takes ", num(kernel.m_min), " to ", num(kernel.m_max)});
  if (kernel.isa & ~cpu_isa())
    return cat({"it needs ", isa_name(kernel.isa), ", and this CPU offers ", isa_name(cpu_isa())});
  return {};
}

// Exact kernels serve every call, fast ones only those that ask for no more.
int error_class(Accuracy a) {
  return a == Accuracy::exact ? 0 : a == Accuracy::int16 ? 1 : 2;
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

}  // namespace

Status check_environment() {
  QF_TRY(check_max_isa());
  return forced().status;
}

namespace {

template <class Admits>
Result<const Kernel*> choose(const PackedWeight& w, std::int64_t m, const MatmulOptions& options,
                             Admits admits) {
  if (options.kernel) {
    std::string why = misfit(*options.kernel, w, m);
    if (why.empty() && !admits(*options.kernel)) why = "it doesn't take x as 8-bit integers";
    if (!why.empty())
      return Status(Errc::invalid_argument, cat({"kernel ", options.kernel->name, " doesn't fit: ", why}));
    return options.kernel;
  }
  QF_TRY(check_environment());
  for (const Kernel* kernel : forced().kernels)
    if (admits(*kernel) && misfit(*kernel, w, m).empty()) return kernel;
  for (const Kernel* kernel : kernels())
    if (admits(*kernel) && error_class(kernel->accuracy) <= error_class(options.accuracy) &&
        misfit(*kernel, w, m).empty())
      return kernel;
  return Status(Errc::internal, cat({"no kernel for ", scheme_name(w.scheme()), ", ", num(m), " rows of x"}));
}

}  // namespace

Result<const Kernel*> choose_kernel(const PackedWeight& w, std::int64_t m, const MatmulOptions& options) {
  return choose(w, m, options, [](const Kernel&) { return true; });
}

Result<const Kernel*> choose_int8_kernel(const PackedWeight& w, std::int64_t m,
                                         const MatmulOptions& options) {
  MatmulOptions fast = options;
  fast.accuracy = Accuracy::fast;
  return choose(w, m, fast,
                [](const Kernel& k) { return k.accuracy == Accuracy::fast && k.functions->prepare; });
}

}  // namespace qf::kernel
