// Storage types of 16, 8 and 4 bits with bit-exact conversions. They store; arithmetic happens in float.
// Own types, since clang 14 has no _Float16 on x86. Rounding is to nearest, ties to even, everywhere.
// Sources: IEEE 754-2008 (binary16), bfloat16 (upper half of binary32), OCP "8-bit Floating Point
// Specification" (E4M3 without infinities, E5M2), OCP "Microscaling Formats (MX)" (E2M1, E8M0).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace qf {
namespace detail {

// Rounds |x| to a small float of EXP exponent and MAN mantissa bits, without infinity handling: returns the
// magnitude bits, which may overflow past the largest code; callers saturate or make infinities.
template <int EXP, int MAN>
constexpr std::uint32_t round_magnitude(std::uint32_t f32_magnitude) {
  constexpr int kBias = (1 << (EXP - 1)) - 1;
  constexpr int kShift = 23 - MAN;
  const int exponent = static_cast<int>(f32_magnitude >> 23) - 127 + kBias;
  if (exponent <= 0) {  // subnormal in the target
    const int shift = kShift + 1 - exponent;
    if (shift > 24 + 1) return 0;
    const std::uint32_t mantissa = (f32_magnitude & 0x7fffffu) | (f32_magnitude >> 23 ? 0x800000u : 0u);
    if (shift >= 32) return 0;
    const std::uint32_t half = 1u << (shift - 1), rest = mantissa & ((1u << shift) - 1);
    std::uint32_t code = mantissa >> shift;
    if (rest > half || (rest == half && (code & 1))) ++code;
    return code;
  }
  const std::uint32_t biased = f32_magnitude - (static_cast<std::uint32_t>(127 - kBias) << 23);
  return (biased + ((1u << (kShift - 1)) - 1) + ((biased >> kShift) & 1)) >> kShift;
}

template <int EXP, int MAN>
constexpr float expand_magnitude(std::uint32_t code) {
  constexpr int kBias = (1 << (EXP - 1)) - 1;
  const std::uint32_t exponent = code >> MAN, mantissa = code & ((1u << MAN) - 1);
  if (exponent == 0) {  // mantissa * 2^(1 - bias - MAN)
    return static_cast<float>(mantissa) *
           std::bit_cast<float>(static_cast<std::uint32_t>(127 + 1 - kBias - MAN) << 23);
  }
  return std::bit_cast<float>(((exponent + 127 - kBias) << 23) | (mantissa << (23 - MAN)));
}

}  // namespace detail

struct f16 {
  std::uint16_t bits = 0;
  constexpr f16() = default;
  constexpr explicit f16(float x) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x), magnitude = u & 0x7fffffffu;
    const std::uint32_t sign = (u >> 16) & 0x8000u;
    std::uint32_t code;
    if (magnitude > 0x7f800000u) {
      code = 0x7e00u | ((magnitude >> 13) & 0x3ffu);  // NaN keeps its upper payload and becomes quiet
    } else {
      code = magnitude >= 0x47800000u ? 0x7c00u : detail::round_magnitude<5, 10>(magnitude);
    }
    bits = static_cast<std::uint16_t>(sign | code);
  }
  constexpr operator float() const {  // NOLINT: exact, so implicit
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16, code = bits & 0x7fffu;
    const float magnitude = code >= 0x7c00u ? std::bit_cast<float>(0x7f800000u | ((code & 0x3ffu) << 13))
                                            : detail::expand_magnitude<5, 10>(code);
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
};

struct bf16 {
  std::uint16_t bits = 0;
  constexpr bf16() = default;
  constexpr explicit bf16(float x) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
    bits = static_cast<std::uint16_t>(
        (u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1)) >> 16);
  }
  constexpr operator float() const {  // NOLINT: exact, so implicit
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

// E4M3 of OCP ("FN"): no infinities, 0x7f is NaN, largest 448. Values beyond saturate to 448.
struct f8e4m3 {
  std::uint8_t bits = 0;
  constexpr f8e4m3() = default;
  constexpr explicit f8e4m3(float x) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x), magnitude = u & 0x7fffffffu;
    std::uint32_t code = 0x7f;
    if (magnitude <= 0x7f800000u) {
      code = magnitude >= 0x43e80000u ? 0x7e : detail::round_magnitude<4, 3>(magnitude);  // 464 and above
      if (code > 0x7e) code = 0x7e;
    }
    bits = static_cast<std::uint8_t>(((u >> 24) & 0x80u) | code);
  }
  constexpr operator float() const {  // NOLINT: exact, so implicit
    const std::uint32_t code = bits & 0x7fu;
    const float magnitude =
        code == 0x7f ? std::numeric_limits<float>::quiet_NaN() : detail::expand_magnitude<4, 3>(code);
    return bits & 0x80u ? -magnitude : magnitude;
  }
};

// E5M2 of OCP: like f16 with 2 mantissa bits, infinities included.
struct f8e5m2 {
  std::uint8_t bits = 0;
  constexpr f8e5m2() = default;
  constexpr explicit f8e5m2(float x) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x), magnitude = u & 0x7fffffffu;
    std::uint32_t code = 0x7e;
    if (magnitude <= 0x7f800000u) {
      code = magnitude >= 0x47800000u ? 0x7c : detail::round_magnitude<5, 2>(magnitude);
      if (code > 0x7c) code = 0x7c;
    }
    bits = static_cast<std::uint8_t>(((u >> 24) & 0x80u) | code);
  }
  constexpr operator float() const {  // NOLINT: exact, so implicit
    f16 wide;
    wide.bits = static_cast<std::uint16_t>(bits << 8);
    return wide;
  }
};

// E2M1 in the low four bits: sign, then an index into {0, .5, 1, 1.5, 2, 3, 4, 6}. Saturates; NaN becomes +6.
struct f4e2m1 {
  std::uint8_t bits = 0;
  constexpr f4e2m1() = default;
  constexpr explicit f4e2m1(float x) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x), magnitude = u & 0x7fffffffu;
    std::uint32_t code = magnitude >= 0x40c00000u ? 7 : detail::round_magnitude<2, 1>(magnitude);
    if (code > 7) code = 7;
    bits = static_cast<std::uint8_t>(((u >> 28) & 8u) | code);
  }
  constexpr operator float() const {  // NOLINT: exact, so implicit
    const float magnitude = detail::expand_magnitude<2, 1>(bits & 7u);
    return bits & 8u ? -magnitude : magnitude;
  }
};

// A power of two, 2^(bits - 127); 255 is NaN. From a float: rounds the exponent down (the MX rule for
// scales).
struct e8m0 {
  std::uint8_t bits = 127;
  constexpr e8m0() = default;
  constexpr explicit e8m0(float x) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
    bits = static_cast<std::uint8_t>((u >> 23) & 0xffu);
  }
  constexpr operator float() const {  // NOLINT: exact, so implicit
    if (bits == 255) return std::numeric_limits<float>::quiet_NaN();
    if (bits == 0) return std::bit_cast<float>(0x00400000u);  // 2^-127 is subnormal in binary32
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 23);
  }
};

}  // namespace qf
