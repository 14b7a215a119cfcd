// Integer activations on rows16 with AVX2: 8 rows of weights a vector, two vectors a block.
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
    static constexpr int kRows = P == 1   ? 4
                                 : P == 2 ? 2
                                          : 1,
                         kBlocks = 1, kPanelRows = kRows, kPanelBlocks = 2;
    static constexpr int kSomeRows = kRows, kSomeBlocks = kBlocks, kFewRows = P == 1 ? 2 : kRows,
                         kFewBlocks = P == 1 ? 2 : kBlocks;
  };
  // Steps of 2 products of a code and -128 to 127 that stay below 2^15, so that nothing saturates.
  template <int Bits>
  static constexpr int kNarrowSteps = Bits == 8   ? 0
                                      : Bits <= 4 ? 8
                                      : Bits == 5 ? 4
                                                  : 2;
  // Taking turns gains 5 to 10 % where the sums of two blocks go to the stack, and costs as much elsewhere.
  template <int Bits, int P, int NB>
  static constexpr int kTogether = P > 1 && (Bits == 2 || Bits == 4) ? 1 : NB;
  // Codes in two parts need registers for both.
  template <int Bits>
  static constexpr int kMostBlocks = Bits == 3 || Bits == 5 || Bits == 6 ? 2 : 4;
  template <int Bits>
  static constexpr int kPanelBits = Bits <= 4 ? 4 : Bits;

  // 8-bit codes would saturate vpmaddubsw: even and odd bytes go through vpmaddwd.
  template <int Bits>
  static I dot(I sum, I u, I x) {
    if constexpr (Bits < 8) {
      return _mm256_add_epi16(sum, _mm256_maddubs_epi16(u, x));
    } else {
      const I even = _mm256_and_si256(u, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(u, 8);
      const I x_even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), x_odd = _mm256_srai_epi16(x, 8);
      return _mm256_add_epi32(
          sum, _mm256_add_epi32(_mm256_madd_epi16(even, x_even), _mm256_madd_epi16(odd, x_odd)));
    }
  }
  static I widen(I sum) {
    return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
  }
};

#include "kernels/cpu/int_rows16.inc"

}  // namespace

#define QF_ISA(kind) kind##_avx2
#include "kernels/cpu/int_functions.inc"

}  // namespace qf::kernel
QF_TARGET_END
#endif
