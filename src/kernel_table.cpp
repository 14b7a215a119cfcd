// The table of kernels, derived from kernels/kernels.inc: declarations, descriptors, lookup.
#include <array>

#include "qf/kernel/matmul.hpp"

namespace qf::kernel {

#define QF_KERNEL(name, op, accuracy, layout, bits, codes, isa, m_min, m_max, n_step) \
  extern const KernelFunctions name;
#include "kernels/kernels.inc"

namespace {

#define QF_KERNEL(name, op, accuracy, layout, bits, codes, isa, m_min, m_max, n_step) \
  constinit const Kernel k_##name{                                                    \
      #name, Op::op, Accuracy::accuracy, Layout::layout, bits, codes, isa, m_min,     \
      m_max, n_step, &kernel::name};
#include "kernels/kernels.inc"

constinit const Kernel* const kTable[] = {
#define QF_KERNEL(name, op, accuracy, layout, bits, codes, isa, m_min, m_max, n_step) &k_##name,
#include "kernels/kernels.inc"
};

}  // namespace

std::span<const Kernel* const> kernels() {
  return kTable;
}

const Kernel* find_kernel(std::string_view name) {
  for (const Kernel* kernel : kTable)
    if (name == kernel->name) return kernel;
  return nullptr;
}

}  // namespace qf::kernel
