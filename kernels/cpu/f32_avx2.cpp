// f32 activations on rows16 with AVX2, FMA and F16C: 8 rows of weights a vector, two vectors a block.
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
  static constexpr int kTileRows = 6;  // 12 sums, 2 vectors of weights, 1 of x: 15 of 16 registers
  static constexpr int kStreams = 2;   // 8 sums, 4 vectors of codes
  static constexpr bool kScaled = true;

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
  template <int Bits, int Shift>
  static F code(I v) {
    I shifted = v;
    if constexpr (Shift > 0) shifted = _mm256_srli_epi32(v, Shift);
    if constexpr (Bits + Shift < 32) shifted = _mm256_and_si256(shifted, _mm256_set1_epi32((1 << Bits) - 1));
    return _mm256_cvtepi32_ps(shifted);
  }
  // Masking in place saves a shift a code; conversion is exact whatever the power of two.
  template <int Shift>
  static F scaled_code(I v) {
    I half = v;
    if constexpr (Shift >= 16) half = _mm256_srli_epi32(v, 16);
    return _mm256_cvtepi32_ps(_mm256_and_si256(half, _mm256_set1_epi32(15 << Shift % 16)));
  }
  // As asm: g++ 12 drops most of _mm_prefetch in nested inline functions.
  static void prefetch(const void* p) {
    __asm__ volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(p)));
  }
};

#include "kernels/cpu/f32_rows16.inc"

}  // namespace

extern const KernelFunctions gemv_f32_avx2, gemm_f32_avx2;
const KernelFunctions gemv_f32_avx2{gemv, gemv_scratch};
const KernelFunctions gemm_f32_avx2{gemm, gemm_scratch};

}  // namespace qf::kernel
QF_TARGET_END
#endif
