#include "benchmarks/limits.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "benchmarks/timing.hpp"
#include "qf/core/config.hpp"
#include "qf/kernel/matmul.hpp"
#if QF_X86
// g++ 12 warns of the undefined vectors that its own header passes to masked instructions.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#elif QF_ARM64
#include <arm_neon.h>
#endif

namespace qf::bench {
namespace {

volatile int g_sink;

// Any CPU: 64-bit words.
std::uint64_t read_words(const std::byte* p, std::int64_t stride) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(p);
  const std::int64_t count = stride / 8;
  std::uint64_t sums[4] = {};
  for (std::int64_t i = 0; i < count; ++i)
    for (int s = 0; s < 4; ++s) sums[s] |= words[s * count + i];
  return sums[0] | sums[1] | sums[2] | sums[3];
}

#if QF_X86
// All as asm: 12 sums in registers whatever the compiler, and instructions whose order it keeps.
#define QF_BENCH_12(one) one(0) one(1) one(2) one(3) one(4) one(5) one(6) one(7) one(8) one(9) one(10) one(11)

QF_TARGET_BEGIN("avx2,fma,f16c")
template <int Ahead>
std::uint64_t read_avx2(const std::byte* p, std::int64_t stride) {
  __m256i sums[4] = {};
  for (std::int64_t i = 0; i < stride; i += 64)
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      const std::byte* line = p + s * stride + i;
      if (Ahead) __asm__ volatile("prefetcht0 %0" : : "m"(line[Ahead]));
      sums[s] = _mm256_or_si256(sums[s], _mm256_load_si256(reinterpret_cast<const __m256i*>(line)));
      sums[s] = _mm256_or_si256(sums[s], _mm256_load_si256(reinterpret_cast<const __m256i*>(line + 32)));
    }
  const __m256i all = _mm256_or_si256(_mm256_or_si256(sums[0], sums[1]), _mm256_or_si256(sums[2], sums[3]));
  return static_cast<std::uint64_t>(_mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 3));
}

void fma_avx2(std::int64_t rounds) {
  __m256 sums[12] = {};
  const __m256 a = _mm256_set1_ps(0.5f);
  for (std::int64_t i = 0; i < rounds; ++i) {
#define QF_BENCH_ONE(j) __asm__ volatile("vfmadd231ps %1, %1, %0" : "+x"(sums[j]) : "x"(a));
    QF_BENCH_12(QF_BENCH_ONE)
#undef QF_BENCH_ONE
  }
  g_sink = static_cast<int>(_mm256_cvtss_f32(sums[0]));
}

void maddubs_avx2(std::int64_t rounds) {
  __m256i sums[12] = {};
  const __m256i a = _mm256_set1_epi8(1);
  for (std::int64_t i = 0; i < rounds; ++i) {
    __m256i product;
#define QF_BENCH_ONE(j) \
  __asm__ volatile("vpmaddubsw %2, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sums[j]), "=&x"(product) : "x"(a));
    QF_BENCH_12(QF_BENCH_ONE)
#undef QF_BENCH_ONE
  }
  g_sink = _mm256_extract_epi16(sums[0], 0);
}
QF_TARGET_END

QF_TARGET_BEGIN("avx2,fma,f16c,avxvnni")
void dpbusd_avxvnni(std::int64_t rounds) {
  __m256i sums[12] = {};
  const __m256i a = _mm256_set1_epi8(1);
  for (std::int64_t i = 0; i < rounds; ++i) {
#define QF_BENCH_ONE(j) __asm__ volatile("%{vex%} vpdpbusd %1, %1, %0" : "+x"(sums[j]) : "x"(a));
    QF_BENCH_12(QF_BENCH_ONE)
#undef QF_BENCH_ONE
  }
  g_sink = _mm256_extract_epi16(sums[0], 0);
}
QF_TARGET_END

QF_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")
template <int Ahead>
std::uint64_t read_avx512(const std::byte* p, std::int64_t stride) {
  __m512i sums[4] = {};
  for (std::int64_t i = 0; i < stride; i += 64)
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      const std::byte* line = p + s * stride + i;
      if (Ahead) __asm__ volatile("prefetcht0 %0" : : "m"(line[Ahead]));
      sums[s] = _mm512_or_si512(sums[s], _mm512_load_si512(line));
    }
  const __m512i all = _mm512_or_si512(_mm512_or_si512(sums[0], sums[1]), _mm512_or_si512(sums[2], sums[3]));
  return static_cast<std::uint64_t>(_mm512_reduce_or_epi64(all));
}

void fma_avx512(std::int64_t rounds) {
  __m512 sums[12] = {};
  const __m512 a = _mm512_set1_ps(0.5f);
  for (std::int64_t i = 0; i < rounds; ++i) {
#define QF_BENCH_ONE(j) __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(sums[j]) : "v"(a));
    QF_BENCH_12(QF_BENCH_ONE)
#undef QF_BENCH_ONE
  }
  g_sink = static_cast<int>(_mm512_cvtss_f32(sums[0]));
}
QF_TARGET_END

QF_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
void dpbusd_avx512(std::int64_t rounds) {
  __m512i sums[12] = {};
  const __m512i a = _mm512_set1_epi8(1);
  for (std::int64_t i = 0; i < rounds; ++i) {
#define QF_BENCH_ONE(j) __asm__ volatile("vpdpbusd %1, %1, %0" : "+v"(sums[j]) : "v"(a));
    QF_BENCH_12(QF_BENCH_ONE)
#undef QF_BENCH_ONE
  }
  g_sink = _mm_cvtsi128_si32(_mm512_castsi512_si128(sums[0]));
}
QF_TARGET_END
#elif QF_ARM64
#define QF_BENCH_12(one) one(0) one(1) one(2) one(3) one(4) one(5) one(6) one(7) one(8) one(9) one(10) one(11)
template <int Ahead>
std::uint64_t read_neon(const std::byte* p, std::int64_t stride) {
  uint64x2_t sums[4] = {vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0)};
  for (std::int64_t i = 0; i < stride; i += 64)
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      const auto* line = reinterpret_cast<const std::uint64_t*>(p + s * stride + i);
      if (Ahead) __asm__ volatile("prfm pldl1keep, %0" : : "Q"(line[Ahead / 8]));
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sums[s] = vorrq_u64(sums[s], vld1q_u64(line + 2 * v));
    }
  const uint64x2_t all = vorrq_u64(vorrq_u64(sums[0], sums[1]), vorrq_u64(sums[2], sums[3]));
  return vgetq_lane_u64(all, 0) | vgetq_lane_u64(all, 1);
}
#define QF_BENCH_LOOP(name, vector, zero, value, instruction) \
  void name(std::int64_t rounds) {                            \
    vector sums[12];                                          \
    for (vector & sum : sums) sum = zero;                     \
    const vector a = value;                                   \
    for (std::int64_t i = 0; i < rounds; ++i) {               \
      QF_BENCH_12(instruction)                                \
    }                                                         \
    g_sink = static_cast<int>(sums[0][0]);                    \
  }
#define QF_BENCH_FMLA(j) __asm__ volatile("fmla %0.4s, %1.4s, %1.4s" : "+w"(sums[j]) : "w"(a));
QF_BENCH_LOOP(fma_neon, float32x4_t, vdupq_n_f32(0), vdupq_n_f32(0.5f), QF_BENCH_FMLA)
QF_TARGET_BEGIN("arch=armv8.2-a+dotprod")
#define QF_BENCH_SDOT(j) __asm__ volatile("sdot %0.4s, %1.16b, %1.16b" : "+w"(sums[j]) : "w"(a));
QF_BENCH_LOOP(sdot_neon, int32x4_t, vdupq_n_s32(0), vdupq_n_s32(0x01010101), QF_BENCH_SDOT)
QF_TARGET_END
QF_TARGET_BEGIN("arch=armv8.2-a+i8mm")
#define QF_BENCH_SMMLA(j) __asm__ volatile("smmla %0.4s, %1.16b, %1.16b" : "+w"(sums[j]) : "w"(a));
QF_BENCH_LOOP(smmla_neon, int32x4_t, vdupq_n_s32(0), vdupq_n_s32(0x01010101), QF_BENCH_SMMLA)
QF_TARGET_END
#endif

namespace isa = kernel::isa;
constexpr ReadLoop kReads[] = {
    {"64-bit loads", isa::scalar, read_words},
#if QF_X86
    {"256-bit loads", isa::avx2, read_avx2<0>},
    {"256-bit loads, 256 B asked ahead", isa::avx2, read_avx2<256>},
    {"256-bit loads, 2 KiB asked ahead", isa::avx2, read_avx2<2048>},
    {"512-bit loads", isa::avx512, read_avx512<0>},
    {"512-bit loads, 256 B asked ahead", isa::avx512, read_avx512<256>},
    {"512-bit loads, 2 KiB asked ahead", isa::avx512, read_avx512<2048>},
#elif QF_ARM64
    {"128-bit loads", isa::neon, read_neon<0>},
    {"128-bit loads, 256 B asked ahead", isa::neon, read_neon<256>},
    {"128-bit loads, 2 KiB asked ahead", isa::neon, read_neon<2048>},
#endif
};

constexpr PeakLoop kPeaks[] = {
#if QF_X86
    {"f32 FMA 256", Numbers::f32, isa::avx2, 12 * 16, fma_avx2},
    {"f32 FMA 512", Numbers::f32, isa::avx512, 12 * 32, fma_avx512},
    {"vpmaddubsw + vpaddw 256", Numbers::i8, isa::avx2, 12 * 64, maddubs_avx2},
    {"vpdpbusd 256", Numbers::i8, isa::avx_vnni, 12 * 64, dpbusd_avxvnni},
    {"vpdpbusd 512", Numbers::i8, isa::avx512_vnni, 12 * 128, dpbusd_avx512},
#elif QF_ARM64
    {"f32 FMA 128", Numbers::f32, isa::neon, 12 * 8, fma_neon},
    {"sdot", Numbers::i8, isa::neon_dotprod, 12 * 32, sdot_neon},
    {"smmla", Numbers::i8, isa::neon_i8mm, 12 * 64, smmla_neon},
#else
    {"none", Numbers::f32, ~kernel::IsaMask{0}, 1, nullptr},
#endif
};

}  // namespace

std::span<const ReadLoop> read_loops() {
  return kReads;
}
std::span<const PeakLoop> peak_loops() {
  return kPeaks;
}

const PeakLoop* peak_loop(Numbers numbers, kernel::IsaMask isa) {
  const PeakLoop* found = nullptr;
  for (const PeakLoop& loop : kPeaks)
    if (loop.numbers == numbers && (loop.isa & ~isa) == 0) found = &loop;
  return found;
}

std::size_t last_cache_bytes() {
  // What the C library says is ten times too much on some virtual machines.
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  std::size_t kib = 0;
  if (file >> kib && kib > 0) return kib << 10;
#ifdef _SC_LEVEL3_CACHE_SIZE
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return static_cast<std::size_t>(bytes);
#endif
  return std::size_t{32} << 20;
}

Limits::Limits(int threads, ParallelFor parallel) : threads_(threads), parallel_(parallel) {
  // Quarters of a thread's part lie an odd number of lines and pages apart, as blocks of a matrix mostly do.
  const auto parts = static_cast<std::size_t>(threads);
  part_ = (4 * last_cache_bytes() / parts / 4 / 4096 * 4096 + 4096 + 64) * 4;
  const std::size_t bytes = part_ * parts + 4096;  // what is asked ahead lies inside too
  normal_ = Array<std::byte>::make(bytes).value();
  if (auto memory = Array<std::byte>::make(bytes, kernel::weight_allocator()); memory.ok())
    huge_ = std::move(memory).value();
  for (const ReadLoop& loop : kReads) {
    if (loop.isa & ~kernel::cpu_isa()) continue;
    ways_.emplace_back(&loop, normal_.data());
    reads_.push_back({loop.name, false, 0, 0});
    if (huge_.empty()) continue;
    ways_.emplace_back(&loop, huge_.data());
    reads_.push_back({std::string(loop.name) + ", huge pages", true, 0, 0});
  }
  constexpr int kRounds = 7;
  std::vector<std::vector<double>> by_watch(ways_.size()), by_wall(ways_.size());
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < ways_.size(); ++i) {
      const Stopwatch watch(threads_), wall(2);
      read(i);
      const double total = static_cast<double>(part_ * parts) * 1e-9;
      by_watch[i].push_back(total / watch.seconds());
      by_wall[i].push_back(total / wall.seconds());
    }
  for (std::size_t i = 0; i < ways_.size(); ++i) {
    reads_[i].gb_s = median(by_watch[i]);
    reads_[i].wall_gb_s = median(by_wall[i]);
    if (reads_[i].gb_s > reads_[best_].gb_s) best_ = i;
  }
}

const Limits::Read& Limits::best_read(bool huge) const {
  const Read* best = nullptr;
  for (const Read& read : reads_)
    if (read.huge == huge && (!best || read.gb_s > best->gb_s)) best = &read;
  return best ? *best : best_read();
}

void Limits::read(std::size_t way) {
  const auto [loop, bytes] = ways_[way];
  parallel_for(parallel_, threads_, [&, run = loop->run, from = bytes](std::int64_t t) {
    sink_ = sink_ ^ run(from + static_cast<std::size_t>(t) * part_, static_cast<std::int64_t>(part_ / 4));
  });
}

double Limits::read_gb_s() {
  const Stopwatch watch(threads_);
  read(best_);
  return static_cast<double>(part_ * static_cast<std::size_t>(threads_)) / watch.seconds() * 1e-9;
}

double Limits::peak_gop_s(const PeakLoop& loop) {
  constexpr std::int64_t kRounds = 200000;
  const Stopwatch watch(threads_);
  parallel_for(parallel_, threads_, [&](std::int64_t) { loop.run(kRounds); });
  return static_cast<double>(loop.operations * kRounds * threads_) / watch.seconds() * 1e-9;
}

}  // namespace qf::bench
