// What kernels/cpu gets for <immintrin.h> where QF_EMULATED is 1: SIMDe, what version 0.7.4 of it lacks, and multiply-adds
// with one rounding, which it makes two.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

using __mmask16 = simde__mmask16;
#define _MM_FROUND_NO_EXC SIMDE_MM_FROUND_NO_EXC
#undef _MM_FROUND_TO_NEAREST_INT
#define _MM_FROUND_TO_NEAREST_INT SIMDE_MM_FROUND_TO_NEAREST_INT

namespace qf_emulated {

// Not inlined: kernels hold hundreds of each, and SIMDe inlines everything.
#define QF_EMULATED_CALL __attribute__((noinline)) inline

#define QF_EMULATED_FMA(bits)                                                                        \
  QF_EMULATED_CALL simde__m##bits fma_##bits(simde__m##bits a, simde__m##bits b, simde__m##bits c) { \
    simde__m##bits##_private x = simde__m##bits##_to_private(a), y = simde__m##bits##_to_private(b), \
                             z = simde__m##bits##_to_private(c);                                     \
    for (int i = 0; i < bits / 32; ++i) z.f32[i] = __builtin_fmaf(x.f32[i], y.f32[i], z.f32[i]);     \
    return simde__m##bits##_from_private(z);                                                         \
  }
QF_EMULATED_FMA(256)
QF_EMULATED_FMA(512)
#undef QF_EMULATED_FMA

QF_EMULATED_CALL simde__m256i dpbusd_256(simde__m256i sum, simde__m256i a, simde__m256i b) {
  return simde_mm256_dpbusd_epi32(sum, a, b);
}
QF_EMULATED_CALL simde__m512i dpbusd_512(simde__m512i sum, simde__m512i a, simde__m512i b) {
  return simde_mm512_dpbusd_epi32(sum, a, b);
}
QF_EMULATED_CALL simde__m256i maddubs_256(simde__m256i a, simde__m256i b) {
  return simde_mm256_maddubs_epi16(a, b);
}

// A function of 512 bits from one of 256.
template <class Out, class In, class Op>
Out halves(const In& in, Op op) {
  char bytes[sizeof(In)];
  __builtin_memcpy(bytes, &in, sizeof in);
  decltype(op(bytes)) low = op(bytes), high = op(bytes + sizeof(In) / 2);
  Out out;
  static_assert(sizeof out == 2 * sizeof low);
  __builtin_memcpy(&out, &low, sizeof low);
  __builtin_memcpy(reinterpret_cast<char*>(&out) + sizeof low, &high, sizeof high);
  return out;
}
template <class V>
V as(const char* bytes) {
  V v;
  __builtin_memcpy(&v, bytes, sizeof v);
  return v;
}
QF_EMULATED_CALL simde__m512 cvtph_ps(simde__m256i v) {
  return halves<simde__m512>(v, [](const char* p) { return simde_mm256_cvtph_ps(as<simde__m128i>(p)); });
}
QF_EMULATED_CALL simde__m256i cvtps_ph(simde__m512 v) {
  return halves<simde__m256i>(v, [](const char* p) { return simde_mm256_cvtps_ph(as<simde__m256>(p), 0); });
}
QF_EMULATED_CALL simde__m512 cvtepi32_ps(simde__m512i v) {
  return halves<simde__m512>(v, [](const char* p) { return simde_mm256_cvtepi32_ps(as<simde__m256i>(p)); });
}
QF_EMULATED_CALL simde__m512i cvtps_epi32(simde__m512 v) {
  return halves<simde__m512i>(v, [](const char* p) { return simde_mm256_cvtps_epi32(as<simde__m256>(p)); });
}
QF_EMULATED_CALL simde__m512i cvtepu16_epi32(simde__m256i v) {
  return halves<simde__m512i>(v,
                              [](const char* p) { return simde_mm256_cvtepu16_epi32(as<simde__m128i>(p)); });
}
QF_EMULATED_CALL simde__m512i srai_epi32(simde__m512i v, int count) {
  return halves<simde__m512i>(
      v, [=](const char* p) { return simde_mm256_srai_epi32(as<simde__m256i>(p), count); });
}
QF_EMULATED_CALL simde__m128i cvtepi32_epi8(simde__m512i v) {
  const auto words = simde__m512i_to_private(v);
  simde__m128i_private bytes;
  for (int i = 0; i < 16; ++i) bytes.i8[i] = static_cast<signed char>(words.i32[i]);
  return simde__m128i_from_private(bytes);
}
QF_EMULATED_CALL simde__m512 gather(simde__m512i index, const float* p) {
  const auto words = simde__m512i_to_private(index);
  simde__m512_private lanes;
  for (int i = 0; i < 16; ++i) lanes.f32[i] = p[words.i32[i]];
  return simde__m512_from_private(lanes);
}
template <class V, class Lane>
QF_EMULATED_CALL V load_masked(unsigned mask, const Lane* p) {
  Lane lanes[sizeof(V) / sizeof(Lane)] = {};
  for (unsigned i = 0; i < sizeof(V) / sizeof(Lane); ++i)
    if (mask >> i & 1u) __builtin_memcpy(lanes + i, p + i, sizeof(Lane));
  V v;
  __builtin_memcpy(&v, lanes, sizeof v);
  return v;
}
template <class V>
QF_EMULATED_CALL void store_masked(float* p, unsigned mask, V v) {
  float lanes[sizeof v / 4];
  __builtin_memcpy(lanes, &v, sizeof lanes);
  for (unsigned i = 0; i < sizeof v / 4; ++i)
    if (mask >> i & 1u) p[i] = lanes[i];
}

// SIMDe's read and write what the mask leaves out.
QF_EMULATED_CALL unsigned mask_of(simde__m256i mask) {
  const auto words = simde__m256i_to_private(mask);
  unsigned bits = 0;
  for (unsigned i = 0; i < 8; ++i) bits |= (words.i32[i] < 0 ? 1u : 0u) << i;
  return bits;
}

}  // namespace qf_emulated

#undef _mm256_fmadd_ps
#undef _mm512_fmadd_ps
#define _mm256_fmadd_ps(a, b, c) qf_emulated::fma_256(a, b, c)
#define _mm512_fmadd_ps(a, b, c) qf_emulated::fma_512(a, b, c)
#undef _mm256_dpbusd_epi32
#undef _mm512_dpbusd_epi32
#undef _mm256_maddubs_epi16
#define _mm256_dpbusd_epi32(sum, a, b) qf_emulated::dpbusd_256(sum, a, b)
#define _mm512_dpbusd_epi32(sum, a, b) qf_emulated::dpbusd_512(sum, a, b)
#define _mm256_maddubs_epi16(a, b) qf_emulated::maddubs_256(a, b)
#undef _mm256_maskload_ps
#undef _mm256_maskstore_ps
#define _mm256_maskload_ps(p, mask) \
  qf_emulated::load_masked<simde__m256, float>(qf_emulated::mask_of(mask), p)
#define _mm256_maskstore_ps(p, mask, v) qf_emulated::store_masked(p, qf_emulated::mask_of(mask), v)
#define _mm512_cvtph_ps(v) qf_emulated::cvtph_ps(v)
#define _mm512_cvtps_ph(v, rounding) qf_emulated::cvtps_ph(v)
#define _mm512_cvtepi32_ps(v) qf_emulated::cvtepi32_ps(v)
#define _mm512_cvtps_epi32(v) qf_emulated::cvtps_epi32(v)
#define _mm512_cvtepu16_epi32(v) qf_emulated::cvtepu16_epi32(v)
#define _mm512_cvtepi32_epi8(v) qf_emulated::cvtepi32_epi8(v)
#define _mm512_srai_epi32(v, count) qf_emulated::srai_epi32(v, count)
#define _mm512_i32gather_ps(index, p, scale) qf_emulated::gather(index, p)
#define _mm512_maskz_loadu_ps(mask, p) qf_emulated::load_masked<simde__m512, float>(mask, p)
#define _mm512_mask_storeu_ps(p, mask, v) qf_emulated::store_masked(p, mask, v)
#define _mm256_maskz_loadu_epi16(mask, p) \
  qf_emulated::load_masked<simde__m256i, short>(mask, reinterpret_cast<const short*>(p))
