// Which types float weights, keys and values may be stored as.
#pragma once

#include <optional>

#include "kernels/cpu/dense_ops.hpp"
#include "qf/core/dtype.hpp"

namespace qf::kernel::detail {

inline std::optional<Stored> stored_as(DType type) {
  switch (type) {
    case DType::f32:
      return kF32;
    case DType::f16:
      return kF16;
    case DType::bf16:
      return kBf16;
    default:
      return std::nullopt;
  }
}

}  // namespace qf::kernel::detail
