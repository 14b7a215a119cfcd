// Which instruction sets this CPU and its operating system offer, cut by QF_MAX_ISA.
#include <cstdlib>

#include "qf/kernel/matmul.hpp"
#include "src/kernel_env.hpp"

#if QF_EMULATED
#elif QF_X86
#include <cpuid.h>
#elif QF_ARM64 && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace qf::kernel {
namespace {

struct IsaName {
  const char* name;
  IsaMask bits;
};
constexpr IsaName kIsaNames[] = {
    {"avx2", isa::avx2},
    {"avx_vnni", isa::avx_vnni},
    {"avx512", isa::avx512},
    {"avx512_vnni", isa::avx512_vnni},
    {"avx512_bf16", isa::avx512_bf16},
    {"neon", isa::neon},
    {"neon_dotprod", isa::neon_dotprod},
    {"neon_i8mm", isa::neon_i8mm},
};
// What QF_MAX_ISA may say, and what is then left.
constexpr IsaName kLevels[] = {
    {"none", isa::scalar},
    {"avx2", isa::avx2},
    {"avx_vnni", isa::avx2 | isa::avx_vnni},
    {"avx512", isa::avx2 | isa::avx512},
    {"avx512_vnni", isa::avx2 | isa::avx_vnni | isa::avx512 | isa::avx512_vnni},
    {"neon", isa::neon},
    {"neon_dotprod", isa::neon | isa::neon_dotprod},
    {"neon_i8mm", isa::neon | isa::neon_dotprod | isa::neon_i8mm},
    {"native", ~IsaMask{0}},
};

#if QF_EMULATED
IsaMask detect() {
  return isa::avx2 | isa::avx_vnni | isa::avx512 | isa::avx512_vnni;
}
#elif QF_X86
// The register state that the operating system saves: bits 1-2 SSE and AVX, 5-7 AVX-512.
std::uint64_t saved_state() {
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<std::uint64_t>(high) << 32 | low;
}

IsaMask detect() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const auto bit = [](unsigned word, int i) { return (word >> i & 1u) != 0; };
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  const bool osxsave = bit(c, 27), avx = bit(c, 28), fma = bit(c, 12), f16c = bit(c, 29);
  if (!osxsave || !avx || !fma || !f16c) return 0;
  const std::uint64_t state = saved_state();
  if ((state & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !bit(b, 5)) return 0;
  const unsigned subleaves = a;
  IsaMask mask = isa::avx2;
  const bool avx512 = (state & 0xe6) == 0xe6 && bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31);
  if (avx512) mask |= isa::avx512;
  if (avx512 && bit(c, 11)) mask |= isa::avx512_vnni;
  if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
    if (bit(a, 4)) mask |= isa::avx_vnni;
    if (avx512 && bit(a, 5)) mask |= isa::avx512_bf16;
  }
  return mask;
}
#elif QF_ARM64 && defined(__linux__)
IsaMask detect() {
  constexpr unsigned long kAsimdDp = 1ul << 20 /* AT_HWCAP */, kI8mm = 1ul << 13 /* AT_HWCAP2 */;
  IsaMask mask = isa::neon;  // part of the base architecture
  if (getauxval(AT_HWCAP) & kAsimdDp) mask |= isa::neon_dotprod;
  if (getauxval(AT_HWCAP2) & kI8mm) mask |= isa::neon_i8mm;
  return mask;
}
#else
IsaMask detect() {
  return QF_ARM64 ? isa::neon : isa::scalar;
}
#endif

struct Limit {
  IsaMask mask = ~IsaMask{0};
  Status status;
};

const Limit& limit() {
  static const Limit kLimit = [] {
    Limit made;
    const char* text = std::getenv("QF_MAX_ISA");
    if (!text || !*text) return made;
    std::string names;
    for (const IsaName& level : kLevels) {
      if (std::string_view(text) == level.name) {
        made.mask = level.bits;
        return made;
      }
      names += cat({names.empty() ? "" : "|", level.name});
    }
    made.mask = isa::scalar;
    made.status =
        Status(Errc::invalid_argument, cat({"QF_MAX_ISA is ", printable(text), ", expected ", names}));
    return made;
  }();
  return kLimit;
}

}  // namespace

IsaMask cpu_isa() {
  static const IsaMask kDetected = detect();
  return kDetected & limit().mask;
}

// 1 x 11008 x 4096 with 4 bits, GB/s 2 KiB · 256 B ahead: AMD Zen 4 21.6 · 30.0, whose own prefetchers are disturbed by
// requests from far ahead; Intel Sapphire Rapids 17.3 · less, whose prefetchers hardly overlap reading and computing.
std::int64_t prefetch_bytes() {
#if QF_X86 && !QF_EMULATED
  static const bool kNear = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0, &a, &b, &c, &d) && c == signature_AMD_ecx;
  }();
  return kNear ? 256 : 2048;
#else
  return 2048;
#endif
}

Status check_max_isa() {
  return limit().status;
}

std::string isa_name(IsaMask mask) {
  std::string text;
  for (const IsaName& one : kIsaNames)
    if (mask & one.bits) text += cat({text.empty() ? "" : "+", one.name});
  return text.empty() ? "scalar" : text;
}

}  // namespace qf::kernel
