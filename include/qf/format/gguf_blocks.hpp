// The tensor types of GGUF: how many bytes a block takes and what its bits mean.
// Source: the GGUF format as ggml defines it (block_* structures); values equal the reference's, bit for bit.
// A block holds 32 or 256 neighbouring elements of a row. d, m, dmin are IEEE half floats, all little-endian.
// Nibbles are split-half: byte j holds element j in its low and element j + 16 in its high four bits.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

#include "qf/core/half.hpp"

namespace qf::gguf {

static_assert(std::endian::native == std::endian::little, "GGUF blocks are read in place");

// Numbers as files store them.
enum class Type : std::int32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq4_nl = 20,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  bf16 = 30,
  mxfp4 = 39,
};

enum class Support : std::uint8_t {
  decoded,  // to float
  sized,    // its blocks can be skipped and copied, not decoded
  named,    // only its name is known
  removed,  // was part of the format once; files with it must be made anew
};

struct TypeTraits {
  std::int32_t id;
  std::string_view name;
  std::int32_t block_elements, block_bytes;
  Support support;
};

inline constexpr std::array<TypeTraits, 43> kTypes{{
    {0, "F32", 1, 4, Support::decoded},         {1, "F16", 1, 2, Support::decoded},
    {2, "Q4_0", 32, 18, Support::decoded},      {3, "Q4_1", 32, 20, Support::decoded},
    {4, "Q4_2", 0, 0, Support::removed},        {5, "Q4_3", 0, 0, Support::removed},
    {6, "Q5_0", 32, 22, Support::decoded},      {7, "Q5_1", 32, 24, Support::decoded},
    {8, "Q8_0", 32, 34, Support::decoded},      {9, "Q8_1", 32, 40, Support::sized},
    {10, "Q2_K", 256, 84, Support::decoded},    {11, "Q3_K", 256, 110, Support::decoded},
    {12, "Q4_K", 256, 144, Support::decoded},   {13, "Q5_K", 256, 176, Support::decoded},
    {14, "Q6_K", 256, 210, Support::decoded},   {15, "Q8_K", 256, 292, Support::sized},
    {16, "IQ2_XXS", 256, 66, Support::sized},   {17, "IQ2_XS", 256, 74, Support::sized},
    {18, "IQ3_XXS", 256, 98, Support::sized},   {19, "IQ1_S", 256, 50, Support::sized},
    {20, "IQ4_NL", 32, 18, Support::decoded},   {21, "IQ3_S", 256, 110, Support::sized},
    {22, "IQ2_S", 256, 82, Support::sized},     {23, "IQ4_XS", 256, 136, Support::decoded},
    {24, "I8", 1, 1, Support::decoded},         {25, "I16", 1, 2, Support::decoded},
    {26, "I32", 1, 4, Support::decoded},        {27, "I64", 1, 8, Support::decoded},
    {28, "F64", 1, 8, Support::decoded},        {29, "IQ1_M", 256, 56, Support::sized},
    {30, "BF16", 1, 2, Support::decoded},       {31, "Q4_0_4_4", 0, 0, Support::removed},
    {32, "Q4_0_4_8", 0, 0, Support::removed},   {33, "Q4_0_8_8", 0, 0, Support::removed},
    {34, "TQ1_0", 256, 54, Support::sized},     {35, "TQ2_0", 256, 66, Support::sized},
    {36, "IQ4_NL_4_4", 0, 0, Support::removed}, {37, "IQ4_NL_4_8", 0, 0, Support::removed},
    {38, "IQ4_NL_8_8", 0, 0, Support::removed}, {39, "MXFP4", 32, 17, Support::decoded},
    {40, "NVFP4", 64, 36, Support::sized},      {41, "Q1_0", 128, 18, Support::sized},
    {42, "Q2_0", 0, 0, Support::named},
}};

// nullptr for an id that isn't known.
constexpr const TypeTraits* traits(std::int32_t id) {
  return id >= 0 && id < static_cast<std::int32_t>(kTypes.size()) ? &kTypes[static_cast<std::size_t>(id)]
                                                                  : nullptr;
}
constexpr const TypeTraits& traits(Type type) {
  return kTypes[static_cast<std::size_t>(type)];
}
constexpr std::optional<Type> type_from_name(std::string_view name) {
  for (const TypeTraits& t : kTypes)
    if (t.name == name && t.support == Support::decoded) return static_cast<Type>(t.id);
  return std::nullopt;
}

struct BlockQ4_0 {
  f16 d;
  std::uint8_t qs[16];
};
struct BlockQ4_1 {
  f16 d, m;
  std::uint8_t qs[16];
};
struct BlockQ5_0 {
  f16 d;
  std::uint8_t qh[4], qs[16];
};
struct BlockQ5_1 {
  f16 d, m;
  std::uint8_t qh[4], qs[16];
};
struct BlockQ8_0 {
  f16 d;
  std::int8_t qs[32];
};
struct BlockIQ4_NL {
  f16 d;
  std::uint8_t qs[16];
};
struct BlockMXFP4 {
  std::uint8_t e, qs[16];
};
struct BlockQ2_K {
  std::uint8_t scales[16], qs[64];  // scales: 4 bits scale, 4 bits minimum
  f16 d, dmin;
};
struct BlockQ3_K {
  std::uint8_t hmask[32], qs[64], scales[12];
  f16 d;
};
struct BlockQ4_K {
  f16 d, dmin;
  std::uint8_t scales[12], qs[128];
};
struct BlockQ5_K {
  f16 d, dmin;
  std::uint8_t scales[12], qh[32], qs[128];
};
struct BlockQ6_K {
  std::uint8_t ql[128], qh[64];
  std::int8_t scales[16];
  f16 d;
};
struct BlockIQ4_XS {
  f16 d;
  std::uint16_t scales_h;
  std::uint8_t scales_l[4], qs[128];
};
static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockIQ4_NL) == 18);
static_assert(sizeof(BlockMXFP4) == 17 && sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110);
static_assert(sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);
static_assert(sizeof(BlockIQ4_XS) == 136);

inline constexpr std::int8_t kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
// E2M1, doubled so that they are integers; the block's scale is halved instead.
inline constexpr std::int8_t kMXFP4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2^(e - 128): the scale of MXFP4 for doubled values. Code 255 is an ordinary number here, as in the
// reference.
constexpr float mxfp4_half_scale(std::uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<std::uint32_t>(e - 1) << 23);
}

namespace detail {

template <class Block>
constexpr int nibble(const Block& b, int e) {
  return e < 16 ? b.qs[e] & 15 : b.qs[e - 16] >> 4;
}
template <class Block>
constexpr int fifth_bit(const Block& b, int e) {
  return ((b.qh[e / 8] >> (e % 8)) & 1) << 4;
}
// Scale and minimum of sub-block j of Q4_K and Q5_K: 8 pairs of 6 bits in 12 bytes.
struct ScaleMin {
  int scale, min;
};
constexpr ScaleMin k_scale_min(const std::uint8_t* s, int j) {
  if (j < 4) return {s[j] & 63, s[j + 4] & 63};
  return {(s[j + 4] & 15) | ((s[j - 4] >> 6) << 4), (s[j + 4] >> 4) | ((s[j] >> 6) << 4)};
}
constexpr int q3_scale(const std::uint8_t* s, int j) {
  const int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
  return (low | (((s[8 + j % 4] >> (2 * (j / 4))) & 3) << 4)) - 32;
}

}  // namespace detail

// decode(block, out): out has as many floats as the block has elements; the caller made it.
constexpr void decode(const BlockQ4_0& b, float* out) {
  const float d = b.d;
  for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(detail::nibble(b, e) - 8);
}
constexpr void decode(const BlockQ4_1& b, float* out) {
  const float d = b.d, m = b.m;
  for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(detail::nibble(b, e)) + m;
}
constexpr void decode(const BlockQ5_0& b, float* out) {
  const float d = b.d;
  for (int e = 0; e < 32; ++e)
    out[e] = d * static_cast<float>((detail::nibble(b, e) | detail::fifth_bit(b, e)) - 16);
}
constexpr void decode(const BlockQ5_1& b, float* out) {
  const float d = b.d, m = b.m;
  for (int e = 0; e < 32; ++e)
    out[e] = d * static_cast<float>(detail::nibble(b, e) | detail::fifth_bit(b, e)) + m;
}
constexpr void decode(const BlockQ8_0& b, float* out) {
  const float d = b.d;
  for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(b.qs[e]);
}
constexpr void decode(const BlockIQ4_NL& b, float* out) {
  const float d = b.d;
  for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(kIQ4Values[detail::nibble(b, e)]);
}
constexpr void decode(const BlockMXFP4& b, float* out) {
  const float d = mxfp4_half_scale(b.e);
  for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(kMXFP4Values[detail::nibble(b, e)]);
}
constexpr void decode(const BlockQ2_K& b, float* out) {
  const float d = b.d, dmin = b.dmin;
  for (int sub = 0; sub < 16; ++sub) {  // 16 elements share a scale and a minimum
    const float scale = d * static_cast<float>(b.scales[sub] & 15);
    const float min = dmin * static_cast<float>(b.scales[sub] >> 4);
    const int half = sub / 8, shift = 2 * ((sub / 2) % 4), first = 32 * half + 16 * (sub % 2);
    for (int i = 0; i < 16; ++i)
      out[16 * sub + i] = scale * static_cast<float>((b.qs[first + i] >> shift) & 3) - min;
  }
}
constexpr void decode(const BlockQ3_K& b, float* out) {
  const float d = b.d;
  for (int sub = 0; sub < 16; ++sub) {
    const float scale = d * static_cast<float>(detail::q3_scale(b.scales, sub));
    const int half = sub / 8, s = (sub / 2) % 4, l = 16 * (sub % 2);
    for (int i = 0; i < 16; ++i) {
      const int low = (b.qs[32 * half + l + i] >> (2 * s)) & 3;
      const int high = (b.hmask[l + i] >> (4 * half + s)) & 1;
      out[16 * sub + i] = scale * static_cast<float>(low - (high ? 0 : 4));
    }
  }
}
constexpr void decode(const BlockQ4_K& b, float* out) {
  const float d = b.d, dmin = b.dmin;
  for (int sub = 0; sub < 8; ++sub) {
    const auto [sc, mn] = detail::k_scale_min(b.scales, sub);
    const float scale = d * static_cast<float>(sc), min = dmin * static_cast<float>(mn);
    for (int i = 0; i < 32; ++i)
      out[32 * sub + i] =
          scale * static_cast<float>((b.qs[32 * (sub / 2) + i] >> (4 * (sub % 2))) & 15) - min;
  }
}
constexpr void decode(const BlockQ5_K& b, float* out) {
  const float d = b.d, dmin = b.dmin;
  for (int sub = 0; sub < 8; ++sub) {
    const auto [sc, mn] = detail::k_scale_min(b.scales, sub);
    const float scale = d * static_cast<float>(sc), min = dmin * static_cast<float>(mn);
    for (int i = 0; i < 32; ++i) {
      const int low = (b.qs[32 * (sub / 2) + i] >> (4 * (sub % 2))) & 15;
      out[32 * sub + i] = scale * static_cast<float>(low | (((b.qh[i] >> sub) & 1) << 4)) - min;
    }
  }
}
constexpr void decode(const BlockQ6_K& b, float* out) {
  const float d = b.d;
  for (int sub = 0; sub < 16; ++sub) {
    const float scale = d * static_cast<float>(b.scales[sub]);
    const int half = sub / 8, s = (sub / 2) % 4, l = 16 * (sub % 2);
    for (int i = 0; i < 16; ++i) {
      const int low = (b.ql[64 * half + 32 * (s % 2) + l + i] >> (s < 2 ? 0 : 4)) & 15;
      const int high = (b.qh[32 * half + l + i] >> (2 * s)) & 3;
      out[16 * sub + i] = scale * static_cast<float>((low | (high << 4)) - 32);
    }
  }
}
constexpr void decode(const BlockIQ4_XS& b, float* out) {
  const float d = b.d;
  for (int sub = 0; sub < 8; ++sub) {
    const int low = (b.scales_l[sub / 2] >> (4 * (sub % 2))) & 15, high = (b.scales_h >> (2 * sub)) & 3;
    const float scale = d * static_cast<float>((low | (high << 4)) - 32);
    for (int i = 0; i < 32; ++i) {
      const int byte = b.qs[16 * sub + i % 16];
      out[32 * sub + i] = scale * static_cast<float>(kIQ4Values[i < 16 ? byte & 15 : byte >> 4]);
    }
  }
}

}  // namespace qf::gguf
