// f32 activations on rows16 for any CPU: vectors of 4 in the compiler's own vector extension, which it turns
// into the base instruction set (SSE2, or none at all).
#include "qf/core/config.hpp"
#include "qf/core/half.hpp"
#include "qf/kernel/abi.hpp"

namespace qf::kernel {
namespace {

struct V {
  using F = float __attribute__((vector_size(16)));
  using I = std::uint32_t __attribute__((vector_size(16)));
  using Signed = std::int32_t __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  static constexpr int kTileRows = 2;
  static constexpr int kStreams = 1, kSums = 2;  // 8 sums of gemv
  static constexpr bool kInPlace = true;

  static F load(const float* p) {
    F v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static I load_codes(const std::byte* p) {
    I v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static F load_f16(const std::uint16_t* p) {
    F v{};
    for (int i = 0; i < kLanes; ++i) {
      f16 half;
      half.bits = p[i];
      v[i] = half;
    }
    return v;
  }
  static void store(float* p, F v) { __builtin_memcpy(p, &v, sizeof v); }
  static F load_part(const float* p, std::int64_t count) {
    F v{};
    for (std::int64_t i = 0; i < count; ++i) v[i] = p[i];
    return v;
  }
  static void store_part(float* p, std::int64_t count, F v) {
    for (std::int64_t i = 0; i < count; ++i) p[i] = v[i];
  }
  static F broadcast(float x) { return F{x, x, x, x}; }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F fma(F a, F b, F c) { return a * b + c; }  // two roundings
  template <int Shift>
  static F byte(I v) {
    return __builtin_convertvector(reinterpret_cast<Signed>(v >> Shift & 255u), F);
  }
  template <int Shift>
  static F masked(I v) {
    return __builtin_convertvector(reinterpret_cast<Signed>(v & 255u << Shift), F);
  }
  template <int Shift>
  static I index(I v) {
    return v >> Shift & 255u;
  }
  using Table = const float*;
  static Table table(const float* p) { return p; }
  template <int Shift>
  static F look_up(Table t, I v) {
    return gather<0>(t, index<Shift>(v));
  }
  template <int Entries>
  static F gather(const float* p, I i) {
    return F{p[i[0]], p[Entries + i[1]], p[2 * Entries + i[2]], p[3 * Entries + i[3]]};
  }
  template <int Shift, int Mask>
  static I bits(I v) {
    if constexpr (Shift > 0) v >>= Shift;
    if constexpr (Shift < 0) v <<= -Shift;
    return v & static_cast<std::uint32_t>(Mask);
  }
  static F as_float(I v) { return reinterpret_cast<F>(v); }
  template <int Shift, int Mask>
  static I field(I v) {
    constexpr std::uint32_t kMask = 0x01010101u * Mask;
    if constexpr (Shift > 0) v >>= Shift;
    if constexpr (Shift < 0) v <<= -Shift;
    return v & kMask;
  }
  static I merge(I a, I b) { return a | b; }
  static void prefetch(const void*) {}
};

#include "kernels/cpu/f32_rows16.inc"

}  // namespace

extern const KernelFunctions gemv_f32_scalar, gemm_f32_scalar;
const KernelFunctions gemv_f32_scalar{gemv, gemv_scratch};
const KernelFunctions gemm_f32_scalar{gemm, gemm_scratch};

}  // namespace qf::kernel
