// From the canonical form to the buffer that kernels read, and the check of buffers that come from files.
#include <algorithm>
#include <cstring>

#include "qf/kernel/matmul.hpp"

namespace qf::kernel {
namespace {

constexpr std::int64_t align64(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

bool rows16_holds(const Scheme& s, bool has_group_of) {
  return s.codebook == CodebookKind::none && !has_group_of;
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
    h.size_bytes = h.codes_offset + rows.blocks * rows.block_bytes;
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

// Up to four codes of a row as 32 bits, the first in the lowest byte; 0 where there are none.
std::uint32_t four_codes(const std::uint8_t* codes, std::int64_t count) {
  std::uint32_t word = 0;
  if (count >= 4) {
    std::memcpy(&word, codes, 4);
  } else {
    for (std::int64_t i = 0; i < count; ++i) word |= static_cast<std::uint32_t>(codes[i]) << 8 * i;
  }
  return word;
}

// Rows beyond n keep the zeros of the buffer: codes, scales and zeros of 0, so that they come to 0.
void pack_block(const QuantizedMatrix& w, const Rows16& at, std::int64_t block, std::byte* out) {
  const std::int64_t first = block * Rows16::kRows, last = std::min(first + Rows16::kRows, w.n());
  const std::int64_t param_bytes = at.wide ? 4 : 2;
  const auto codes = w.codes();
  for (std::int64_t g = 0; g < at.groups; ++g) {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t r = row - first;
      store(out + at.scales_at(g) + r * param_bytes, w.scales()(row, g), at.wide);
      if (at.zeros) store(out + at.zeros_at(g) + r * param_bytes, w.zeros()(row, g), at.wide);
      const std::uint8_t* from = codes.row(row) + g * at.group;
      std::byte* to = out + at.codes_at(g) + 4 * r;
      for (std::int64_t left = at.columns(g); left > 0; left -= at.unit_columns) {
        std::uint32_t word = four_codes(from, left);
        if (at.bits == 4) word |= four_codes(from + 4, left - 4) << 4;
        std::memcpy(to, &word, 4);
        from += at.unit_columns;
        to += Rows16::kLine;
      }
    }
  }
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

Status check_buffer(const Array<std::byte>& buffer, PackedHeader& h) {
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
  if (layout == Layout::rows16 && !rows16_holds(scheme_of(h), h.has_group_of))
    return Status(Errc::bad_format, "layout rows16 with a codebook or group indices");
  auto made = describe(scheme_of(h), layout, h.has_group_of, h.n, h.k);
  if (!made.ok()) return Status(Errc::bad_format, made.status().text());
  if (h.codes_offset != made->codes_offset)
    return wrong("codes_offset", h.codes_offset, num(made->codes_offset));
  if (h.params_offset != made->params_offset)
    return wrong("params_offset", h.params_offset, num(made->params_offset));
  if (h.size_bytes != made->size_bytes) return wrong("size_bytes", h.size_bytes, num(made->size_bytes));
  if (static_cast<std::int64_t>(buffer.size()) != h.size_bytes)
    return wrong("size", static_cast<std::int64_t>(buffer.size()), cat({num(h.size_bytes), " bytes"}));
  if (layout == Layout::canonical) QF_TRY(check_canonical(h, buffer.data()));
  return {};
}

}  // namespace

Result<PackedWeight> PackedWeight::from_buffer(Array<std::byte> buffer, std::string_view what) {
  PackedWeight weight;
  if (Status status = check_buffer(buffer, weight.header_); !status.ok()) return status.at(what);
  weight.scheme_ = scheme_of(weight.header_);
  weight.buffer_ = std::move(buffer);
  return weight;
}

Result<PackedWeight> prepack(const QuantizedMatrix& w, PackOptions options) {
  const bool has_group_of = !w.group_of().empty();
  const Layout layout = rows16_holds(w.scheme(), has_group_of) ? options.layout : Layout::canonical;
  PackedWeight weight;
  weight.scheme_ = w.scheme();
  QF_TRY_ASSIGN(weight.header_, describe(w.scheme(), layout, has_group_of, w.n(), w.k()));
  const PackedHeader& h = weight.header_;
  QF_TRY_ASSIGN(weight.buffer_,
                Array<std::byte>::make(static_cast<std::size_t>(h.size_bytes), *options.allocator));
  std::byte* out = weight.buffer_.data();
  std::memcpy(out, &h, sizeof h);
  if (layout == Layout::rows16) {
    const Rows16 at(w.scheme(), w.n(), w.k());
    parallel_for(options.parallel, at.blocks, [&](std::int64_t block) {
      pack_block(w, at, block, out + h.codes_offset + block * at.block_bytes);
    });
  } else {
    pack_canonical(w, h, out, options.parallel);
  }
  return weight;
}

}  // namespace qf::kernel
