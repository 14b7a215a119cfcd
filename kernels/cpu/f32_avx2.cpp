// f32 activations on rows16 with AVX2, FMA and F16C: 8 rows of weights a vector, two vectors a block.
#include "qf/core/config.hpp"
#include "qf/kernel/abi.hpp"

#if QF_X86
#include <immintrin.h>

QF_TARGET_BEGIN("avx2,fma,f16c")
namespace qf::kernel {
namespace {

#include "kernels/cpu/x86_asm.inc"

struct V {
  using F = __m256;
  using I = __m256i;
  static constexpr int kLanes = 8;
  static constexpr int kTileRows = 6;            // 12 sums, 2 vectors of weights, 1 of x: 15 of 16 registers
  static constexpr int kStreams = 1, kSums = 4;  // 8 sums of gemv
  static constexpr bool kInPlace = true;

  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static I load_codes(const std::byte* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
  static F load_f16(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static I first_lanes(std::int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F load_part(const float* p, std::int64_t count) { return _mm256_maskload_ps(p, first_lanes(count)); }
  static void store_part(float* p, std::int64_t count, F v) { _mm256_maskstore_ps(p, first_lanes(count), v); }
  static F broadcast(float x) { return _mm256_set1_ps(x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  template <int Shift>
  static I index(I v) {
    if constexpr (Shift > 0) v = _mm256_srli_epi32(v, Shift);
    if constexpr (Shift < 24) v = _mm256_and_si256(v, _mm256_set1_epi32(255));
    return v;
  }
  template <int Shift>
  static F byte(I v) {
    return _mm256_cvtepi32_ps(index<Shift>(v));
  }
  // Saves a shift a code; conversion is exact whatever the power of two.
  template <int Shift>
  static F masked(I v) {
    return _mm256_cvtepi32_ps(_mm256_and_si256(v, _mm256_set1_epi32(255 << Shift)));
  }
  struct Table {
    F low, high;
  };
  static Table table(const float* p) { return {_mm256_load_ps(p), _mm256_load_ps(p + 8)}; }
  // vpermps reads three bits of an index; the fourth, moved to the sign, chooses between its results.
  template <int Shift>
  static F look_up(const Table& t, I v) {
    I index = v;
    if constexpr (Shift > 0) index = _mm256_srli_epi32(v, Shift);
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(t.low, index), _mm256_permutevar8x32_ps(t.high, index),
                            _mm256_castsi256_ps(_mm256_slli_epi32(v, 28 - Shift)));
  }
  template <int Entries>
  static F gather(const float* p, I i) {
    if constexpr (Entries > 0)
      i = _mm256_add_epi32(
          i, _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(Entries)));
    return _mm256_i32gather_ps(p, i, 4);
  }
  template <int Shift, int Mask>
  static I bits(I v) {
    if constexpr (Shift > 0) v = _mm256_srli_epi32(v, Shift);
    if constexpr (Shift < 0) v = _mm256_slli_epi32(v, -Shift);
    return _mm256_and_si256(v, _mm256_set1_epi32(Mask));
  }
  static F as_float(I v) { return _mm256_castsi256_ps(v); }
  template <int Shift, int Mask>
  static I field(I v) {
    if constexpr (Shift > 0) v = _mm256_srli_epi16(v, Shift);
    if constexpr (Shift < 0) v = _mm256_slli_epi16(v, -Shift);
    return _mm256_and_si256(v, _mm256_set1_epi8(Mask));
  }
  static I merge(I a, I b) { return _mm256_or_si256(a, b); }
  static void prefetch(const void* p) { ask_near(p); }
};

#include "kernels/cpu/f32_rows16.inc"

}  // namespace

extern const KernelFunctions gemv_f32_avx2, gemm_f32_avx2;
const KernelFunctions gemv_f32_avx2{gemv, gemv_scratch};
const KernelFunctions gemm_f32_avx2{gemm, gemm_scratch};

}  // namespace qf::kernel
QF_TARGET_END
#endif
