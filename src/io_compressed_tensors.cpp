#include "qf/io/compressed_tensors.hpp"

#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "io_posix.hpp"
#include "qf/format/codes.hpp"
#include "qf/io/convert.hpp"

namespace qf::io {
namespace {

constexpr std::string_view kPacked = ".weight_packed", kScale = ".weight_scale", kZero = ".weight_zero_point",
                           kShape = ".weight_shape", kOrder = ".weight_g_idx";

// Words that `count` codes take when each word holds only whole codes (compressed-tensors up to 0.17).
std::int64_t padded_words(std::int64_t count, int bits) {
  const std::int64_t each = 32 / bits;
  return (count + each - 1) / each;
}

template <int Bits>
void unpack_dense(const std::uint32_t* words, std::int64_t count, std::uint8_t* codes) {
  Codes<Bits>::unpack(words, count, codes);
}

void unpack_padded(const std::uint32_t* words, std::int64_t count, int bits, std::uint8_t* codes) {
  const std::int64_t each = 32 / bits;
  const std::uint32_t mask = (1u << bits) - 1;
  for (std::int64_t i = 0; i < count; ++i)
    codes[i] = static_cast<std::uint8_t>(words[i / each] >> (i % each * bits) & mask);
}

void unpack(const std::uint32_t* words, std::int64_t count, int bits, bool padded, std::uint8_t* codes) {
  using Unpack = void (*)(const std::uint32_t*, std::int64_t, std::uint8_t*);
  static constexpr Unpack kDense[] = {unpack_dense<1>, unpack_dense<2>, unpack_dense<3>, unpack_dense<4>,
                                      unpack_dense<5>, unpack_dense<6>, unpack_dense<7>, unpack_dense<8>};
  padded ? unpack_padded(words, count, bits, codes) : kDense[bits - 1](words, count, codes);
}

// Reading one module.
class Reader {
 public:
  Reader(const Checkpoint& checkpoint, const std::string& module, const QuantizationGroup& group,
         const std::string& version)
      : checkpoint_(checkpoint), module_(module), group_(group), scheme_(group.scheme), version_(version) {}

  Result<QuantizedMatrix> read(const Allocator& allocator) {
    QF_TRY(check(scheme_));
    QF_TRY(check_scheme());
    QF_TRY(find_tensors());
    QF_TRY(read_shape());
    QF_TRY(check_shapes());
    QF_TRY_ASSIGN(const bool padded, find_order());
    auto made = QuantizedMatrix::make(scheme_, n_, k_, allocator);
    if (!made.ok()) return made.status().at(place(""));
    QuantizedMatrix matrix = std::move(*made);
    read_codes(padded, matrix);
    QF_TRY(read_scales(matrix));
    if (zero_) read_zeros(padded, matrix);
    if (order_) QF_TRY(read_group_of(matrix));
    return matrix;
  }

 private:
  std::string place(std::string_view tensor) const {
    return cat({checkpoint_.path(), ": tensor ", printable(cat({module_, tensor}))});
  }
  Status bad(std::string_view tensor, std::initializer_list<std::string_view> parts) const {
    return Status(Errc::bad_format, cat({place(tensor), ": ", cat(parts)}));
  }

  Status check_scheme() const {
    if (scheme_.codebook != CodebookKind::none || scheme_.zero == ZeroKind::floating)
      return Status(Errc::unsupported,
                    cat({place(""), ": codebooks and floating zeros can't be stored as compressed-tensors"}));
    return {};
  }

  Status find_tensor(std::string_view suffix, const TensorInfo*& info) const {
    info = checkpoint_.find(cat({module_, suffix}));
    return info ? Status() : Status(Errc::not_found, cat({place(suffix), ": not there"}));
  }

  Status find_tensors() {
    QF_TRY(find_tensor(kPacked, packed_));
    QF_TRY(find_tensor(kScale, scale_));
    QF_TRY(find_tensor(kShape, shape_));
    zero_ = checkpoint_.find(cat({module_, kZero}));
    order_ = checkpoint_.find(cat({module_, kOrder}));
    if (scheme_.zero == ZeroKind::symmetric && zero_)
      return bad(kZero, {"there, but the config says symmetric"});
    if (scheme_.zero == ZeroKind::integer) QF_TRY(find_tensor(kZero, zero_));
    if (group_.act_order) QF_TRY(find_tensor(kOrder, order_));
    const auto type = dtype_from_name(scale_->type);
    if (!type || (*type != DType::f16 && *type != DType::bf16 && *type != DType::f32))
      return Status(Errc::unsupported, cat({place(kScale), ": type ", printable(scale_->type, 32),
                                            ", expected F16, BF16 or F32"}));
    scheme_.scale = *type;
    return {};
  }

  Status read_shape() {
    const bool wide = shape_->type == "I64";
    if ((!wide && shape_->type != "I32") || shape_->shape != std::vector<std::int64_t>{2})
      return bad(kShape, {"expected I64 [2]"});
    std::int64_t dims[2];
    const std::byte* bytes = checkpoint_.bytes(*shape_).data();
    if (wide) {
      std::memcpy(dims, bytes, sizeof dims);
    } else {
      std::int32_t narrow[2];
      std::memcpy(narrow, bytes, sizeof narrow);
      dims[0] = narrow[0], dims[1] = narrow[1];
    }
    // Beyond this a product with bits overflows; no file can hold it.
    constexpr std::int64_t kMost = std::int64_t{1} << 48;
    if (dims[0] < 1 || dims[1] < 1 || dims[0] > kMost || dims[1] > kMost)
      return bad(kShape, {"a matrix of ", num(dims[0]), " x ", num(dims[1])});
    n_ = dims[0], k_ = dims[1];
    return {};
  }

  std::string matrix_text() const {
    return cat({num(n_), " x ", num(k_), " with ", num(scheme_.bits), " bits"});
  }

  Status check_shapes() const {
    if (packed_->type != "I32" || packed_->shape.size() != 2 || packed_->shape[0] != n_)
      return bad(kPacked, {"expected I32 with ", num(n_), " rows, as weight_shape says"});
    const std::int64_t words = packed_->shape[1];
    if (words != code_words(k_, scheme_.bits) && words != padded_words(k_, scheme_.bits))
      return bad(kPacked, {num(words), " words a row, expected ", num(code_words(k_, scheme_.bits)), " for ",
                           matrix_text()});
    const std::int64_t groups = scheme_.groups(k_);
    using Shape = std::vector<std::int64_t>;
    if (group_.one_scale) {
      if (scale_->elements != 1) return bad(kScale, {"expected a single scale"});
    } else if (scale_->shape != Shape{n_, groups} && !(groups == 1 && scale_->shape == Shape{n_})) {
      return bad(kScale, {num(scale_->elements), " scales, expected [", num(n_), ", ", num(groups), "] for ",
                          matrix_text(), " in groups of ", num(scheme_.group_size(k_))});
    }
    if (zero_ && group_.one_scale) {
      if (zero_->type != "I8" || zero_->elements != 1) return bad(kZero, {"expected a single I8"});
    } else if (zero_) {
      const Shape dense{code_words(n_, scheme_.bits), groups}, padded{padded_words(n_, scheme_.bits), groups};
      if (zero_->type != "I32" || (zero_->shape != dense && zero_->shape != padded))
        return bad(kZero, {"expected I32 [", num(dense[0]), ", ", num(groups), "] for ", matrix_text()});
    }
    if (order_ && (order_->type != "I32" || order_->shape != Shape{k_}))
      return bad(kOrder, {"expected I32 [", num(k_), "]"});
    return {};
  }

  // Whether codes are padded to words. The shapes tell, unless both orders take as many words.
  Result<bool> find_order() const {
    const int bits = scheme_.bits;
    bool dense = true, padded = true, differ = false;
    const auto see = [&](std::int64_t count, std::int64_t words) {
      if (32 % bits == 0 || count <= 32 / bits) return;  // the same bits either way
      dense = dense && words == code_words(count, bits);
      padded = padded && words == padded_words(count, bits);
      differ = true;
    };
    see(k_, packed_->shape[1]);
    if (zero_ && !group_.one_scale) see(n_, zero_->shape[0]);
    if (!differ) return false;
    if (!dense && !padded) return bad(kZero, {"its words are ordered otherwise than those of weight_packed"});
    if (dense != padded) return bool{padded};
    int major = 0, minor = 0;
    const char* end = version_.data() + version_.size();
    const auto first = std::from_chars(version_.data(), end, major);
    const bool dot = first.ec == std::errc() && first.ptr != end && *first.ptr == '.';
    if (!dot || std::from_chars(first.ptr + 1, end, minor).ec != std::errc())
      return Status(Errc::unsupported,
                    cat({place(kPacked), ": the order of its ", num(bits),
                         "-bit codes can't be told from its shape, and the config names no version (",
                         printable(version_, 32), ")"}));
    return major == 0 && minor <= 17;
  }

  void read_codes(bool padded, QuantizedMatrix& matrix) const {
    const auto words = static_cast<std::size_t>(packed_->shape[1]);
    const std::byte* bytes = checkpoint_.bytes(*packed_).data();
    std::vector<std::uint32_t> row(words);
    for (std::int64_t r = 0; r < n_; ++r) {
      std::memcpy(row.data(), bytes + static_cast<std::size_t>(r) * words * 4, words * 4);
      unpack(row.data(), k_, scheme_.bits, padded, matrix.codes().row(r));
    }
    checkpoint_.release(*packed_);
  }

  Status read_scales(QuantizedMatrix& matrix) const {
    const auto scales = matrix.scales();
    const auto count = static_cast<std::size_t>(scales.size());
    if (group_.one_scale) {
      float scale = 0;
      QF_TRY(checkpoint_.read_f32(*scale_, 0, std::span(&scale, 1)));
      std::fill(scales.data, scales.data + count, scale);
    } else {
      QF_TRY(checkpoint_.read_f32(*scale_, 0, std::span(scales.data, count)));
    }
    for (std::size_t i = 0; i < count; ++i)
      if (!std::isfinite(scales.data[i])) {
        const auto groups = static_cast<std::size_t>(matrix.groups());
        return bad(kScale, {"row ", num(i / groups), ", group ", num(i % groups), " is not a finite number"});
      }
    return {};
  }

  void read_zeros(bool padded, QuantizedMatrix& matrix) const {
    const auto zeros = matrix.zeros();
    const std::byte* bytes = checkpoint_.bytes(*zero_).data();
    if (group_.one_scale) {
      std::int8_t zero = 0;
      std::memcpy(&zero, bytes, 1);
      const float value = static_cast<float>(zero) + scheme_.symmetric_zero();
      std::fill(zeros.data, zeros.data + zeros.size(), value);
      return;
    }
    const auto words = static_cast<std::size_t>(zero_->shape[0]);
    const std::int64_t groups = matrix.groups();
    std::vector<std::uint32_t> column(words);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(n_));
    for (std::int64_t g = 0; g < groups; ++g) {
      for (std::size_t w = 0; w < words; ++w)
        std::memcpy(&column[w],
                    bytes + (w * static_cast<std::size_t>(groups) + static_cast<std::size_t>(g)) * 4, 4);
      unpack(column.data(), n_, scheme_.bits, padded, codes.data());
      for (std::int64_t r = 0; r < n_; ++r) zeros(r, g) = codes[static_cast<std::size_t>(r)];
    }
  }

  Status read_group_of(QuantizedMatrix& matrix) const {
    std::vector<std::int32_t> groups(static_cast<std::size_t>(k_));
    std::memcpy(groups.data(), checkpoint_.bytes(*order_).data(), groups.size() * 4);
    bool none = true, ordered = true;  // -1 everywhere stands for no order at all
    for (std::size_t c = 0; c < groups.size(); ++c) {
      none = none && groups[c] == -1;
      ordered = ordered && groups[c] == static_cast<std::int64_t>(c) / matrix.group_size();
    }
    if (none || ordered) return {};
    const Status status = matrix.set_group_of(groups);
    return status.ok() ? status : bad(kOrder, {status.text()});
  }

  const Checkpoint& checkpoint_;
  const std::string& module_;
  const QuantizationGroup& group_;
  Scheme scheme_;
  const std::string& version_;
  const TensorInfo *packed_ = nullptr, *scale_ = nullptr, *zero_ = nullptr, *shape_ = nullptr,
                   *order_ = nullptr;
  std::int64_t n_ = 0, k_ = 0;
};

Status check_values(const QuantizedMatrix& matrix) {
  const auto bad = [](std::string_view what, std::int64_t row, std::int64_t at) {
    return Status(Errc::invalid_argument,
                  cat({"row ", num(row), ": ", what, " ", num(at), " doesn't fit the scheme"}));
  };
  const Scheme& scheme = matrix.scheme();
  const auto levels = scheme.levels();
  for (std::int64_t r = 0; r < matrix.n(); ++r) {
    const std::uint8_t* codes = matrix.codes().row(r);
    for (std::int64_t c = 0; c < matrix.k(); ++c)
      if (codes[c] >= levels) return bad("the code of column", r, c);
    for (std::int64_t g = 0; g < matrix.groups(); ++g) {
      const float scale = matrix.scales()(r, g);
      if (!std::isfinite(scale) || round_to(scheme.scale, scale) != scale)
        return bad("the scale of group", r, g);
      if (!matrix.zeros().data) continue;
      const float zero = matrix.zeros()(r, g);
      if (!(zero >= 0 && zero < static_cast<float>(levels) && zero == std::floor(zero)))
        return bad("the zero of group", r, g);
    }
  }
  return {};
}

}  // namespace

Result<std::vector<TensorSpec>> quantized_specs(const std::string& module, const Scheme& scheme,
                                                std::int64_t n, std::int64_t k, bool act_order) {
  try {
    QF_TRY(check(scheme).at(module));
    if (scheme.codebook != CodebookKind::none)
      return Status(Errc::unsupported, cat({module, ": codebooks can't be stored as compressed-tensors"}));
    if (scheme.zero == ZeroKind::floating)
      return Status(Errc::unsupported,
                    cat({module, ": floating zeros can't be stored as compressed-tensors"}));
    constexpr std::int64_t kMost = std::int64_t{1} << 48;
    std::int64_t size = 0;
    if (n < 1 || k < 1 || n > kMost || k > kMost || __builtin_mul_overflow(n, k, &size))
      return Status(Errc::invalid_argument, cat({module, ": a matrix of ", num(n), " x ", num(k)}));
    const std::int64_t groups = scheme.groups(k);
    std::vector<TensorSpec> specs{{cat({module, kPacked}), DType::i32, {n, code_words(k, scheme.bits)}},
                                  {cat({module, kScale}), scheme.scale, {n, groups}},
                                  {cat({module, kShape}), DType::i64, {2}}};
    if (scheme.zero == ZeroKind::integer)
      specs.push_back({cat({module, kZero}), DType::i32, {code_words(n, scheme.bits), groups}});
    if (act_order) specs.push_back({cat({module, kOrder}), DType::i32, {k}});
    return specs;
  } catch (const std::bad_alloc&) {
    return detail::no_memory({module, ": no memory"});
  }
}

Result<std::vector<StoredTensor>> tensors_of(const QuantizedMatrix& matrix, const std::string& module) {
  try {
    const Scheme& scheme = matrix.scheme();
    const bool act_order = !matrix.group_of().empty();
    QF_TRY_ASSIGN(const std::vector<TensorSpec> specs,
                  quantized_specs(module, scheme, matrix.n(), matrix.k(), act_order));
    QF_TRY(check_values(matrix).at(module));
    std::vector<StoredTensor> tensors;
    for (const TensorSpec& spec : specs) {
      QF_TRY_ASSIGN(const std::uint64_t bytes, stored_bytes(spec));
      tensors.push_back({spec, std::vector<std::byte>(static_cast<std::size_t>(bytes))});
    }
    const std::int64_t n = matrix.n(), k = matrix.k(), groups = matrix.groups();
    std::vector<std::uint32_t> words(static_cast<std::size_t>(code_words(k, scheme.bits)));
    for (std::int64_t r = 0; r < n; ++r) {
      pack_codes(matrix.codes().row(r), k, scheme.bits, words.data());
      std::memcpy(tensors[0].bytes.data() + static_cast<std::size_t>(r) * words.size() * 4, words.data(),
                  words.size() * 4);
    }
    QF_TRY(encode_f32(scheme.scale, {matrix.scales().data, static_cast<std::size_t>(n * groups)},
                      tensors[1].bytes));
    const std::int64_t shape[2] = {n, k};
    std::memcpy(tensors[2].bytes.data(), shape, sizeof shape);
    if (scheme.zero == ZeroKind::integer) {
      std::vector<std::uint8_t> column(static_cast<std::size_t>(n));
      words.resize(static_cast<std::size_t>(code_words(n, scheme.bits)));
      for (std::int64_t g = 0; g < groups; ++g) {
        for (std::int64_t r = 0; r < n; ++r)
          column[static_cast<std::size_t>(r)] = static_cast<std::uint8_t>(matrix.zeros()(r, g));
        pack_codes(column.data(), n, scheme.bits, words.data());
        for (std::size_t w = 0; w < words.size(); ++w)
          std::memcpy(tensors[3].bytes.data() +
                          (w * static_cast<std::size_t>(groups) + static_cast<std::size_t>(g)) * 4,
                      &words[w], 4);
      }
    }
    if (act_order)
      std::memcpy(tensors.back().bytes.data(), matrix.group_of().data(), static_cast<std::size_t>(k) * 4);
    return tensors;
  } catch (const std::bad_alloc&) {
    return detail::no_memory({module, ": no memory to pack it"});
  }
}

bool is_quantized(const Checkpoint& checkpoint, const std::string& module) {
  return checkpoint.find(cat({module, kPacked})) != nullptr;
}

Result<QuantizedMatrix> read_quantized(const Checkpoint& checkpoint, const std::string& module,
                                       const QuantizationGroup& group, const std::string& version,
                                       const Allocator& allocator) {
  try {
    return Reader(checkpoint, module, group, version).read(allocator);
  } catch (const std::bad_alloc&) {
    return detail::no_memory({module, ": no memory to read it"});
  }
}

Result<QuantizedMatrix> read_quantized(const Checkpoint& checkpoint, const std::string& module,
                                       const QuantizationConfig& config, const Allocator& allocator) {
  QF_TRY_ASSIGN(const QuantizationGroup* group, find_group(config, module));
  if (!group)
    return Status(Errc::not_found, cat({checkpoint.path(), ": module ", printable(module),
                                        ": no group of the config fits it"}));
  return read_quantized(checkpoint, module, *group, config.version, allocator);
}

}  // namespace qf::io
