// f32 activations on rows16 with NEON (AArch64): 4 rows of weights a vector, four vectors a block.
#include "qf/core/config.hpp"
#include "qf/kernel/abi.hpp"

#if QF_ARM64
#include <arm_neon.h>

namespace qf::kernel {
namespace {

struct V {
  using F = float32x4_t;
  using I = uint32x4_t;
  static constexpr int kLanes = 4;
  static constexpr int kTileRows = 6;            // 24 sums, 4 vectors of weights, 1 of x: 29 of 32 registers
  static constexpr int kStreams = 2, kSums = 2;  // 16 sums of gemv
  static constexpr bool kInPlace = false;

  static F load(const float* p) { return vld1q_f32(p); }
  static I load_codes(const std::byte* p) { return vld1q_u32(reinterpret_cast<const std::uint32_t*>(p)); }
  static F load_f16(const std::uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static void store(float* p, F v) { vst1q_f32(p, v); }
  static F load_part(const float* p, std::int64_t count) {
    float lanes[kLanes] = {};
    for (std::int64_t i = 0; i < count; ++i) lanes[i] = p[i];
    return vld1q_f32(lanes);
  }
  static void store_part(float* p, std::int64_t count, F v) {
    float lanes[kLanes];
    vst1q_f32(lanes, v);
    for (std::int64_t i = 0; i < count; ++i) p[i] = lanes[i];
  }
  static F broadcast(float x) { return vdupq_n_f32(x); }
  static F add(F a, F b) { return vaddq_f32(a, b); }
  static F sub(F a, F b) { return vsubq_f32(a, b); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  // The conversion from fixed point shifts by itself.
  template <int Shift>
  static F byte(I v) {
    v = vandq_u32(v, vdupq_n_u32(255u << Shift));
    if constexpr (Shift == 0)
      return vcvtq_f32_u32(v);
    else
      return vcvtq_n_f32_u32(v, Shift);
  }
  template <int Shift>
  static F masked(I v) {
    return vcvtq_f32_u32(vandq_u32(v, vdupq_n_u32(255u << Shift)));
  }
  template <int Shift>
  static I index(I v) {
    if constexpr (Shift > 0) v = vshrq_n_u32(v, Shift);
    return vandq_u32(v, vdupq_n_u32(255));
  }
  using Table = uint8x16x4_t;
  static Table table(const float* p) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(p);
    return {{vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)}};
  }
  // Four bytes an entry: 4 i, 4 i + 1, 4 i + 2, 4 i + 3.
  template <int Shift>
  static F look_up(const Table& t, I v) {
    const I bytes = vmlaq_n_u32(vdupq_n_u32(0x03020100), index<Shift>(v), 0x04040404);
    return vreinterpretq_f32_u8(vqtbl4q_u8(t, vreinterpretq_u8_u32(bytes)));
  }
  template <int Entries>
  static F gather(const float* p, I i) {
    const float lanes[kLanes] = {p[vgetq_lane_u32(i, 0)], p[Entries + vgetq_lane_u32(i, 1)],
                                 p[2 * Entries + vgetq_lane_u32(i, 2)],
                                 p[3 * Entries + vgetq_lane_u32(i, 3)]};
    return vld1q_f32(lanes);
  }
  template <int Shift, int Mask>
  static I bits(I v) {
    if constexpr (Shift > 0) v = vshrq_n_u32(v, Shift);
    if constexpr (Shift < 0) v = vshlq_n_u32(v, -Shift);
    return vandq_u32(v, vdupq_n_u32(static_cast<std::uint32_t>(Mask)));
  }
  static F as_float(I v) { return vreinterpretq_f32_u32(v); }
  template <int Shift, int Mask>
  static I field(I v) {
    uint8x16_t bytes = vreinterpretq_u8_u32(v);
    if constexpr (Shift > 0) bytes = vshrq_n_u8(bytes, Shift);
    if constexpr (Shift < 0) bytes = vshlq_n_u8(bytes, -Shift);
    return vreinterpretq_u32_u8(vandq_u8(bytes, vdupq_n_u8(Mask)));
  }
  static I merge(I a, I b) { return vorrq_u32(a, b); }
  static void prefetch(const void* p) {
    __asm__ volatile("prfm pldl1keep, %0" : : "Q"(*static_cast<const char*>(p)));
  }
};

#include "kernels/cpu/f32_rows16.inc"

}  // namespace

extern const KernelFunctions gemv_f32_neon, gemm_f32_neon;
const KernelFunctions gemv_f32_neon{gemv, gemv_scratch};
const KernelFunctions gemm_f32_neon{gemm, gemm_scratch};

}  // namespace qf::kernel
#endif
