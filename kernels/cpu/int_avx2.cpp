// Integer activations on rows16 with AVX2: 8 rows of weights a vector, two vectors a block.
#include "qf/core/config.hpp"
#include "qf/kernel/abi.hpp"

#if QF_X86
#include <immintrin.h>

QF_TARGET_BEGIN("avx2,fma,f16c")
namespace qf::kernel {
namespace {

struct V {
  using F = __m256;
  using I = __m256i;
  static constexpr int kLanes = 8;
  template <int P>
  struct Tile {
    static constexpr int kStreams = P == 1 ? 4 : 2;
    static constexpr int kRows = P == 1 ? 4 : P == 2 ? 2 : 1, kBlocks = 1, kPanelBlocks = 2;
    static constexpr int kSomeRows = kRows, kSomeBlocks = kBlocks, kFewRows = P == 1 ? 2 : kRows,
                         kFewBlocks = P == 1 ? 2 : kBlocks;
  };
  static constexpr bool kByLane = false, kPairs = false;
  static constexpr int kOffset8 = 0;
  // Steps of 2 products of a code and -128 to 127 that stay below 2^15, so that nothing saturates.
  template <int Bits>
  static constexpr int kNarrowSteps = Bits == 8   ? 0
                                      : Bits <= 4 ? 8
                                      : Bits == 5 ? 4
                                                  : 2;
  // Codes in two parts need registers for both.
  template <int Bits>
  static constexpr int kMostBlocks = Bits == 3 || Bits == 5 || Bits == 6 ? 2 : 4;
  template <int Bits>
  static constexpr int kPanelBits = Bits <= 4 ? 4 : Bits;

  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static F load_params(const std::byte* p, bool wide, int v) {
    if (wide) return _mm256_load_ps(reinterpret_cast<const float*>(p) + v * kLanes);
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p) + v));
  }
  static I load_codes(const std::byte* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
  static void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static I first_lanes(std::int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F load_part(const float* p, std::int64_t count) { return _mm256_maskload_ps(p, first_lanes(count)); }
  static void store_part(float* p, std::int64_t count, F v) { _mm256_maskstore_ps(p, first_lanes(count), v); }
  static F broadcast(float x) { return _mm256_set1_ps(x); }
  static I fill(std::int32_t x) { return _mm256_set1_epi32(x); }
  static I words(const std::int8_t* p) {
    std::int32_t word;
    __builtin_memcpy(&word, p, 4);
    return _mm256_set1_epi32(word);
  }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F to_float(I v) { return _mm256_cvtepi32_ps(v); }
  static I add_words(I a, I b) { return _mm256_add_epi32(a, b); }
  static F abs(F v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static I to_words(F v) { return _mm256_cvtps_epi32(v); }
  static I sub_words(I a, I b) { return _mm256_sub_epi32(a, b); }
  static I low_byte(I v) { return _mm256_srai_epi32(_mm256_slli_epi32(v, 24), 24); }
  static I shift_8(I v) { return _mm256_srai_epi32(v, 8); }
  static void store_bytes(std::int8_t* p, I v) {
    const I bytes = _mm256_shuffle_epi8(v, _mm256_set1_epi32(0x0c080400));
    const std::int32_t words[2] = {_mm256_extract_epi32(bytes, 0), _mm256_extract_epi32(bytes, 4)};
    __builtin_memcpy(p, words, 8);
  }
  static void store_codes(std::byte* p, I v) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), v); }
  template <int Shift, int Mask>
  static I field(I v) {
    if constexpr (Shift > 0) v = _mm256_srli_epi16(v, Shift);
    if constexpr (Shift < 0) v = _mm256_slli_epi16(v, -Shift);
    return _mm256_and_si256(v, _mm256_set1_epi8(Mask));
  }
  static I look_up(const std::uint8_t* table, I codes) {
    return _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table))), codes);
  }
  static I merge(I a, I b) { return _mm256_or_si256(a, b); }
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
  static I widen(I sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
  static void prefetch_far(const void* p) {
    __asm__ volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(p)));
  }
  // As asm: g++ 12 drops most of _mm_prefetch in nested inline functions.
  static void prefetch(const void* p) {
    __asm__ volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(p)));
  }
};

#include "kernels/cpu/int_rows16.inc"

}  // namespace

#define QF_ISA(kind) kind##_avx2
#include "kernels/cpu/int_functions.inc"

}  // namespace qf::kernel
QF_TARGET_END
#endif
