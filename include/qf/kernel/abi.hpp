// What a kernel is: plain data. Kernels see this header, core/{config,dtype,half} and format/*, nothing else.
#pragma once

#include <cstddef>
#include <cstdint>

#include "qf/core/dtype.hpp"
#include "qf/format/scheme.hpp"

namespace qf::kernel {

enum class Op : std::uint8_t { gemv, gemm };  // one row of x; several

// Instruction sets as bits; a kernel needs all of its bits.
using IsaMask = std::uint32_t;
namespace isa {
inline constexpr IsaMask scalar = 0, avx2 = 1u << 0 /* with FMA and F16C */,
                         avx512 = 1u << 1 /* F BW VL DQ */, avx512_vnni = 1u << 2, avx_vnni = 1u << 3,
                         avx512_bf16 = 1u << 4, neon = 1u << 8, neon_dotprod = 1u << 9, neon_i8mm = 1u << 10;
}

// How weights lie in a PackedWeight. The buffer names its layout, and the layout chooses the kernel.
// docs/kernels.md states every byte.
enum class Layout : std::uint16_t {
  canonical = 0,  // codes as bytes [n, k], scales and zeros as f32 [n, groups]: the oracle's
  rows16 = 1,     // blocks of 16 rows, codes in nibbles (1 to 4 bits) or bytes (5 to 8 bits)
};

// How activations are computed with: relative RMS against f64 on normal weights and activations.
enum class Accuracy : std::uint8_t {
  exact,  // f32, or 24-bit integers per group: as good as a float matmul (<= 1e-6)
  fast,   // 8-bit integers per group (<= 1 %)
  int16,  // 16-bit integers per group (<= 3e-5)
};

// The first 64 bytes of a PackedWeight. Little-endian, like everything behind it.
struct PackedHeader {
  static constexpr std::uint32_t kMagic = 0x57504651;  // "QFPW"
  static constexpr std::uint16_t kVersion = 1;
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t layout;                      // Layout
  std::uint8_t bits, zero, scale, codebook;  // Scheme
  std::uint8_t has_group_of;                 // 1: canonical layout with the group of each column
  std::uint8_t reserved[3];                  // 0
  std::int64_t group, n, k;
  std::int64_t codes_offset;   // from the buffer's first byte
  std::int64_t params_offset;  // of scales and what follows them; rows16: 0, since they stand among the codes
  std::int64_t size_bytes;     // of the whole buffer
};
static_assert(sizeof(PackedHeader) == 64);

constexpr Scheme scheme_of(const PackedHeader& h) {
  return {h.bits, h.group, static_cast<ZeroKind>(h.zero), static_cast<DType>(h.scale),
          static_cast<CodebookKind>(h.codebook)};
}

// Where things are in layout rows16. A block of 16 rows is a run of chunks; a chunk is a head of 64-byte
// lines with parameters, then the code lines of its groups. A unit is the fewest whole lines that hold whole
// columns of the 16 rows. A group whose size isn't a multiple of a unit's columns ends in a unit whose codes
// beyond the group are 0.
struct Rows16 {
  static constexpr std::int64_t kRows = 16, kLine = 64;
  int bits;                 // of a stored code: 4 or 8
  bool wide;                // parameters are f32, else f16
  bool zeros;               // zeros are stored
  float zero;               // middle of the codes; the zero of every group when none are stored
  int chunk_groups;         // 2 when scales alone are f16, else 1
  std::int64_t head_bytes;  // of a chunk's head
  std::int64_t unit_columns, unit_bytes;
  std::int64_t n, k, group, groups, group_units, last_group_units, chunk_bytes, block_bytes, blocks;

  constexpr Rows16(const Scheme& s, std::int64_t rows, std::int64_t columns)
      : bits(s.bits <= 4 ? 4 : 8),
        wide(s.scale != DType::f16 || s.zero == ZeroKind::floating),
        zeros(s.zero != ZeroKind::symmetric),
        zero(s.symmetric_zero()),
        chunk_groups(!wide && !zeros ? 2 : 1),
        head_bytes(wide && zeros ? 2 * kLine : kLine),
        unit_columns(bits == 4 ? 8 : 4),
        unit_bytes(kLine),
        n(rows),
        k(columns),
        group(s.group_size(columns)),
        groups(s.groups(columns)),
        group_units(units_for(group)),
        last_group_units(groups ? units_for(k - (groups - 1) * group) : 0),
        chunk_bytes(head_bytes + chunk_groups * group_units * unit_bytes),
        block_bytes(groups ? (groups + chunk_groups - 1) / chunk_groups * head_bytes +
                                 ((groups - 1) * group_units + last_group_units) * unit_bytes
                           : 0),
        blocks((n + kRows - 1) / kRows) {}

  constexpr std::int64_t units_for(std::int64_t columns) const {
    return (columns + unit_columns - 1) / unit_columns;
  }
  constexpr std::int64_t units(std::int64_t g) const {
    return g + 1 == groups ? last_group_units : group_units;
  }
  constexpr std::int64_t columns(std::int64_t g) const { return g + 1 == groups ? k - g * group : group; }
  // Offsets from the first byte of a block.
  constexpr std::int64_t codes_at(std::int64_t g) const {
    return g / chunk_groups * chunk_bytes + head_bytes + g % chunk_groups * group_units * unit_bytes;
  }
  constexpr std::int64_t scales_at(std::int64_t g) const {
    return g / chunk_groups * chunk_bytes + g % chunk_groups * (kLine / 2);
  }
  constexpr std::int64_t zeros_at(std::int64_t g) const {
    return g / chunk_groups * chunk_bytes + (wide ? kLine : kLine / 2);
  }
  // The bit at which column c of a line begins in a row's 32 bits.
  static constexpr int shift(int stored_bits, int c) {
    return stored_bits == 8 ? 8 * c : c < 4 ? 8 * c : 8 * (c - 4) + 4;
  }
};

// Integer kernels add up at most this many columns of a group exactly before they round: a chain.
inline constexpr std::int64_t kChainColumns = 256;

// y [m, n] = x [m, k] * w^T [k, n] + bias. Everything is checked by matmul() before a kernel sees it.
struct MatmulArgs {
  std::int64_t m, n, k;
  const float* x;  // row stride x_stride elements
  std::int64_t x_stride;
  const std::byte* weight;  // a PackedWeight's buffer, header included; 64-byte aligned
  float* y;                 // row stride y_stride elements
  std::int64_t y_stride;
  const float* bias;            // [n] or nullptr
  std::int64_t n_begin, n_end;  // the outputs to compute; n_begin is a multiple of n_step
  // x as integers of the caller, then x is nullptr and x_stride that of x_i8: x(i, c) = x_i8(i, c) *
  // x_scales(i, c / x_group). Only kernels that prepare 8-bit integers see it.
  const std::int8_t* x_i8;
  const float* x_scales;
  std::int64_t x_scales_stride, x_group;
  // Both 64-byte aligned and not zeroed; nullptr where the kernel asks for 0 bytes.
  void* prepared;  // prepared_bytes: x in the kernel's own form, for all tasks of a call
  void* scratch;   // scratch_bytes: of one call of `run`
};

// What a file of kernels/cpu defines for each row of the table. All are noexcept: no checks, no allocation, no
// threads, and no memory outside the extents given.
struct KernelFunctions {
  void (*run)(const MatmulArgs&) noexcept;  // y(i, j) doesn't depend on how n is split
  std::int64_t (*scratch_bytes)(const MatmulArgs&) noexcept;
  // nullptr: `run` reads x itself. Else prepare() is called for every row of x once before `run`, from many
  // threads for different rows; row_begin is a multiple of prepare_step.
  std::int64_t (*prepared_bytes)(const MatmulArgs&) noexcept = nullptr;
  void (*prepare)(const MatmulArgs&, std::int64_t row_begin, std::int64_t row_end) noexcept = nullptr;
  std::int64_t prepare_step = 1;
};

// One row of kernels.inc.
struct Kernel {
  const char* name;
  Op op;
  Accuracy accuracy;
  Layout layout;
  int bits;  // of a stored code; 0: any
  IsaMask isa;
  std::int64_t m_min, m_max;  // rows of x it accepts
  std::int64_t n_step;        // the host may split n at multiples of it
  const KernelFunctions* functions;
};

}  // namespace qf::kernel
