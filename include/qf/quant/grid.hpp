// From the range of a group of weights to its scale and zero. One promise holds for every grid made here: no
// weight inside the range lies further than half a step from the nearest code. That is why scales round up.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "qf/format/scheme.hpp"

namespace qf::quant {

// The scale and zero of one group; scale 0 means that every weight of it is 0.
struct Grid {
  float scale = 0, zero = 0;
};

// Scales smaller than this become this: code that flushes denormal floats to zero must not see a scale of 0.
inline constexpr float kSmallestScale = 0x1p-126f;

// The smallest value of `type` (f16, bf16, f32) that isn't below x, nor below kSmallestScale. Infinity when x
// is beyond the largest. Precondition: x > 0.
inline float round_scale_up(DType type, double x) {
  if (x < static_cast<double>(kSmallestScale)) x = static_cast<double>(kSmallestScale);
  float y = static_cast<float>(x);
  if (static_cast<double>(y) < x) y = std::nextafterf(y, std::numeric_limits<float>::infinity());
  const float rounded = round_to(type, y);
  if (rounded >= y) return rounded;
  if (type == DType::f16) {
    f16 next(rounded);
    ++next.bits;
    return next;
  }
  bf16 next(rounded);
  ++next.bits;
  return next;
}

// Rounds to the nearest integer, ties to even, whatever the rounding mode's library function costs; compilers
// turn it into two additions. Precondition: |x| < 2^22.
inline float round_even(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: the unit of the last place is 1 there
  return (x + kMagic) - kMagic;
}

// Zeros of ZeroKind::floating stay below this, so that rounding them to `type` shifts the grid by a quarter
// step at most.
inline float floating_zero_limit(DType type) {
  return type == DType::f16 ? 1024.0f : type == DType::bf16 ? 128.0f : 32768.0f;
}

// The grid of weights between lo and hi (finite, lo <= hi), with scale and zero already rounded to what is
// stored:
//   symmetric  scale = 2 max(|lo|, |hi|) / (levels - 1), zero = levels / 2 (for 4 bits: max|w| / 7.5, codes
//   -8 to 7) integer    the range is widened to include 0; scale = (hi - lo) / (levels - 1), zero = round(-lo
//   / scale) floating   scale = (hi - lo) / (levels - 1), zero = -lo / scale; widened as above if zero would
//   pass the limit
// Weights that are all the same become exact where scale.type can hold their value. The scale is infinite
// when it doesn't fit the type: callers refuse that.
inline Grid make_grid(const Scheme& scheme, float lo, float hi) {
  const int top = scheme.levels() - 1;
  const bool symmetric = scheme.zero == ZeroKind::symmetric;
  const float middle = scheme.symmetric_zero();
  if (lo == 0 && hi == 0) return {0, symmetric ? middle : 0};
  if (lo == hi && !(symmetric && lo > 0 && scheme.bits == 1)) {
    const float size = std::fabs(lo);
    if (size >= kSmallestScale && round_to(scheme.scale, size) == size)
      return {size, symmetric ? middle : lo > 0 ? 0.0f : 1.0f};
  }
  if (symmetric) {
    const double largest = std::fmax(std::fabs(static_cast<double>(lo)), std::fabs(static_cast<double>(hi)));
    return {round_scale_up(scheme.scale, 2 * largest / top), middle};
  }
  if (scheme.zero == ZeroKind::floating && lo != hi) {
    const float scale =
        round_scale_up(scheme.scale, (static_cast<double>(hi) - static_cast<double>(lo)) / top);
    const double zero = -static_cast<double>(lo) / static_cast<double>(scale);
    if (std::isfinite(scale) && std::fabs(zero) < static_cast<double>(floating_zero_limit(scheme.scale)))
      return {scale, round_to(scheme.scale, static_cast<float>(zero))};
  }
  const double low = lo < 0 ? lo : 0, high = hi > 0 ? hi : 0;
  const float scale = round_scale_up(scheme.scale, (high - low) / top);
  if (!std::isfinite(scale)) return {scale, 0};
  float zero = round_even(static_cast<float>(-low / static_cast<double>(scale)));
  zero = zero > static_cast<float>(top) ? static_cast<float>(top) : zero;
  return {scale, zero};
}

// Codes of `count` weights of one group. Precondition: the grid's scale is finite, the weights lie in its
// range.
inline void nearest_codes(const Scheme& scheme, Grid grid, const float* w, std::int64_t count,
                          std::uint8_t* codes) {
  const float top = static_cast<float>(scheme.levels() - 1);
  if (grid.scale == 0) {
    for (std::int64_t i = 0; i < count; ++i) codes[i] = static_cast<std::uint8_t>(grid.zero);
    return;
  }
  const bool before =
      scheme.zero == ZeroKind::floating;  // an integer zero is added after rounding: no new rounding
  const float shift = before ? grid.zero : 0, zero = before ? 0 : grid.zero;
  for (std::int64_t i = 0; i < count; ++i) {
    float q = round_even(w[i] / grid.scale + shift) + zero;
    q = q < 0 ? 0 : q;
    q = q > top ? top : q;
    codes[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(q));
  }
}

}  // namespace qf::quant
