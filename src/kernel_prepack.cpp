// From the canonical form to the buffer that kernels read, and the check of buffers that come from files.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "qf/core/align.hpp"
#include "qf/core/half.hpp"
#include "qf/kernel/matmul.hpp"

namespace qf::kernel {
namespace {

// The columns in the order of their groups, if every group has as many as it would have without group_of; else
// nothing, and rows16 doesn't hold the matrix.
std::vector<std::int32_t> order_of(const QuantizedMatrix& w) {
  const auto groups = static_cast<std::size_t>(w.groups());
  std::vector<std::int64_t> next(groups), end(groups);
  for (std::size_t g = 0; g < groups; ++g) {
    next[g] = static_cast<std::int64_t>(g) * w.group_size();
    end[g] = std::min(next[g] + w.group_size(), w.k());
  }
  std::vector<std::int32_t> order(static_cast<std::size_t>(w.k()));
  for (std::size_t c = 0; c < order.size(); ++c) {
    const auto g = static_cast<std::size_t>(w.group_of()[c]);
    if (next[g] == end[g]) return {};
    order[static_cast<std::size_t>(next[g]++)] = static_cast<std::int32_t>(c);
  }
  return order;
}

// The header that a matrix of this scheme and shape has: the one place where offsets are computed.
Result<PackedHeader> describe(const Scheme& scheme, Layout layout, bool has_group_of, std::int64_t n,
                              std::int64_t k) {
  QF_TRY(check(scheme));
  // Far beyond any memory, and small enough that nothing below overflows: at most 80 bytes a weight.
  constexpr std::int64_t kMost = std::int64_t{1} << 48;
  std::int64_t weights = 0;
  if (n < 0 || k < 0 || n > kMost / 64 || k > kMost / 64 ||
      __builtin_mul_overflow((n + 15) / 16 * 16, (k + 7) / 8 * 8, &weights) || weights > kMost)
    return Status(Errc::invalid_argument, cat({"a packed weight of ", num(n), " x ", num(k)}));
  PackedHeader h{};
  h.magic = PackedHeader::kMagic;
  h.version = PackedHeader::kVersion;
  h.layout = static_cast<std::uint16_t>(layout);
  h.bits = static_cast<std::uint8_t>(scheme.bits);
  h.zero = static_cast<std::uint8_t>(scheme.zero);
  h.scale = static_cast<std::uint8_t>(scheme.scale);
  h.codebook = static_cast<std::uint8_t>(scheme.codebook);
  h.has_group_of = has_group_of ? 1 : 0;
  h.group = scheme.group;
  h.n = n;
  h.k = k;
  h.codes_offset = sizeof(PackedHeader);
  if (layout == Layout::rows16) {
    const Rows16 rows(scheme, n, k);
    const std::int64_t blocks_end = h.codes_offset + rows.blocks * rows.block_bytes;
    const std::int64_t behind = rows.table_bytes() + (has_group_of ? 4 * k : 0);
    if (behind > 0) h.params_offset = blocks_end;
    h.size_bytes = align64(blocks_end + behind);
  } else {
    const std::int64_t groups = scheme.groups(k);
    const bool book = scheme.codebook != CodebookKind::none;
    const std::int64_t floats =
        n * groups * (scheme.zero != ZeroKind::symmetric && !book ? 2 : 1) +
        (book ? (scheme.codebook == CodebookKind::per_row ? n : 1) * scheme.levels() : 0);
    h.params_offset = h.codes_offset + align64(n * k);
    h.size_bytes = align64(h.params_offset + 4 * floats + (has_group_of ? 4 * k : 0));
  }
  return h;
}

void store(std::byte* to, float value, bool wide) {
  if (wide) {
    std::memcpy(to, &value, 4);
  } else {
    const f16 half(value);
    std::memcpy(to, &half, 2);
  }
}

// Four bytes each of four rows.
using Words = std::uint32_t __attribute__((vector_size(16)));

// 16 rows x kRun columns of codes fill `bits` lines at any width.
constexpr int kRun = 32, kRunSteps = kRun / Rows16::kStepColumns;
static_assert(kRun % Rows16::columns_of_unit(3) == 0 && kRun % Rows16::columns_of_unit(5) == 0);

// steps[t][q]: columns 4 t .. 4 t + 3 of rows 4 q .. 4 q + 3.
void transpose(const std::uint8_t* codes, std::int64_t stride, Words (&steps)[kRunSteps][4]) {
  for (int q = 0; q < 4; ++q, codes += 4 * stride)
    for (int t = 0; t < kRunSteps; t += 4) {
      Words row[4];
      for (int i = 0; i < 4; ++i)
        std::memcpy(&row[i], codes + i * stride + Rows16::kStepColumns * t, sizeof row[i]);
      const Words a = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
      const Words b = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
      const Words c = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
      const Words d = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
      steps[t][q] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
      steps[t + 1][q] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
      steps[t + 2][q] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
      steps[t + 3][q] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
    }
}

// 16 rows x kRun columns as lines[..][q].
template <int Bits>
void pack_run(const std::uint8_t* codes, std::int64_t stride, Words (&lines)[Bits][4]) {
  constexpr int kLow = Rows16::low_bits(Bits), kHigh = Rows16::high_bits(Bits), kOfLine = 8 / kLow;
  constexpr int kSteps = Rows16::unit_steps(Bits), kLines = Rows16::unit_lines(Bits);
  constexpr std::uint32_t kEach = 0x01010101, kLowMask = kEach * ((1 << kLow) - 1);
  constexpr std::uint32_t kHighMask = kEach * ((1 << kHigh) - 1);
  Words steps[kRunSteps][4];
  transpose(codes, stride, steps);
  for (int unit = 0; unit < kRunSteps / kSteps; ++unit)
    for (int q = 0; q < 4; ++q) {
      Words* to = &lines[unit * kLines][q];
      for (int line = 0; line < kSteps / kOfLine; ++line) {
        Words word{};
        for (int i = 0; i < kOfLine; ++i)
          word |= (steps[unit * kSteps + line * kOfLine + i][q] & kLowMask) << i * kLow;
        to[4 * line] = word;
      }
      if constexpr (kHigh > 0) {
        Words word{};
        for (int i = 0; i < kSteps; ++i)
          word |= (steps[unit * kSteps + i][q] >> kLow & kHighMask) << i * kHigh;
        to[4 * (kLines - 1)] = word;
      }
    }
}

// The units of one group: `rows` rows of columns [begin, end), which are order[begin ..] if there is an order.
template <int Bits>
void pack_units(const std::uint8_t* codes, std::int64_t stride, std::int64_t rows, std::int64_t begin,
                std::int64_t end, const std::int32_t* order, std::byte* out) {
  for (; begin < end; begin += kRun) {
    Words lines[Bits][4];
    std::int64_t filled = Bits;
    if (!order && rows == Rows16::kRows && end - begin >= kRun) {
      pack_run<Bits>(codes + begin, stride, lines);
    } else {
      constexpr std::int64_t kUnit = Rows16::columns_of_unit(Bits);
      const std::int64_t some = std::min<std::int64_t>(end - begin, kRun);
      std::uint8_t padded[Rows16::kRows][kRun] = {};
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < some; ++c)
          padded[r][c] = codes[r * stride + (order ? order[begin + c] : begin + c)];
      pack_run<Bits>(padded[0], kRun, lines);
      filled = (some + kUnit - 1) / kUnit * Rows16::unit_lines(Bits);
    }
    std::memcpy(out, lines, static_cast<std::size_t>(filled * Rows16::kLine));
    out += filled * Rows16::kLine;
  }
}

// Rows beyond n keep the zeros of the buffer: codes, scales and zeros of 0, so that they come to 0.
template <int Bits>
void pack_block(const QuantizedMatrix& w, const Rows16& at, const std::int32_t* order, std::int64_t block,
                std::byte* out) {
  const std::int64_t first = block * Rows16::kRows, rows = std::min(Rows16::kRows, w.n() - first);
  const std::int64_t param_bytes = at.wide ? 4 : 2;
  for (std::int64_t g = 0; g < at.groups; ++g) {
    for (std::int64_t r = 0; r < rows; ++r) {
      store(out + at.scales_at(g) + r * param_bytes, w.scales()(first + r, g), at.wide);
      if (at.zeros) store(out + at.zeros_at(g) + r * param_bytes, w.zeros()(first + r, g), at.wide);
    }
    const std::int64_t begin = g * at.group;
    pack_units<Bits>(w.codes().row(first), w.k(), rows, begin, begin + at.columns(g), order,
                     out + at.codes_at(g));
  }
}

constexpr auto pack_block_of(int bits) {
  switch (bits) {
    case 2:
      return pack_block<2>;
    case 3:
      return pack_block<3>;
    case 4:
      return pack_block<4>;
    case 5:
      return pack_block<5>;
    case 6:
      return pack_block<6>;
    default:
      return pack_block<8>;
  }
}

// Of the scales that make the largest entry 64 to 127, the one with the least error: some codebooks, such as FP4's,
// become exact.
ByteTable byte_table(const float* entries) {
  ByteTable best{};
  std::fill(std::begin(best.codes), std::end(best.codes), std::uint8_t{128});
  float most = 0;
  for (int i = 0; i < 16; ++i) {
    if (!std::isfinite(entries[i])) return best.scale = std::nanf(""), best;
    most = std::max(most, std::fabs(entries[i]));
  }
  if (most == 0) return best;
  double least = INFINITY;
  for (int top = 127; top >= 64; --top) {
    ByteTable made{};
    made.scale = most / static_cast<float>(top);
    double error = 0;
    for (int i = 0; i < 16; ++i) {
      const double integer =
          std::nearbyint(static_cast<double>(entries[i]) / static_cast<double>(made.scale));
      const double off = static_cast<double>(entries[i]) - integer * static_cast<double>(made.scale);
      error += off * off;
      made.codes[i] = static_cast<std::uint8_t>(128 + std::clamp(integer, -127.0, 127.0));
    }
    if (error < least) least = error, best = made;
  }
  return best;
}

template <class Float>
bool is_float8(const QuantizedMatrix& w, const float* entries, Float8Table& made) {
  constexpr int kOne = Float(1.0f).bits;
  made.factor = entries[kOne];
  if (!(std::fabs(made.factor) > 0x1p-60f && std::fabs(made.factor) < 0x1p7f)) return false;
  bool odd[256] = {};
  int odd_count = 0;
  for (int code = 0; code < 256; ++code) {
    Float value;
    value.bits = static_cast<std::uint8_t>(code);
    const float expected = static_cast<float>(value) * made.factor;
    odd[code] = !(std::fabs(entries[code] - expected) <= 2e-7f * std::fabs(expected));
    odd_count += odd[code];
  }
  if (odd_count > 8) return false;  // NaN and infinity of E5M2
  for (int code = 0; code < 256; ++code)
    if (odd[code] && w.codes().size() > 0 &&
        std::memchr(w.codes().data, code, static_cast<std::size_t>(w.codes().size())))
      return false;
  return true;
}

Float8Table float8_table(const QuantizedMatrix& w, const float* entries) {
  Float8Table made{};
  if (is_float8<f8e4m3>(w, entries, made)) return made.mantissa_bits = 3, made;
  if (is_float8<f8e5m2>(w, entries, made)) return made.mantissa_bits = 2, made;
  return {};
}

void pack_tables(const QuantizedMatrix& w, const Rows16& at, std::byte* out) {
  const auto books = w.codebook();
  for (std::int64_t r = 0; r < books.shape[0]; ++r)
    std::memcpy(out + 4 * r * at.table_entries, books.row(r),
                sizeof(float) * static_cast<std::size_t>(w.scheme().levels()));
  const auto append = [&](const auto& line) { std::memcpy(out + 4 * at.table_entries, &line, sizeof line); };
  const auto* entries = reinterpret_cast<const float*>(out);
  if (at.meaning() == codes::short_table) append(byte_table(entries));
  if (at.meaning() == codes::table) append(float8_table(w, entries));
}

void pack_canonical(const QuantizedMatrix& w, const PackedHeader& h, std::byte* out,
                    const ParallelFor& parallel) {
  const auto codes = w.codes();
  parallel_for(parallel, w.n(), [&](std::int64_t row) {
    if (w.k())
      std::memcpy(out + h.codes_offset + row * w.k(), codes.row(row), static_cast<std::size_t>(w.k()));
  });
  std::byte* to = out + h.params_offset;
  const auto append = [&](const void* from, std::int64_t bytes) {
    if (bytes) std::memcpy(to, from, static_cast<std::size_t>(bytes));
    to += bytes;
  };
  append(w.scales().data, 4 * w.scales().size());
  append(w.zeros().data, 4 * w.zeros().size());
  append(w.codebook().data, 4 * w.codebook().size());
  append(w.group_of().data(), 4 * static_cast<std::int64_t>(w.group_of().size()));
}

// Every index that the canonical kernel follows.
Status check_canonical(const PackedHeader& h, const std::byte* buffer) {
  const Scheme scheme = scheme_of(h);
  const std::int64_t groups = scheme.groups(h.k);
  for (std::int64_t i = 0; i < h.n * h.k; ++i) {
    const int code = std::to_integer<int>(buffer[h.codes_offset + i]);
    if (code >= scheme.levels())
      return Status(Errc::bad_format, cat({"code ", num(code), " at row ", num(i / h.k), ", column ",
                                           num(i % h.k), ", expected below ", num(scheme.levels())}));
  }
  if (!h.has_group_of) return {};
  const bool book = scheme.codebook != CodebookKind::none;
  const std::int64_t floats =
      h.n * groups * (scheme.zero != ZeroKind::symmetric && !book ? 2 : 1) +
      (book ? (scheme.codebook == CodebookKind::per_row ? h.n : 1) * scheme.levels() : 0);
  for (std::int64_t c = 0; c < h.k; ++c) {
    std::int32_t g = 0;
    std::memcpy(&g, buffer + h.params_offset + 4 * (floats + c), 4);
    if (g < 0 || g >= groups)
      return Status(Errc::bad_format, cat({"group index ", num(g), " of column ", num(c), ", expected 0 to ",
                                           num(groups - 1)}));
  }
  return {};
}

// x is read where the order of columns says.
Status check_order(const PackedHeader& h, const std::byte* buffer) {
  if (!h.has_group_of) return {};
  const std::byte* order = buffer + h.params_offset + Rows16(scheme_of(h), h.n, h.k).table_bytes();
  std::vector<bool> seen(static_cast<std::size_t>(h.k));
  for (std::int64_t i = 0; i < h.k; ++i) {
    std::int32_t c = 0;
    std::memcpy(&c, order + 4 * i, 4);
    if (c < 0 || c >= h.k || seen[static_cast<std::size_t>(c)])
      return Status(Errc::bad_format,
                    cat({"column ", num(c), " at place ", num(i),
                         " of the order of columns, expected each of 0 to ", num(h.k - 1), " once"}));
    seen[static_cast<std::size_t>(c)] = true;
  }
  return {};
}

Status check_buffer(std::span<const std::byte> buffer, PackedHeader& h) {
  const auto wrong = [](std::string_view field, std::int64_t found, std::string_view expected) {
    return Status(Errc::bad_format, cat({field, " ", num(found), ", expected ", expected}));
  };
  if (buffer.size() < sizeof h)
    return wrong("size", static_cast<std::int64_t>(buffer.size()), "64 or more bytes");
  std::memcpy(&h, buffer.data(), sizeof h);
  if (h.magic != PackedHeader::kMagic) return wrong("magic", h.magic, num(PackedHeader::kMagic));
  if (h.version != PackedHeader::kVersion) return wrong("version", h.version, num(PackedHeader::kVersion));
  if (h.layout > static_cast<std::uint16_t>(Layout::rows16)) return wrong("layout", h.layout, "0 or 1");
  if (h.zero > static_cast<std::uint8_t>(ZeroKind::floating)) return wrong("zero kind", h.zero, "0 to 2");
  if (h.codebook > static_cast<std::uint8_t>(CodebookKind::per_row))
    return wrong("codebook kind", h.codebook, "0 to 2");
  if (h.has_group_of > 1) return wrong("has_group_of", h.has_group_of, "0 or 1");
  for (std::uint8_t byte : h.reserved)
    if (byte) return wrong("reserved byte", byte, "0");
  const auto layout = static_cast<Layout>(h.layout);
  auto made = describe(scheme_of(h), layout, h.has_group_of, h.n, h.k);
  if (!made.ok()) return Status(Errc::bad_format, made.status().text());
  if (h.codes_offset != made->codes_offset)
    return wrong("codes_offset", h.codes_offset, num(made->codes_offset));
  if (h.params_offset != made->params_offset)
    return wrong("params_offset", h.params_offset, num(made->params_offset));
  if (h.size_bytes != made->size_bytes) return wrong("size_bytes", h.size_bytes, num(made->size_bytes));
  if (static_cast<std::int64_t>(buffer.size()) != h.size_bytes)
    return wrong("size", static_cast<std::int64_t>(buffer.size()), cat({num(h.size_bytes), " bytes"}));
  return layout == Layout::canonical ? check_canonical(h, buffer.data()) : check_order(h, buffer.data());
}

}  // namespace

Result<PackedWeight> PackedWeight::from_bytes(std::span<const std::byte> bytes, std::string_view what) {
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % kBufferAlignment)
    return Status(Errc::invalid_argument, cat({what, ": a packed weight that isn't aligned to 64 bytes"}));
  PackedWeight weight;
  if (Status status = check_buffer(bytes, weight.header_); !status.ok()) return status.at(what);
  weight.scheme_ = scheme_of(weight.header_);
  weight.bytes_ = bytes;
  return weight;
}

Result<PackedWeight> PackedWeight::from_buffer(Array<std::byte> buffer, std::string_view what) {
  QF_TRY_ASSIGN(PackedWeight weight, from_bytes(buffer, what));
  weight.owned_ = std::move(buffer);
  return weight;
}

Result<PackedWeight> prepack(const QuantizedMatrix& w, PackOptions options) {
  const bool has_group_of = !w.group_of().empty();
  Layout layout = options.layout;
  std::vector<std::int32_t> order;
  if (has_group_of && layout == Layout::rows16) {
    order = order_of(w);
    if (order.empty()) layout = Layout::canonical;
  }
  PackedWeight weight;
  weight.scheme_ = w.scheme();
  QF_TRY_ASSIGN(weight.header_, describe(w.scheme(), layout, has_group_of, w.n(), w.k()));
  const PackedHeader& h = weight.header_;
  QF_TRY_ASSIGN(weight.owned_,
                Array<std::byte>::make(static_cast<std::size_t>(h.size_bytes), *options.allocator));
  weight.bytes_ = weight.owned_;
  std::byte* out = weight.owned_.data();
  std::memcpy(out, &h, sizeof h);
  if (layout == Layout::rows16) {
    const Rows16 at(w.scheme(), w.n(), w.k());
    const auto pack = pack_block_of(at.bits);
    parallel_for(options.parallel, at.blocks, [&](std::int64_t block) {
      pack(w, at, order.empty() ? nullptr : order.data(), block,
           out + h.codes_offset + block * at.block_bytes);
    });
    pack_tables(w, at, out + h.params_offset);
    if (!order.empty()) std::memcpy(out + h.params_offset + at.table_bytes(), order.data(), 4 * order.size());
  } else {
    pack_canonical(w, h, out, options.parallel);
  }
  return weight;
}

}  // namespace qf::kernel
