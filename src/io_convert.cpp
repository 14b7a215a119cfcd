#include "qf/io/convert.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <limits>

namespace qf::io {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian and read as they lie");

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <class T>
void decode_number(const std::byte* p, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(load<T>(p + i * sizeof(T)));
}

void decode_bf16(const std::byte* p, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(p + 2 * i)) << 16);
}

// The same values as f16's own conversion, without branches, so that compilers vectorise it.
void decode_f16(const std::byte* p, std::span<float> out) {
  constexpr std::uint32_t kRebias = 112u << 23;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint32_t half = load<std::uint16_t>(p + 2 * i), moved = (half & 0x7fffu) << 13;
    const std::uint32_t exponent = moved & 0x0f800000u, normal = moved + kRebias;
    const float subnormal = std::bit_cast<float>(normal + (1u << 23)) - std::bit_cast<float>(113u << 23);
    std::uint32_t bits = exponent == 0 ? std::bit_cast<std::uint32_t>(subnormal) : normal;
    bits = exponent == 0x0f800000u ? normal + kRebias : bits;
    out[i] = std::bit_cast<float>(bits | (half & 0x8000u) << 16);
  }
}

// "FNUZ" of AMD: exponent bias one higher than OCP's, no infinities, no negative zero; 0x80 is the NaN.
template <int MAN>
constexpr float fnuz(unsigned code) {
  if (code == 0x80) return std::numeric_limits<float>::quiet_NaN();
  constexpr int kBias = 1 << (7 - MAN - 1);
  const unsigned mantissa = code & ((1u << MAN) - 1), exponent = (code & 0x7fu) >> MAN;
  const float lead = static_cast<float>(mantissa + (exponent ? 1u << MAN : 0u));
  const unsigned power = 127 + (exponent ? exponent : 1) - kBias - MAN;
  const float value = lead * std::bit_cast<float>(static_cast<std::uint32_t>(power) << 23);
  return code & 0x80 ? -value : value;
}

template <class Small>
constexpr float small_value(unsigned code) {
  Small s;
  s.bits = static_cast<std::uint8_t>(code);
  return s;
}

template <float (*Value)(unsigned)>
void decode_byte(const std::byte* p, std::span<float> out) {
  static constexpr auto kTable = [] {
    std::array<float, 256> table{};
    for (unsigned code = 0; code < 256; ++code) table[code] = Value(code);
    return table;
  }();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = kTable[std::to_integer<unsigned>(p[i])];
}

void decode_f4(const std::byte* stored, std::uint64_t first, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t at = first + i;
    const unsigned pair = std::to_integer<unsigned>(stored[at / 2]);
    out[i] = small_value<f4e2m1>(at % 2 ? pair >> 4 : pair & 15);
  }
}

template <class T>
void encode_as(std::span<const float> in, std::byte* p) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    const T value(in[i]);
    std::memcpy(p + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

Result<std::uint64_t> stored_bytes(DType type, std::uint64_t count) {
  std::uint64_t bits = 0;
  if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(dtype_bits(type)), &bits))
    return Status(Errc::bad_format,
                  cat({num(count), " elements of ", dtype_name(type), " overflow 64 bits"}));
  if (bits % 8)
    return Status(Errc::bad_format,
                  cat({num(count), " elements of ", dtype_name(type), " don't fill whole bytes"}));
  return bits / 8;
}

Status decode_f32(DType type, std::span<const std::byte> stored, std::uint64_t first, std::span<float> out) {
  const auto bits = static_cast<unsigned>(dtype_bits(type));
  const std::uint64_t held = std::uint64_t{stored.size()} * 8 / bits;
  if (first > held || out.size() > held - first)
    return Status(Errc::invalid_argument, cat({"elements ", num(first), " to ", num(first + out.size()),
                                               " asked for, the tensor has ", num(held)}));
  if (out.empty()) return {};
  const std::byte* p = stored.data() + first * bits / 8;
  switch (type) {
    case DType::f32:
      std::memcpy(out.data(), p, out.size_bytes());
      return {};
    case DType::f16:
      return decode_f16(p, out), Status();
    case DType::bf16:
      return decode_bf16(p, out), Status();
    case DType::f64:
      return decode_number<double>(p, out), Status();
    case DType::f8e4m3:
      return decode_byte<small_value<f8e4m3>>(p, out), Status();
    case DType::f8e5m2:
      return decode_byte<small_value<f8e5m2>>(p, out), Status();
    case DType::f8e8m0:
      return decode_byte<small_value<e8m0>>(p, out), Status();
    case DType::f8e4m3fnuz:
      return decode_byte<fnuz<3>>(p, out), Status();
    case DType::f8e5m2fnuz:
      return decode_byte<fnuz<2>>(p, out), Status();
    case DType::f4e2m1:
      return decode_f4(stored.data(), first, out), Status();
    case DType::i8:
      return decode_number<std::int8_t>(p, out), Status();
    case DType::u8:
      return decode_number<std::uint8_t>(p, out), Status();
    case DType::boolean:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = p[i] == std::byte{0} ? 0.0f : 1.0f;
      return {};
    case DType::i16:
      return decode_number<std::int16_t>(p, out), Status();
    case DType::u16:
      return decode_number<std::uint16_t>(p, out), Status();
    case DType::i32:
      return decode_number<std::int32_t>(p, out), Status();
    case DType::u32:
      return decode_number<std::uint32_t>(p, out), Status();
    case DType::i64:
      return decode_number<std::int64_t>(p, out), Status();
    case DType::u64:
      return decode_number<std::uint64_t>(p, out), Status();
    case DType::c64:
    case DType::f6e2m3:
    case DType::f6e3m2:
      break;
  }
  return Status(Errc::unsupported, cat({"elements of type ", dtype_name(type), " can't be read as floats"}));
}

Status encode_f32(DType type, std::span<const float> in, std::span<std::byte> stored) {
  QF_TRY_ASSIGN(const std::uint64_t bytes, stored_bytes(type, in.size()));
  if (stored.size() != bytes)
    return Status(Errc::invalid_argument, cat({num(stored.size()), " bytes for ", num(in.size()),
                                               " elements of ", dtype_name(type)}));
  if (in.empty()) return {};
  switch (type) {
    case DType::f32:
      std::memcpy(stored.data(), in.data(), in.size_bytes());
      return {};
    case DType::f16:
      return encode_as<f16>(in, stored.data()), Status();
    case DType::bf16:
      return encode_as<bf16>(in, stored.data()), Status();
    case DType::f8e4m3:
      return encode_as<f8e4m3>(in, stored.data()), Status();
    case DType::f8e5m2:
      return encode_as<f8e5m2>(in, stored.data()), Status();
    default:
      return Status(Errc::unsupported, cat({"floats can't be written as ", dtype_name(type)}));
  }
}

}  // namespace qf::io
