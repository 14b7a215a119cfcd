// What the bits of a low-bit matrix mean: the single truth for quantizers, files and kernels.
#pragma once

#include <cstdint>
#include <string>

#include "qf/core/dtype.hpp"
#include "qf/core/result.hpp"

namespace qf {

// Where zero lies in the code range. The value of a code q of a group is always (q - zero) * scale, with q
// unsigned.
enum class ZeroKind : std::uint8_t {
  symmetric,  // zero = 2^(bits-1), nothing stored: q - zero is the signed code in [-2^(bits-1), 2^(bits-1) -
              // 1]
  integer,    // an integer in [0, 2^bits - 1] for each group
  floating,   // any float for each group (HQQ, MLX biases)
};

// A codebook replaces the code by an entry: the value is codebook[q] * scale.
enum class CodebookKind : std::uint8_t { none, per_matrix, per_row };

// A literal, structural type: usable at run time and as a template argument.
struct Scheme {
  int bits = 4;            // 1 to 8
  std::int64_t group = 0;  // columns that share a scale; 0: the whole row. The last group may be ragged
  ZeroKind zero = ZeroKind::integer;
  DType scale = DType::f16;  // f16, bf16 or f32: what scales are rounded to and stored as
  CodebookKind codebook = CodebookKind::none;

  friend constexpr bool operator==(const Scheme&, const Scheme&) = default;

  constexpr int levels() const { return 1 << bits; }
  constexpr std::int64_t group_size(std::int64_t k) const { return group == 0 || group > k ? k : group; }
  constexpr std::int64_t groups(std::int64_t k) const {
    const std::int64_t g = group_size(k);
    return k == 0 ? 0 : (k + g - 1) / g;
  }
  constexpr float symmetric_zero() const { return static_cast<float>(1 << (bits - 1)); }
  // Bits a weight costs when stored densely, scales and zeros included.
  constexpr double bits_per_weight(std::int64_t k) const {
    if (k == 0) return 0;
    const int zero_bits = zero == ZeroKind::integer    ? bits
                          : zero == ZeroKind::floating ? dtype_bits(scale)
                                                       : 0;
    return bits + static_cast<double>(groups(k)) * (dtype_bits(scale) + zero_bits) / static_cast<double>(k);
  }
};

// ok, or what is out of range.
inline Status check(const Scheme& s) {
  if (s.bits < 1 || s.bits > 8)
    return Status(Errc::invalid_argument, cat({"bits ", num(s.bits), ", expected 1 to 8"}));
  if (s.group < 0)
    return Status(Errc::invalid_argument,
                  cat({"group ", num(s.group), ", expected 1 or more, or 0 for the whole row"}));
  if (s.scale != DType::f16 && s.scale != DType::bf16 && s.scale != DType::f32)
    return Status(Errc::invalid_argument,
                  cat({"scales of type ", dtype_name(s.scale), ", expected F16, BF16 or F32"}));
  return {};
}

// "w4g64 asymmetric f16"; "w8 symmetric f32" for whole rows.
inline std::string scheme_name(const Scheme& s) {
  std::string text = cat({"w", num(s.bits)});
  if (s.group) text += cat({"g", num(s.group)});
  text += s.codebook != CodebookKind::none ? " codebook"
          : s.zero == ZeroKind::symmetric  ? " symmetric"
          : s.zero == ZeroKind::integer    ? " asymmetric"
                                           : " float-zero";
  text += s.scale == DType::f16 ? " f16" : s.scale == DType::bf16 ? " bf16" : " f32";
  return text;
}

// Rounds a scale to the type in which it is stored.
constexpr float round_to(DType type, float x) {
  return type == DType::f16    ? static_cast<float>(f16(x))
         : type == DType::bf16 ? static_cast<float>(bf16(x))
                               : x;
}

}  // namespace qf
