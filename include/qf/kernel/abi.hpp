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
  rows16 = 1,     // blocks of 16 rows, codes of 2, 3, 4, 5, 6 or 8 bits
};

// What a code of rows16 means, as bits: a kernel lists what it reads.
using CodeMask = std::uint32_t;
namespace codes {
inline constexpr CodeMask numbers = 1u << 0,  // an integer that counts from a zero
    short_table = 1u << 1,                    // an index into the matrix's codebook of at most 16 entries
    table = 1u << 2,                          // or of more
    row_tables = 1u << 3,                     // an index into the row's codebook
    any = numbers | short_table | table | row_tables;
}

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
  std::int64_t params_offset;  // of scales and what follows them; rows16: of codebooks, 0 without
  std::int64_t size_bytes;     // of the whole buffer
};
static_assert(sizeof(PackedHeader) == 64);

constexpr Scheme scheme_of(const PackedHeader& h) {
  return {h.bits, h.group, static_cast<ZeroKind>(h.zero), static_cast<DType>(h.scale),
          static_cast<CodebookKind>(h.codebook)};
}

// Where things are in layout rows16. A block of 16 rows is a run of chunks; a chunk is a head of 64-byte
// lines with parameters, then the codes of its groups in units. A step is 16 rows x 4 columns; a unit is the
// fewest steps whose codes fill whole lines. A group whose size isn't a multiple of a unit's columns ends in a
// unit whose codes beyond the group are 0.
//
// A code is stored as a low part of 2, 4 or 8 bits and, where bits are left, a high part. The lines of a unit
// hold the low parts of all steps, then its last line the high parts, each step in the next bits of every byte.
struct Rows16 {
  static constexpr std::int64_t kRows = 16, kLine = 64;
  static constexpr int kStepColumns = 4;
  static constexpr int low_bits(int stored) { return stored == 8 ? 8 : stored >= 4 ? 4 : 2; }
  static constexpr int high_bits(int stored) { return stored - low_bits(stored); }
  static constexpr int unit_steps(int stored) {
    return 8 / (high_bits(stored) ? high_bits(stored) : low_bits(stored));
  }
  static constexpr int unit_lines(int stored) { return unit_steps(stored) * stored / 8; }
  static constexpr int columns_of_unit(int stored) { return unit_steps(stored) * kStepColumns; }
  // The narrowest of 2, 3, 4, 5, 6 and 8 bits that holds the codes and whose units fill the groups, so that
  // no memory is spent on padding; a row of one group is padded at its end instead. 8 if no units fill them.
  // Indices into tables of more than 16 entries take 8 bits, and those into tables of rows at least 4.
  static constexpr int stored_bits(const Scheme& s, std::int64_t k) {
    const std::int64_t group = s.group_size(k);
    const int most = s.codebook == CodebookKind::none ? 6 : 4;
    const int least = s.codebook == CodebookKind::per_row ? 4 : 2;
    for (int stored = s.bits < least ? least : s.bits; stored <= most; ++stored)
      if (group == k || group % columns_of_unit(stored) == 0) return stored;
    return 8;
  }

  int bits;                   // of a stored code
  bool wide;                  // parameters are f32, else f16
  bool zeros;                 // zeros are stored
  float zero;                 // middle of the codes; the zero of every group when none are stored
  int chunk_groups;           // 2 when scales alone are f16, else 1
  std::int64_t head_bytes;    // of a chunk's head
  std::int64_t unit_columns;  // 4 to 32
  std::int64_t unit_bytes;
  int table_entries;  // of a codebook, filled up with 0: 16, or 256 where codes take 8 bits; 0: none
  bool row_tables;    // each row has a codebook
  std::int64_t n, k, group, groups, group_units, last_group_units, chunk_bytes, block_bytes, blocks;

  constexpr Rows16(const Scheme& s, std::int64_t rows, std::int64_t columns)
      : bits(stored_bits(s, columns)),
        wide(s.scale != DType::f16 || (s.zero == ZeroKind::floating && s.codebook == CodebookKind::none)),
        zeros(s.zero != ZeroKind::symmetric && s.codebook == CodebookKind::none),
        zero(s.symmetric_zero()),
        chunk_groups(!wide && !zeros ? 2 : 1),
        head_bytes(wide && zeros ? 2 * kLine : kLine),
        unit_columns(columns_of_unit(bits)),
        unit_bytes(unit_lines(bits) * kLine),
        table_entries(s.codebook == CodebookKind::none ? 0
                      : bits <= 4                      ? 16
                                                       : 1 << bits),
        row_tables(s.codebook == CodebookKind::per_row),
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

  constexpr CodeMask meaning() const {
    return table_entries == 0    ? codes::numbers
           : row_tables          ? codes::row_tables
           : table_entries == 16 ? codes::short_table
                                 : codes::table;
  }
  constexpr std::int64_t units_for(std::int64_t columns) const {
    return (columns + unit_columns - 1) / unit_columns;
  }
  constexpr std::int64_t units(std::int64_t g) const {
    return g + 1 == groups ? last_group_units : group_units;
  }
  constexpr std::int64_t columns(std::int64_t g) const { return g + 1 == groups ? k - g * group : group; }
  // Of all groups, each padded to whole units.
  constexpr std::int64_t padded_columns() const {
    return groups ? ((groups - 1) * group_units + last_group_units) * unit_columns : 0;
  }
  // Codebooks as f32 [blocks * 16 or 1, table_entries]; behind a single one stands a ByteTable (16 entries) or a
  // Float8Table (256).
  constexpr std::int64_t table_bytes() const {
    const std::int64_t each = table_entries * static_cast<std::int64_t>(sizeof(float));
    return table_entries == 0 ? 0 : row_tables ? blocks * kRows * each : each + kLine;
  }
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
};

// Integer kernels add up at most this many columns of a group exactly before they round: a chain.
inline constexpr std::int64_t kChainColumns = 256;

// A codebook of 16 entries as integers: entry = (code - 128) * scale, as nearly as 8 bits can.
struct ByteTable {
  std::uint8_t codes[16];
  float scale;
  std::uint8_t reserved[44];  // 0
};
static_assert(sizeof(ByteTable) == Rows16::kLine);

// A codebook of 256 entries that are floats of 8 bits (Micikevicius et al. 2022) times a factor, so that kernels make
// them from the bits of their codes. Codes for which that isn't so, such as NaN, don't occur.
struct Float8Table {
  std::uint32_t mantissa_bits;  // 3: E4M3, 2: E5M2, 0: other entries
  float factor;
  std::uint8_t reserved[56];  // 0
};
static_assert(sizeof(Float8Table) == Rows16::kLine);

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
  // How far ahead of its use a line of the weight is asked for, where all of it passes by once.
  std::int64_t ahead_bytes;
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
  int bits;        // of a stored code; 0: any
  CodeMask codes;  // that it reads
  IsaMask isa;
  std::int64_t m_min, m_max;  // rows of x it accepts
  std::int64_t n_step;        // the host may split n at multiples of it
  const KernelFunctions* functions;
};

}  // namespace qf::kernel
