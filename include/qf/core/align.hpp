// Sizes and offsets rounded up to whole steps.
#pragma once

#include <concepts>
#include <type_traits>

namespace qf {

// The least multiple of `step` that is `value` or more. Both at least 0, step at least 1; the result has to fit T.
template <std::integral T>
constexpr T round_up(T value, std::type_identity_t<T> step) {
  return (value + step - 1) / step * step;
}

// To kBufferAlignment (core/buffer.hpp), at which every part of a packed buffer begins.
template <std::integral T>
constexpr T align64(T bytes) {
  return round_up(bytes, 64);
}

}  // namespace qf
