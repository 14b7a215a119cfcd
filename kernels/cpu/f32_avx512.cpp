// f32 activations on rows16 with AVX-512 (F, BW, VL, DQ): a vector holds all 16 rows of a block.
#include "qf/core/config.hpp"
#include "qf/kernel/abi.hpp"

#if QF_X86
// g++ 12 warns of the undefined vectors that its own header passes to masked instructions.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

QF_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")
namespace qf::kernel {
namespace {

#include "kernels/cpu/x86_asm.inc"

struct V {
  using F = __m512;
  using I = __m512i;
  static constexpr int kLanes = 16;
  static constexpr int kTileRows = 8;            // more rows of x run out of pointers, not of vectors
  static constexpr int kStreams = 4, kSums = 2;  // 8 sums of gemv
  static constexpr bool kInPlace = true;

  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static I load_codes(const std::byte* p) { return _mm512_load_si512(p); }
  static F load_f16(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static __mmask16 first_lanes(std::int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
  static F load_part(const float* p, std::int64_t count) {
    return _mm512_maskz_loadu_ps(first_lanes(count), p);
  }
  static void store_part(float* p, std::int64_t count, F v) {
    _mm512_mask_storeu_ps(p, first_lanes(count), v);
  }
  static F broadcast(float x) { return _mm512_set1_ps(x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  template <int Shift>
  static I index(I v) {
    if constexpr (Shift > 0) v = _mm512_srli_epi32(v, Shift);
    if constexpr (Shift < 24) v = _mm512_and_si512(v, _mm512_set1_epi32(255));
    return v;
  }
  template <int Shift>
  static F byte(I v) {
    return _mm512_cvtepi32_ps(index<Shift>(v));
  }
  // Saves a shift a code; conversion is exact whatever the power of two.
  template <int Shift>
  static F masked(I v) {
    return _mm512_cvtepi32_ps(_mm512_and_si512(v, _mm512_set1_epi32(255 << Shift)));
  }
  using Table = F;
  static Table table(const float* p) { return _mm512_load_ps(p); }
  template <int Shift>
  static F look_up(const Table& t, I v) {
    if constexpr (Shift > 0) v = _mm512_srli_epi32(v, Shift);
    return _mm512_permutexvar_ps(v, t);  // reads four bits of an index
  }
  template <int Entries>
  static F gather(const float* p, I i) {
    if constexpr (Entries > 0)
      i = _mm512_add_epi32(
          i, _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                _mm512_set1_epi32(Entries)));
    return _mm512_i32gather_ps(i, p, 4);
  }
  template <int Shift, int Mask>
  static I bits(I v) {
    if constexpr (Shift > 0) v = _mm512_srli_epi32(v, Shift);
    if constexpr (Shift < 0) v = _mm512_slli_epi32(v, -Shift);
    return _mm512_and_si512(v, _mm512_set1_epi32(Mask));
  }
  static F as_float(I v) { return _mm512_castsi512_ps(v); }
  template <int Shift, int Mask>
  static I field(I v) {
    if constexpr (Shift > 0) v = _mm512_srli_epi16(v, Shift);
    if constexpr (Shift < 0) v = _mm512_slli_epi16(v, -Shift);
    return _mm512_and_si512(v, _mm512_set1_epi8(Mask));
  }
  static I merge(I a, I b) { return _mm512_or_si512(a, b); }
  static void prefetch(const void* p) { ask_near(p); }
};

#include "kernels/cpu/f32_rows16.inc"

}  // namespace

extern const KernelFunctions gemv_f32_avx512, gemm_f32_avx512;
const KernelFunctions gemv_f32_avx512{gemv, gemv_scratch};
const KernelFunctions gemm_f32_avx512{gemm, gemm_scratch};

}  // namespace qf::kernel
QF_TARGET_END
#endif
