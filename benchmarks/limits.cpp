#include "benchmarks/limits.hpp"

#include <unistd.h>

#include "qf/core/config.hpp"
#if QF_X86
// g++ 12 warns of the undefined vectors that its own header passes to masked instructions.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#endif

namespace qf::bench {
namespace {

volatile float g_float_sink;
volatile int g_int_sink;

// Any CPU: 64-bit words.
std::uint64_t read_words(const std::byte* p, std::int64_t quarter) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(p);
  const std::int64_t count = quarter / 8;
  std::uint64_t sums[4] = {};
  for (std::int64_t i = 0; i < count; ++i)
    for (int s = 0; s < 4; ++s) sums[s] ^= words[s * count + i];
  return sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
}

#if QF_X86
QF_TARGET_BEGIN("avx2,fma,f16c")
std::uint64_t read_avx2(const std::byte* p, std::int64_t quarter) {
  __m256i sums[4] = {};
  for (std::int64_t i = 0; i < quarter; i += 64)
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      const std::byte* line = p + s * quarter + i;
      __asm__ volatile("prefetcht0 %0" : : "m"(line[2048]));
      sums[s] = _mm256_or_si256(sums[s], _mm256_load_si256(reinterpret_cast<const __m256i*>(line)));
      sums[s] = _mm256_or_si256(sums[s], _mm256_load_si256(reinterpret_cast<const __m256i*>(line + 32)));
    }
  const __m256i all = _mm256_or_si256(_mm256_or_si256(sums[0], sums[1]), _mm256_or_si256(sums[2], sums[3]));
  return static_cast<std::uint64_t>(_mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 3));
}

void fma_avx2(std::int64_t rounds) {
  __m256 sums[12];
  for (__m256& sum : sums) sum = _mm256_set1_ps(1.0f);
  __m256 a = _mm256_set1_ps(0.5f);
  for (std::int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+x"(a));
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) sums[j] = _mm256_fmadd_ps(sums[j], a, a);
  }
  for (const __m256& sum : sums) g_float_sink = g_float_sink + _mm256_cvtss_f32(sum);
}

void maddubs_avx2(std::int64_t rounds) {
  __m256i sums[12] = {};
  __m256i a = _mm256_set1_epi8(1);
  for (std::int64_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) {
      __asm__ volatile("" : "+x"(a));
      sums[j] = _mm256_add_epi16(sums[j], _mm256_maddubs_epi16(a, a));
    }
  for (const __m256i& sum : sums) g_int_sink = g_int_sink + _mm256_extract_epi16(sum, 0);
}
QF_TARGET_END

QF_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")
std::uint64_t read_avx512(const std::byte* p, std::int64_t quarter) {
  __m512i sums[4] = {};
  for (std::int64_t i = 0; i < quarter; i += 64)
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      const std::byte* line = p + s * quarter + i;
      __asm__ volatile("prefetcht0 %0" : : "m"(line[2048]));
      sums[s] = _mm512_or_si512(sums[s], _mm512_load_si512(line));
    }
  const __m512i all = _mm512_or_si512(_mm512_or_si512(sums[0], sums[1]), _mm512_or_si512(sums[2], sums[3]));
  return static_cast<std::uint64_t>(_mm512_reduce_or_epi64(all));
}

void fma_avx512(std::int64_t rounds) {
  __m512 sums[12];
  for (__m512& sum : sums) sum = _mm512_set1_ps(1.0f);
  __m512 a = _mm512_set1_ps(0.5f);
  for (std::int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+v"(a));
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) sums[j] = _mm512_fmadd_ps(sums[j], a, a);
  }
  for (const __m512& sum : sums) g_float_sink = g_float_sink + _mm512_cvtss_f32(sum);
}

QF_TARGET_END

QF_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
void dpbusd_avx512(std::int64_t rounds) {
  __m512i sums[12] = {};
  const __m512i a = _mm512_set1_epi8(1);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) __asm__ volatile("vpdpbusd %1, %1, %0" : "+v"(sums[j]) : "v"(a));
  }
  for (const __m512i& sum : sums) g_int_sink = g_int_sink + _mm_cvtsi128_si32(_mm512_castsi512_si128(sum));
}
QF_TARGET_END
#endif

}  // namespace

std::uint64_t read_all(std::span<const std::byte> bytes, kernel::IsaMask isa) {
  const auto quarter = static_cast<std::int64_t>(bytes.size() / 4);
#if QF_X86
  if (isa & kernel::isa::avx512) return read_avx512(bytes.data(), quarter);
  if (isa & kernel::isa::avx2) return read_avx2(bytes.data(), quarter);
#endif
  (void)isa;
  return read_words(bytes.data(), quarter);
}

std::int64_t multiply_f32(std::int64_t rounds, kernel::IsaMask isa) {
#if QF_X86
  if (isa & kernel::isa::avx512) return fma_avx512(rounds), rounds * 12 * 32;
  if (isa & kernel::isa::avx2) return fma_avx2(rounds), rounds * 12 * 16;
#endif
  (void)rounds, (void)isa;
  return 0;
}

std::int64_t multiply_i8(std::int64_t rounds, kernel::IsaMask isa) {
#if QF_X86
  if (isa & kernel::isa::avx512_vnni) return dpbusd_avx512(rounds), rounds * 12 * 128;
  if (isa & kernel::isa::avx2) return maddubs_avx2(rounds), rounds * 12 * 64;
#endif
  (void)rounds, (void)isa;
  return 0;
}

std::size_t last_cache_bytes() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return static_cast<std::size_t>(bytes);
#endif
  return std::size_t{32} << 20;
}

}  // namespace qf::bench
