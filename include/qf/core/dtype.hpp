// Element types of tensors in memory and on disk: one table, from which names and sizes are derived.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "qf/core/half.hpp"

namespace qf {

// X(name, bits of an element, name in safetensors). Numbers are fixed by order and part of the C face: append
// only.
// clang-format off
#define QF_DTYPES(X)                                                                     \
  X(f32, 32, "F32") X(f16, 16, "F16") X(bf16, 16, "BF16") X(f64, 64, "F64")              \
  X(f8e4m3, 8, "F8_E4M3") X(f8e5m2, 8, "F8_E5M2") X(f8e8m0, 8, "F8_E8M0")                \
  X(f4e2m1, 4, "F4") X(i8, 8, "I8") X(u8, 8, "U8") X(i16, 16, "I16") X(u16, 16, "U16")   \
  X(i32, 32, "I32") X(u32, 32, "U32") X(i64, 64, "I64") X(u64, 64, "U64")                \
  X(boolean, 8, "BOOL") X(c64, 64, "C64") X(f6e2m3, 6, "F6_E2M3") X(f6e3m2, 6, "F6_E3M2") \
  X(f8e4m3fnuz, 8, "F8_E4M3FNUZ") X(f8e5m2fnuz, 8, "F8_E5M2FNUZ")
// clang-format on

enum class DType : std::uint8_t {
#define X(name, bits, text) name,
  QF_DTYPES(X)
#undef X
};

constexpr int dtype_bits(DType type) {
  switch (type) {
#define X(name, bits, text) \
  case DType::name:         \
    return bits;
    QF_DTYPES(X)
#undef X
  }
  return 0;
}

// The spelling of safetensors, used in every message and file.
constexpr std::string_view dtype_name(DType type) {
  switch (type) {
#define X(name, bits, text) \
  case DType::name:         \
    return text;
    QF_DTYPES(X)
#undef X
  }
  return "?";
}

constexpr std::optional<DType> dtype_from_name(std::string_view name) {
#define X(id, bits, text) \
  if (name == text) return DType::id;
  QF_DTYPES(X)
#undef X
  return std::nullopt;
}

// The type with which C++ code stores such an element; DTypeOf<float> is DType::f32.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::i8;
};

}  // namespace qf
