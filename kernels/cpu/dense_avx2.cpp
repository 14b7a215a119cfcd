// Float layers with AVX2, FMA and F16C. Twelve vectors of sums leave room for a pair of weights and a broadcast.
#include "kernels/cpu/dense_ops.hpp"

#if QF_X86
#include <immintrin.h>

QF_TARGET_BEGIN("avx2,fma,f16c")
namespace qf::kernel::detail {
namespace {

#include "kernels/cpu/x86_asm.inc"

struct V {
  using F = __m256;
  static constexpr int kLanes = 8, kSums = 12, kBlock = 8;

  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static void store(f16* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static __m256i first_lanes(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F load_part(const float* p, int count) { return _mm256_maskload_ps(p, first_lanes(count)); }
  static void store_part(float* p, int count, F v) { _mm256_maskstore_ps(p, first_lanes(count), v); }
#include "kernels/cpu/dense_x86.inc"

  static F broadcast(float x) {
    return _mm256_set1_ps(x);
  }
  static F add(F a, F b) {
    return _mm256_add_ps(a, b);
  }
  static F sub(F a, F b) {
    return _mm256_sub_ps(a, b);
  }
  static F mul(F a, F b) {
    return _mm256_mul_ps(a, b);
  }
  static F div(F a, F b) {
    return _mm256_div_ps(a, b);
  }
  static F fma(F a, F b, F c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  static F max(F a, F b) {
    return _mm256_max_ps(a, b);
  }
  static F round(F x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static F exp2i(F n) {
    const __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
  }
  static F below(F x, float limit, F a, F b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_LT_OQ));
  }
  static F above(F x, float limit, F a, F b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_GT_OQ));
  }
  static F load(const f16* p) {
    return load8(p);
  }
  static F load(const bf16* p) {
    return load8(p);
  }
  template <class W>
  static F load_part(const W* p, int count) {
    W lanes[kLanes] = {};
    for (int i = 0; i < count; ++i) lanes[i] = p[i];
    return load8(lanes);
  }
};

#include "kernels/cpu/dense.inc"

}  // namespace

constinit const DenseOps kDenseAvx2 = QF_DENSE_OPS("avx2");

}  // namespace qf::kernel::detail
QF_TARGET_END
#endif
