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
  static constexpr int kTileRows = 6;  // 24 sums, 4 vectors of weights, 1 of x: 29 of 32 registers
  static constexpr int kStreams = 2;   // 16 sums, 8 vectors of codes
  static constexpr bool kScaled = false;

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
  template <int Bits, int Shift>
  static F code(I v) {
    constexpr std::uint32_t kMask = ((1u << Bits) - 1) << Shift;
    if constexpr (Shift == 0)
      return vcvtq_f32_u32(vandq_u32(v, vdupq_n_u32(kMask)));
    else
      return vcvtq_n_f32_u32(vandq_u32(v, vdupq_n_u32(kMask)), Shift);
  }
  template <int Shift>
  static F scaled_code(I v) {
    return code<4, Shift>(v);
  }
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
