// Integer activations on rows16 with NEON of the base architecture, which multiplies bytes one by one: smull, then two
// additions of neighbours.
#include "qf/core/config.hpp"
#include "qf/kernel/abi.hpp"

#if QF_ARM64
#include <arm_neon.h>

namespace qf::kernel {
namespace {

struct V {
#include "kernels/cpu/int_neon.inc"
  template <int Bits>
  static constexpr int kPanelBits = Bits < 8 ? 4 : 8;
  static constexpr bool kByLane = false, kPairs = false;
  static constexpr int kOffset8 = 128;

  // Products of 7 bits fit 16 bits two by two, those of 8 bits don't.
  template <int Bits>
  static I dot(I sum, I u, I x) {
    const int8x16_t codes = vreinterpretq_s8_s32(Bits == 8 ? make_signed(u) : u),
                    bytes = vreinterpretq_s8_s32(x);
    const int16x8_t low = vmull_s8(vget_low_s8(codes), vget_low_s8(bytes)),
                    high = vmull_high_s8(codes, bytes);
    if constexpr (Bits < 8)
      return vpadalq_s16(sum, vpaddq_s16(low, high));
    else
      return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
  }
};

#include "kernels/cpu/int_rows16.inc"

}  // namespace

#define QF_ISA(kind) kind##_neon
#include "kernels/cpu/int_functions.inc"

}  // namespace qf::kernel
#endif
