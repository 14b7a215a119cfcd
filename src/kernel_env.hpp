// How a kernel is chosen beyond what matmul.hpp offers.
#pragma once

#include "qf/core/result.hpp"
#include "qf/kernel/matmul.hpp"

namespace qf::kernel {

std::int64_t prefetch_bytes();  // MatmulArgs::ahead_bytes for this CPU

Status check_max_isa();  // an error if QF_MAX_ISA holds a name that isn't known

// As choose_kernel(), of the kernels that take x as 8-bit integers of the caller.
Result<const Kernel*> choose_int8_kernel(const PackedWeight& w, std::int64_t m, const MatmulOptions& options);

}  // namespace qf::kernel
