// Integer activations on rows16 with NEON's i8mm: usdot, and usmmla for many rows of x.
#include "qf/core/config.hpp"
#include "qf/kernel/abi.hpp"

#if QF_ARM64
#include <arm_neon.h>

QF_TARGET_BEGIN_ARM("i8mm")
namespace qf::kernel {
namespace {

struct V {
#include "kernels/cpu/int_neon.inc"
  template <int Bits>
  static constexpr int kPanelBits = 8;
  static constexpr bool kByLane = true, kPairs = true;
  static constexpr int kOffset8 = 0;

  template <int Bits>
  static I dot(I sum, I u, I x) {
    __asm__("usdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(u), "w"(x));
    return sum;
  }
  template <int Bits, int Lane>
  static I dot_lane(I sum, I u, I x) {
    __asm__("usdot %0.4s, %1.16b, %2.4b[%c3]" : "+w"(sum) : "w"(u), "w"(x), "i"(Lane));
    return sum;
  }
  static I dot_pair(I sum, I u, I x) {
    __asm__("usmmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(u), "w"(x));
    return sum;
  }
  static I fill_pair(const std::int32_t* two) {
    std::int64_t both;
    __builtin_memcpy(&both, two, 8);
    return vreinterpretq_s32_s64(vdupq_n_s64(both));
  }
  static I zip_low(I a, I b) {
    return vzip1q_s32(a, b);
  }
  static I zip_high(I a, I b) {
    return vzip2q_s32(a, b);
  }
  static I even(I a, I b) {
    return vuzp1q_s32(a, b);
  }
  static I odd(I a, I b) {
    return vuzp2q_s32(a, b);
  }
};

#include "kernels/cpu/int_rows16.inc"

}  // namespace

#define QF_ISA(kind) kind##_neon_i8mm
#include "kernels/cpu/int_functions.inc"

}  // namespace qf::kernel
QF_TARGET_END
#endif
