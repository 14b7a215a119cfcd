// Integer activations on rows16 with AVX-512 VNNI: a vector holds all 16 rows of a block.
#include "qf/core/config.hpp"
#include "qf/kernel/abi.hpp"

#if QF_X86
// g++ 12 warns of the undefined vectors that its own header passes to masked instructions.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

QF_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
namespace qf::kernel {
namespace {

#include "kernels/cpu/x86_asm.inc"

struct V {
  using F = __m512;
  using I = __m512i;
  static constexpr int kLanes = 16;
  template <int P>
  struct Tile {
    static constexpr int kStreams = 4;
    static constexpr int kRows = P == 1 ? 8 : 4, kBlocks = P == 3 ? 2 : 3, kPanelRows = kRows,
                         kPanelBlocks = kBlocks;
    static constexpr int kSomeRows = 4, kSomeBlocks = P == 1 ? 4 : kBlocks, kFewRows = 2, kFewBlocks = 4;
  };
  static constexpr bool kByLane = false, kPairs = false;
  static constexpr int kOffset8 = 0;
  template <int Bits>
  static constexpr int kNarrowSteps = 0;
  template <int Bits>
  static constexpr int kMostBlocks = 4;
  template <int Bits>
  static constexpr int kPanelBits = 8;

  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load_params(const std::byte* p, bool wide, int v) {
    if (wide) return _mm512_load_ps(reinterpret_cast<const float*>(p) + v * kLanes);
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p) + v));
  }
  static I load_codes(const std::byte* p) { return _mm512_load_si512(p); }
  static void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static __mmask16 first_lanes(std::int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
  static F load_part(const float* p, std::int64_t count) {
    return _mm512_maskz_loadu_ps(first_lanes(count), p);
  }
  static void store_part(float* p, std::int64_t count, F v) {
    _mm512_mask_storeu_ps(p, first_lanes(count), v);
  }
  static F broadcast(float x) { return _mm512_set1_ps(x); }
  static I fill(std::int32_t x) { return _mm512_set1_epi32(x); }
  // Kept in a register: one load for the several vectors that it is multiplied with.
  static I words(const std::int8_t* p) {
    std::int32_t word;
    __builtin_memcpy(&word, p, 4);
    I words = _mm512_set1_epi32(word);
    keep(words);
    return words;
  }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F to_float(I v) { return _mm512_cvtepi32_ps(v); }
  static I add_words(I a, I b) { return _mm512_add_epi32(a, b); }
  static F abs(F v) { return _mm512_abs_ps(v); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static I to_words(F v) { return _mm512_cvtps_epi32(v); }
  static I sub_words(I a, I b) { return _mm512_sub_epi32(a, b); }
  static I low_byte(I v) { return _mm512_srai_epi32(_mm512_slli_epi32(v, 24), 24); }
  static I shift_8(I v) { return _mm512_srai_epi32(v, 8); }
  static void store_bytes(std::int8_t* p, I v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
  }
  static void store_codes(std::byte* p, I v) { _mm512_store_si512(p, v); }
  template <int Shift, int Mask>
  static I field(I v) {
    if constexpr (Shift > 0) v = _mm512_srli_epi16(v, Shift);
    if constexpr (Shift < 0) v = _mm512_slli_epi16(v, -Shift);
    return _mm512_and_si512(v, _mm512_set1_epi8(Mask));
  }
  static I look_up(const std::uint8_t* table, I codes) {
    return _mm512_shuffle_epi8(
        _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table))), codes);
  }
  static I merge(I a, I b) { return _mm512_or_si512(a, b); }
  template <int Bits>
  static I dot(I sum, I u, I x) {
    return dot_bytes(sum, u, x);
  }
  static void prefetch_far(const void* p) { ask_far(p); }
  static I widen(I sum) { return sum; }
  static void prefetch(const void* p) { ask_near(p); }
};

#include "kernels/cpu/int_rows16.inc"

}  // namespace

#define QF_ISA(kind) kind##_avx512vnni
#include "kernels/cpu/int_functions.inc"

}  // namespace qf::kernel
QF_TARGET_END
#endif
