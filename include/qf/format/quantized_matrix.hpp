// The canonical form of a low-bit matrix: what every quantizer writes, every file format maps to and from,
// and every kernel packs from. One byte a code in memory; files store codes densely (format/codes.hpp).
#pragma once

#include <cstdint>
#include <span>

#include "qf/core/buffer.hpp"
#include "qf/core/tensor.hpp"
#include "qf/format/scheme.hpp"

namespace qf {

// w [n, k], a row per output. Value of element (r, c), with j = permutation ? group_of[c] : c /
// group_size(k):
//   no codebook:  (codes(r, c) - zero(r, j)) * scale(r, j)
//   codebook:     codebook(r or 0, codes(r, c)) * scale(r, j)
// Thread rule: const use from many threads, one writer otherwise.
class QuantizedMatrix {
 public:
  QuantizedMatrix() = default;
  // Codes 0, scales 0, zeros 0. Errors: scheme out of range, negative n or k, out of memory.
  static Result<QuantizedMatrix> make(const Scheme& scheme, std::int64_t n, std::int64_t k,
                                      const Allocator& allocator = default_allocator()) {
    QF_TRY(check(scheme));
    std::int64_t size = 0;
    if (n < 0 || k < 0 || __builtin_mul_overflow(n, k, &size))
      return Status(Errc::invalid_argument, cat({"a matrix of ", num(n), " x ", num(k)}));
    QuantizedMatrix m;
    m.scheme_ = scheme, m.n_ = n, m.k_ = k;
    const std::int64_t groups = scheme.groups(k);
    QF_TRY_ASSIGN(m.codes_, Array<std::uint8_t>::make(static_cast<std::size_t>(size), allocator));
    QF_TRY_ASSIGN(m.scales_, Array<float>::make(static_cast<std::size_t>(n * groups), allocator));
    if (scheme.zero != ZeroKind::symmetric && scheme.codebook == CodebookKind::none) {
      QF_TRY_ASSIGN(m.zeros_, Array<float>::make(static_cast<std::size_t>(n * groups), allocator));
    }
    if (scheme.codebook != CodebookKind::none) {
      const std::int64_t books = scheme.codebook == CodebookKind::per_row ? n : 1;
      QF_TRY_ASSIGN(m.codebook_,
                    Array<float>::make(static_cast<std::size_t>(books * scheme.levels()), allocator));
    }
    return m;
  }

  const Scheme& scheme() const { return scheme_; }
  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }
  std::int64_t groups() const { return scheme_.groups(k_); }
  std::int64_t group_size() const { return scheme_.group_size(k_); }

  // [n, k], each below levels().
  MatrixView<std::uint8_t> codes() { return {codes_.data(), {n_, k_}}; }
  MatrixView<const std::uint8_t> codes() const { return {codes_.data(), {n_, k_}}; }
  // [n, groups]; each exactly representable in scheme().scale.
  MatrixView<float> scales() { return {scales_.data(), {n_, groups()}}; }
  MatrixView<const float> scales() const { return {scales_.data(), {n_, groups()}}; }
  // [n, groups]; empty (data == nullptr) when symmetric or with a codebook. Integers when ZeroKind::integer.
  MatrixView<float> zeros() { return {zeros_.data(), {zeros_.empty() ? 0 : n_, groups()}}; }
  MatrixView<const float> zeros() const { return {zeros_.data(), {zeros_.empty() ? 0 : n_, groups()}}; }
  // [n or 1, levels]; empty without a codebook.
  MatrixView<float> codebook() {
    return {codebook_.data(),
            {static_cast<std::int64_t>(codebook_.size()) / scheme_.levels(), scheme_.levels()}};
  }
  MatrixView<const float> codebook() const {
    return {codebook_.data(),
            {static_cast<std::int64_t>(codebook_.size()) / scheme_.levels(), scheme_.levels()}};
  }
  // [k], the group of each column (act-order); empty: column c belongs to group c / group_size().
  const Array<std::int32_t>& group_of() const { return group_of_; }
  Status set_group_of(std::span<const std::int32_t> groups_of_columns) {
    if (static_cast<std::int64_t>(groups_of_columns.size()) != k_)
      return Status(Errc::invalid_argument,
                    cat({num(groups_of_columns.size()), " group indices for ", num(k_), " columns"}));
    for (std::int32_t g : groups_of_columns)
      if (g < 0 || g >= groups())
        return Status(Errc::invalid_argument,
                      cat({"group index ", num(g), ", expected 0 to ", num(groups() - 1)}));
    QF_TRY_ASSIGN(group_of_, Array<std::int32_t>::make(groups_of_columns.size()));
    for (std::size_t i = 0; i < groups_of_columns.size(); ++i) group_of_[i] = groups_of_columns[i];
    return {};
  }

  std::int64_t group_index(std::int64_t column) const {
    return group_of_.empty() ? column / group_size() : group_of_[static_cast<std::size_t>(column)];
  }
  float zero(std::int64_t row, std::int64_t group) const {
    return zeros_.empty() ? scheme_.symmetric_zero() : zeros()(row, group);
  }
  float value(std::int64_t row, std::int64_t column) const {
    const std::int64_t g = group_index(column);
    const int code = codes()(row, column);
    const float scale = scales()(row, g);
    if (!codebook_.empty())
      return codebook()(scheme_.codebook == CodebookKind::per_row ? row : 0, code) * scale;
    return (static_cast<float>(code) - zero(row, g)) * scale;
  }
  // Writes row `row` as floats: out [k], made by the caller.
  void dequantize_row(std::int64_t row, float* out) const {
    for (std::int64_t c = 0; c < k_; ++c) out[c] = value(row, c);
  }

 private:
  Scheme scheme_;
  std::int64_t n_ = 0, k_ = 0;
  Array<std::uint8_t> codes_;
  Array<float> scales_, zeros_, codebook_;
  Array<std::int32_t> group_of_;
};

}  // namespace qf
