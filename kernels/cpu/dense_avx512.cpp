// Float layers with AVX-512 (F, BW, VL, DQ): a vector is a panel's row, and a tile is 6 rows of x 4 panels.
#include "kernels/cpu/dense_ops.hpp"

#if QF_X86
// g++ 12 warns of the undefined vectors that its own header passes to masked instructions.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

QF_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")
namespace qf::kernel::detail {
namespace {

#include "kernels/cpu/x86_asm.inc"

struct V {
  using F = __m512;
  static constexpr int kLanes = 16, kSums = 24, kBlock = 8;

  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load(const f16* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F load(const bf16* p) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static F widen(__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static void store(f16* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static __mmask16 first_lanes(int count) { return static_cast<__mmask16>((1u << count) - 1); }
  static F load_part(const float* p, int count) { return _mm512_maskz_loadu_ps(first_lanes(count), p); }
  static F load_part(const f16* p, int count) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(count), p));
  }
  static F load_part(const bf16* p, int count) {
    return widen(_mm256_maskz_loadu_epi16(first_lanes(count), p));
  }
  static void store_part(float* p, int count, F v) { _mm512_mask_storeu_ps(p, first_lanes(count), v); }
#include "kernels/cpu/dense_x86.inc"

  static F broadcast(float x) {
    return _mm512_set1_ps(x);
  }
  static F add(F a, F b) {
    return _mm512_add_ps(a, b);
  }
  static F sub(F a, F b) {
    return _mm512_sub_ps(a, b);
  }
  static F mul(F a, F b) {
    return _mm512_mul_ps(a, b);
  }
  static F div(F a, F b) {
    return _mm512_div_ps(a, b);
  }
  static F fma(F a, F b, F c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  static F max(F a, F b) {
    return _mm512_max_ps(a, b);
  }
  static F round(F x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static F exp2i(F n) {
    const __m512i e = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(e, 23));
  }
  static F below(F x, float limit, F a, F b) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_LT_OQ), b, a);
  }
  static F above(F x, float limit, F a, F b) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_GT_OQ), b, a);
  }
};

#include "kernels/cpu/dense.inc"

}  // namespace

constinit const DenseOps kDenseAvx512 = QF_DENSE_OPS("avx512");

}  // namespace qf::kernel::detail
QF_TARGET_END
#endif
