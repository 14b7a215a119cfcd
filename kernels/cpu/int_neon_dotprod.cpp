// Integer activations on rows16 with NEON's sdot: 4 rows of weights a vector, four vectors a block.
#include "qf/core/config.hpp"
#include "qf/kernel/abi.hpp"

#if QF_ARM64
#include <arm_neon.h>

QF_TARGET_BEGIN_ARM("dotprod")
namespace qf::kernel {
namespace {

struct V {
#include "kernels/cpu/int_neon.inc"
  template <int Bits>
  static constexpr int kPanelBits = Bits < 8 ? 4 : 8;
  static constexpr bool kByLane = true, kPairs = false;
  static constexpr int kOffset8 = 128;  // sdot takes signed bytes

  template <int Bits>
  static I dot(I sum, I u, I x) {
    const I codes = Bits == 8 ? make_signed(u) : u;
    __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(codes), "w"(x));
    return sum;
  }
  template <int Bits, int Lane>
  static I dot_lane(I sum, I u, I x) {
    const I codes = Bits == 8 ? make_signed(u) : u;
    __asm__("sdot %0.4s, %1.16b, %2.4b[%c3]" : "+w"(sum) : "w"(codes), "w"(x), "i"(Lane));
    return sum;
  }
};

#include "kernels/cpu/int_rows16.inc"

}  // namespace

#define QF_ISA(kind) kind##_neon_dotprod
#include "kernels/cpu/int_functions.inc"

}  // namespace qf::kernel
QF_TARGET_END
#endif
