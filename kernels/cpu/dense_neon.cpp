// Float layers with NEON (AArch64): four vectors a panel.
#include "kernels/cpu/dense_ops.hpp"

#if QF_ARM64
#include <arm_neon.h>

namespace qf::kernel::detail {
namespace {

struct V {
  using F = float32x4_t;
  static constexpr int kLanes = 4, kSums = 24, kBlock = 4;

  static F load(const float* p) { return vld1q_f32(p); }
  static F load(const f16* p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(p))));
  }
  static F load(const bf16* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(p)), 16));
  }
  template <class W>
  static F load_part(const W* p, int count) {
    W lanes[kLanes] = {};
    for (int i = 0; i < count; ++i) lanes[i] = p[i];
    return load(lanes);
  }
  static void store(float* p, F v) { vst1q_f32(p, v); }
  static void store(f16* p, F v) {
    vst1_u16(reinterpret_cast<std::uint16_t*>(p), vreinterpret_u16_f16(vcvt_f16_f32(v)));
  }
  static void store_part(float* p, int count, F v) {
    float lanes[kLanes];
    vst1q_f32(lanes, v);
    for (int i = 0; i < count; ++i) p[i] = lanes[i];
  }
  static F broadcast(float x) { return vdupq_n_f32(x); }
  static F add(F a, F b) { return vaddq_f32(a, b); }
  static F sub(F a, F b) { return vsubq_f32(a, b); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F div(F a, F b) { return vdivq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static F max(F a, F b) { return vmaxq_f32(a, b); }
  static F round(F x) { return vrndnq_f32(x); }
  static F exp2i(F n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23));
  }
  static F below(F x, float limit, F a, F b) { return vbslq_f32(vcltq_f32(x, vdupq_n_f32(limit)), a, b); }
  static F above(F x, float limit, F a, F b) { return vbslq_f32(vcgtq_f32(x, vdupq_n_f32(limit)), a, b); }
  template <class W>
  static void transpose(const W* const* rows, std::int64_t at, float* out) {
    const F r0 = load(rows[0] + at), r1 = load(rows[1] + at), r2 = load(rows[2] + at),
            r3 = load(rows[3] + at);
    const F a = vtrn1q_f32(r0, r1), b = vtrn2q_f32(r0, r1), c = vtrn1q_f32(r2, r3), d = vtrn2q_f32(r2, r3);
    const auto wide = [](F v) { return vreinterpretq_f64_f32(v); };
    vst1q_f32(out, vreinterpretq_f32_f64(vtrn1q_f64(wide(a), wide(c))));
    vst1q_f32(out + kPanel, vreinterpretq_f32_f64(vtrn1q_f64(wide(b), wide(d))));
    vst1q_f32(out + 2 * kPanel, vreinterpretq_f32_f64(vtrn2q_f64(wide(a), wide(c))));
    vst1q_f32(out + 3 * kPanel, vreinterpretq_f32_f64(vtrn2q_f64(wide(b), wide(d))));
  }
  static void prefetch(const void* p) {
    __asm__ volatile("prfm pldl1keep, %0" : : "Q"(*static_cast<const char*>(p)));
  }
  static void prefetch_later(const void* p) {
    __asm__ volatile("prfm pldl2keep, %0" : : "Q"(*static_cast<const char*>(p)));
  }
};

#include "kernels/cpu/dense.inc"

}  // namespace

constinit const DenseOps kDenseNeon = QF_DENSE_OPS("neon");

}  // namespace qf::kernel::detail
#endif
