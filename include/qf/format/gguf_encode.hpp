// Rows written as GGUF blocks: floats rounded as the reference's quantizers round them (bit for bit), and
// matrices in the canonical form re-laid without touching their codes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "qf/core/result.hpp"
#include "qf/format/gguf_blocks.hpp"
#include "qf/format/quantized_matrix.hpp"

namespace qf::gguf {

// Types that encode_row() writes.
constexpr bool can_encode(Type type) {
  return type == Type::f32 || type == Type::f16 || type == Type::bf16 || type == Type::q4_0 ||
         type == Type::q4_1 || type == Type::q8_0;
}

// Bytes of `elements` elements, a multiple of the type's block.
constexpr std::int64_t row_bytes(Type type, std::int64_t elements) {
  return elements / traits(type).block_elements * traits(type).block_bytes;
}

namespace detail {

// 0 where the division would not be finite; the stored half float is 0 there, so the codes don't matter.
inline float inverse(float d) {
  const float inverted = d == 0 ? 0.f : 1.f / d;
  return std::isfinite(inverted) ? inverted : 0.f;
}
inline std::uint8_t code4(float x) {
  return static_cast<std::uint8_t>(std::clamp(static_cast<int>(x), 0, 15));
}

// The codes come from the scale as float, not from what the half float rounds it to: so do the reference's.
inline BlockQ4_0 encode_q4_0(const float* x) {
  float extreme = x[0];  // the sign of a zero counts, too
  for (int e = 0; e < 32; ++e)
    if (std::abs(x[e]) > std::abs(extreme)) extreme = x[e];
  const float d = extreme / -8.f, inverted = inverse(d);
  BlockQ4_0 b;
  b.d = f16(d);
  for (int e = 0; e < 16; ++e)
    b.qs[e] =
        static_cast<std::uint8_t>(code4(x[e] * inverted + 8.5f) | code4(x[e + 16] * inverted + 8.5f) << 4);
  return b;
}
inline BlockQ4_1 encode_q4_1(const float* x) {
  float low = x[0], high = x[0];
  for (int e = 1; e < 32; ++e) low = x[e] < low ? x[e] : low, high = x[e] > high ? x[e] : high;
  const float d = (high - low) / 15.f, inverted = inverse(d);
  BlockQ4_1 b;
  b.d = f16(d), b.m = f16(low);
  for (int e = 0; e < 16; ++e)
    b.qs[e] = static_cast<std::uint8_t>(code4((x[e] - low) * inverted + 0.5f) |
                                        code4((x[e + 16] - low) * inverted + 0.5f) << 4);
  return b;
}
inline BlockQ8_0 encode_q8_0(const float* x) {
  float most = 0;
  for (int e = 0; e < 32; ++e) most = std::abs(x[e]) > most ? std::abs(x[e]) : most;
  const float d = most / 127.f, inverted = inverse(d);
  BlockQ8_0 b;
  b.d = f16(d);
  for (int e = 0; e < 32; ++e) b.qs[e] = static_cast<std::int8_t>(std::round(x[e] * inverted));
  return b;
}
template <class Block, class Encode>
Status encode_blocks(std::span<const float> row, std::byte* out, Encode encode) {
  for (std::size_t i = 0; i < row.size(); i += 32) {
    const Block b = encode(row.data() + i);
    bool fits = std::isfinite(static_cast<float>(b.d));
    if constexpr (requires { b.m; }) fits = fits && std::isfinite(static_cast<float>(b.m));
    if (!fits)
      return Status(Errc::invalid_argument,
                    cat({"elements ", num(i), " to ", num(i + 31), ": too large for a scale of type F16"}));
    std::memcpy(out + i / 32 * sizeof b, &b, sizeof b);
  }
  return {};
}

}  // namespace detail

// Writes row_bytes(type, row.size()) bytes to `out`, which the caller made. row.size() must be a multiple of
// the type's block. Errors: a NaN or infinity (F32, F16 and BF16 keep those), a value that the type's half
// floats can't hold, a type that isn't written.
inline Status encode_row(Type type, std::span<const float> row, std::byte* out) {
  if (!can_encode(type))
    return Status(Errc::unsupported,
                  cat({"writing type ", traits(type).name, ", expected F32, F16, BF16, Q4_0, Q4_1 or Q8_0"}));
  const auto block = static_cast<std::size_t>(traits(type).block_elements);
  if (row.size() % block)
    return Status(Errc::invalid_argument,
                  cat({"a row of ", num(row.size()), " elements, expected a multiple of ", num(block),
                       " for ", traits(type).name}));
  if (type == Type::f32) {
    if (!row.empty()) std::memcpy(out, row.data(), row.size_bytes());
    return {};
  }
  if (type == Type::f16 || type == Type::bf16) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::uint16_t bits = type == Type::f16 ? f16(row[i]).bits : bf16(row[i]).bits;
      if (type == Type::f16 && (bits & 0x7fff) == 0x7c00 && std::isfinite(row[i]))
        return Status(Errc::invalid_argument,
                      cat({"element ", num(i), " is beyond 65504, too large for F16"}));
      std::memcpy(out + 2 * i, &bits, 2);
    }
    return {};
  }
  for (std::size_t i = 0; i < row.size(); ++i)
    if (!std::isfinite(row[i]))
      return Status(Errc::invalid_argument,
                    cat({"element ", num(i), " is ", std::isnan(row[i]) ? "NaN" : "infinite", ", which ",
                         traits(type).name, " can't hold"}));
  if (type == Type::q4_0) return detail::encode_blocks<BlockQ4_0>(row, out, detail::encode_q4_0);
  if (type == Type::q4_1) return detail::encode_blocks<BlockQ4_1>(row, out, detail::encode_q4_1);
  return detail::encode_blocks<BlockQ8_0>(row, out, detail::encode_q8_0);
}

// The block type that holds matrices of this scheme with `k` columns without any rounding, if there is one:
// symmetric groups of 32, 4 bits (Q4_0) or 8 bits (Q8_0: -128 included, the format holds it), scales of F16.
inline std::optional<Type> exact_type(const QuantizedMatrix& w) {
  const Scheme& s = w.scheme();
  if (w.k() % 32 || s.group_size(w.k()) != 32 || !w.group_of().empty()) return std::nullopt;
  if (s.codebook != CodebookKind::none || s.zero != ZeroKind::symmetric || s.scale != DType::f16)
    return std::nullopt;
  if (s.bits == 4) return Type::q4_0;
  if (s.bits == 8) return Type::q8_0;
  return std::nullopt;
}

// Re-lays row `row` of a low-bit matrix as blocks of `type`; codes stay as they are. `out` has
// row_bytes(type, k) bytes. Q4_0 and Q8_0 take what exact_type() names. Q4_1 takes 4-bit groups of 32 with
// integer or floating zeros: its minimum, -zero * scale, is rounded to F16 once; `max_error` (may be null)
// grows to the largest |change| of a minimum. Errors: the scheme doesn't fit the type.
inline Status encode_quantized_row(const QuantizedMatrix& w, std::int64_t row, Type type, std::byte* out,
                                   float* max_error = nullptr) {
  const Scheme& s = w.scheme();
  const bool asymmetric = type == Type::q4_1 && s.bits == 4 && s.zero != ZeroKind::symmetric &&
                          s.codebook == CodebookKind::none && s.scale == DType::f16 && w.k() % 32 == 0 &&
                          s.group_size(w.k()) == 32 && w.group_of().empty();
  if (!asymmetric && exact_type(w) != type)
    return Status(Errc::unsupported,
                  cat({"a matrix of scheme ", scheme_name(s), " doesn't map to ", traits(type).name}));
  const std::uint8_t* codes = w.codes().row(row);
  for (std::int64_t g = 0; g < w.groups(); ++g, codes += 32) {
    const float scale = w.scales()(row, g);
    if (type == Type::q8_0) {
      BlockQ8_0 b;
      b.d = f16(scale);
      for (int e = 0; e < 32; ++e) b.qs[e] = static_cast<std::int8_t>(codes[e] - 128);
      std::memcpy(out + g * 34, &b, sizeof b);
      continue;
    }
    std::uint8_t qs[16];
    for (int e = 0; e < 16; ++e) qs[e] = static_cast<std::uint8_t>(codes[e] | codes[e + 16] << 4);
    if (type == Type::q4_0) {
      BlockQ4_0 b;
      b.d = f16(scale);
      std::memcpy(b.qs, qs, sizeof qs);
      std::memcpy(out + g * 18, &b, sizeof b);
    } else {
      const float minimum = -w.zero(row, g) * scale;
      BlockQ4_1 b;
      b.d = f16(scale), b.m = f16(minimum);
      if (!std::isfinite(static_cast<float>(b.m)))
        return Status(Errc::invalid_argument,
                      cat({"row ", num(row), ", group ", num(g), ": the minimum is too large for F16"}));
      if (max_error) *max_error = std::max(*max_error, std::abs(static_cast<float>(b.m) - minimum));
      std::memcpy(b.qs, qs, sizeof qs);
      std::memcpy(out + g * 20, &b, sizeof b);
    }
  }
  return {};
}

// The other way: fills row `row` of `w` from blocks of Q4_0 or Q8_0; w's scheme must be what exact_type()
// maps to `type`. Errors: the scheme doesn't fit.
inline Status decode_quantized_row(Type type, const std::byte* blocks, QuantizedMatrix& w, std::int64_t row) {
  if (exact_type(w) != type)
    return Status(Errc::unsupported, cat({"blocks of ", traits(type).name,
                                          " don't map to a matrix of scheme ", scheme_name(w.scheme())}));
  std::uint8_t* codes = w.codes().row(row);
  for (std::int64_t g = 0; g < w.groups(); ++g, codes += 32) {
    if (type == Type::q8_0) {
      BlockQ8_0 b;
      std::memcpy(&b, blocks + g * 34, sizeof b);
      w.scales()(row, g) = b.d;
      for (int e = 0; e < 32; ++e) codes[e] = static_cast<std::uint8_t>(b.qs[e] + 128);
    } else {
      BlockQ4_0 b;
      std::memcpy(&b, blocks + g * 18, sizeof b);
      w.scales()(row, g) = b.d;
      for (int e = 0; e < 32; ++e) codes[e] = static_cast<std::uint8_t>(detail::nibble(b, e));
    }
  }
  return {};
}

}  // namespace qf::gguf
