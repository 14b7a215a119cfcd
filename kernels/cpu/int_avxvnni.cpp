// Integer activations on rows16 with AVX-VNNI: AVX2 and a 256-bit vpdpbusd, on CPUs without AVX-512.
#include "qf/core/config.hpp"
#include "qf/kernel/abi.hpp"

#if QF_X86
#include <immintrin.h>

QF_TARGET_BEGIN("avx2,fma,f16c")
namespace qf::kernel {
namespace {

#include "kernels/cpu/x86_asm.inc"

struct V {
#include "kernels/cpu/int_ymm.inc"
  template <int P>
  struct Tile {
    static constexpr int kStreams = P == 1 ? 4 : 2;
    static constexpr int kRows = P == 1 ? 4 : 2, kBlocks = 1, kSomeRows = kRows, kSomeBlocks = 1,
                         kFewRows = 2, kFewBlocks = P == 1 ? 2 : 1;
    static constexpr int kPanelRows = 6 / P, kPanelBlocks = 2;  // 12 sums: two chains of 5 cycles and some
  };
  template <int Bits>
  static constexpr int kNarrowSteps = 0;
  // Codes in two parts need registers for both.
  template <int Bits>
  static constexpr int kMostBlocks = Bits == 3 || Bits == 5 || Bits == 6 ? 2 : 4;
  template <int Bits>
  static constexpr int kPanelBits = 8;

  template <int Bits>
  static I dot(I sum, I u, I x) {
    return dot_bytes(sum, u, x);
  }
  static I widen(I sum) {
    return sum;
  }
};

#include "kernels/cpu/int_rows16.inc"

}  // namespace

#define QF_ISA(kind) kind##_avxvnni
#include "kernels/cpu/int_functions.inc"

}  // namespace qf::kernel
QF_TARGET_END
#endif
