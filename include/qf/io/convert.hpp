// Needs: link qf. Elements as files store them, to and from float.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "qf/core/dtype.hpp"
#include "qf/core/result.hpp"

namespace qf::io {

// Bytes that `count` elements take; fails when that isn't a whole number or overflows.
Result<std::uint64_t> stored_bytes(DType type, std::uint64_t count);

// out[i] = element first + i of `stored` (little-endian, any alignment). Exact for types of 16 bits and
// fewer and for F32; F64 and integers of 32 and 64 bits are rounded to the nearest float. F4 holds two
// elements a byte, the first in the low half. Errors: range outside `stored` (invalid_argument), C64 and F6
// (unsupported: not real, and without a settled bit order).
Status decode_f32(DType type, std::span<const std::byte> stored, std::uint64_t first, std::span<float> out);

// The other way: rounds to nearest, ties to even; `stored` has stored_bytes(type, in.size()) bytes.
// F32, F16, BF16, F8_E4M3, F8_E5M2 (both saturate); others are unsupported.
Status encode_f32(DType type, std::span<const float> in, std::span<std::byte> stored);

}  // namespace qf::io
