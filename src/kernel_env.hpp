// What the environment variables of the kernel room say; read once, at first use.
#pragma once

#include "qf/core/result.hpp"

namespace qf::kernel {

Status check_max_isa();  // an error if QF_MAX_ISA holds a name that isn't known

}  // namespace qf::kernel
