// Integer activations on rows16 for any CPU: vectors of 4 in the compiler's own vector extension. The reference that the
// integer kernels of all instruction sets equal bit for bit, so its multiply-add has one rounding too.
#include "qf/core/config.hpp"
#include "qf/core/half.hpp"
#include "qf/kernel/abi.hpp"

namespace qf::kernel {
namespace {

struct V {
  using F = float __attribute__((vector_size(16)));
  using I = std::int32_t __attribute__((vector_size(16)));
  using Unsigned = std::uint32_t __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  template <int P>
  struct Tile {
    static constexpr int kStreams = 1;
    static constexpr int kRows = 2, kBlocks = 1, kSomeRows = 2, kSomeBlocks = 1, kFewRows = 1, kFewBlocks = 2,
                         kPanelRows = kRows, kPanelBlocks = 2;
  };
  static constexpr bool kByLane = false, kPairs = false;
  static constexpr int kOffset8 = 0;
  template <int Bits>
  static constexpr int kNarrowSteps = 0;
  template <int Bits>
  static constexpr int kMostBlocks = 4;
  template <int Bits>
  static constexpr int kPanelBits = 8;

  template <class Vector>
  static Vector load_as(const void* p) {
    Vector v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  template <class Op>
  static F each(Op op) {
    F v{};
    for (int i = 0; i < kLanes; ++i) v[i] = op(i);
    return v;
  }
  static F load(const float* p) { return load_as<F>(p); }
  static F load_params(const std::byte* p, bool wide, int v) {
    if (wide) return load_as<F>(p + v * static_cast<int>(sizeof(F)));
    return each([&](int i) {
      f16 half;
      __builtin_memcpy(&half.bits, p + 2 * (v * kLanes + i), 2);
      return static_cast<float>(half);
    });
  }
  static I load_codes(const std::byte* p) { return load_as<I>(p); }
  static void store_codes(std::byte* p, I v) { __builtin_memcpy(p, &v, sizeof v); }
  static void store(float* p, F v) { __builtin_memcpy(p, &v, sizeof v); }
  static F load_part(const float* p, std::int64_t count) {
    return each([&](int i) { return i < count ? p[i] : 0.0f; });
  }
  static void store_part(float* p, std::int64_t count, F v) {
    for (std::int64_t i = 0; i < count; ++i) p[i] = v[i];
  }
  static void store_bytes(std::int8_t* p, I v) {
    for (int i = 0; i < kLanes; ++i) p[i] = static_cast<std::int8_t>(v[i]);
  }
  static F broadcast(float x) { return F{x, x, x, x}; }
  static I fill(std::int32_t x) { return I{x, x, x, x}; }
  static I words(const std::int8_t* p) {
    std::int32_t word;
    __builtin_memcpy(&word, p, 4);
    return fill(word);
  }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F fma(F a, F b, F c) {
    return each([&](int i) { return __builtin_fmaf(a[i], b[i], c[i]); });
  }
  static F abs(F v) {
    return each([&](int i) { return __builtin_fabsf(v[i]); });
  }
  static F max(F a, F b) {
    return each([&](int i) { return a[i] > b[i] ? a[i] : b[i]; });
  }
  static F to_float(I v) { return __builtin_convertvector(v, F); }
  // Beyond 2^31 and for NaN, what the vector instructions give; the chain's scale is NaN then.
  static I to_words(F v) {
    I words{};
    for (int i = 0; i < kLanes; ++i)
      words[i] = v[i] >= -2147483648.0f && v[i] < 2147483648.0f
                     ? static_cast<std::int32_t>(__builtin_rintf(v[i]))
                     : INT32_MIN;
    return words;
  }
  static I add_words(I a, I b) {
    return reinterpret_cast<I>(reinterpret_cast<Unsigned>(a) + reinterpret_cast<Unsigned>(b));
  }
  static I sub_words(I a, I b) {
    return reinterpret_cast<I>(reinterpret_cast<Unsigned>(a) - reinterpret_cast<Unsigned>(b));
  }
  static I low_byte(I v) { return reinterpret_cast<I>(reinterpret_cast<Unsigned>(v) << 24) >> 24; }
  static I shift_8(I v) { return v >> 8; }
  template <int Shift, int Mask>
  static I field(I v) {
    if constexpr (Shift > 0) v >>= Shift;
    if constexpr (Shift < 0) v <<= -Shift;
    return v & 0x01010101 * Mask;
  }
  static I look_up(const std::uint8_t* table, I codes) {
    std::uint8_t bytes[sizeof codes];
    __builtin_memcpy(bytes, &codes, sizeof codes);
    for (std::uint8_t& byte : bytes) byte = table[byte];
    return load_as<I>(bytes);
  }
  static I merge(I a, I b) { return a | b; }
  template <int Bits>
  static I dot(I sum, I u, I x) {
    const auto bits = reinterpret_cast<Unsigned>(x);
    sum += (u & 255) * (reinterpret_cast<I>(bits << 24) >> 24);
    sum += (u >> 8 & 255) * (reinterpret_cast<I>(bits << 16) >> 24);
    sum += (u >> 16 & 255) * (reinterpret_cast<I>(bits << 8) >> 24);
    return sum + (u >> 24 & 255) * (x >> 24);
  }
  static I widen(I sum) { return sum; }
  static void prefetch(const void*) {}
  static void prefetch_far(const void*) {}
};

#include "kernels/cpu/int_rows16.inc"

}  // namespace

#define QF_ISA(kind) kind##_scalar
#include "kernels/cpu/int_functions.inc"

}  // namespace qf::kernel
