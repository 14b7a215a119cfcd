#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <new>

#include "qf/io/convert.hpp"
#include "qf/io/gguf.hpp"

namespace qf::io {
namespace {

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

constexpr bool is_integer(GgufType t) {
  return t != GgufType::f32 && t != GgufType::f64 && t != GgufType::boolean && t != GgufType::string &&
         t != GgufType::array;
}
constexpr bool is_real(GgufType t) {
  return t == GgufType::f32 || t == GgufType::f64;
}

// Calls f with the number of type `type` at `p`.
template <class F>
auto with_number(GgufType type, const std::byte* p, F&& f) {
  switch (type) {
    case GgufType::i8:
      return f(load<std::int8_t>(p), 1);
    case GgufType::u16:
      return f(load<std::uint16_t>(p), 2);
    case GgufType::i16:
      return f(load<std::int16_t>(p), 2);
    case GgufType::u32:
      return f(load<std::uint32_t>(p), 4);
    case GgufType::i32:
      return f(load<std::int32_t>(p), 4);
    case GgufType::f32:
      return f(load<float>(p), 4);
    case GgufType::u64:
      return f(load<std::uint64_t>(p), 8);
    case GgufType::i64:
      return f(load<std::int64_t>(p), 8);
    case GgufType::f64:
      return f(load<double>(p), 8);
    default:
      return f(load<std::uint8_t>(p), 1);
  }
}
std::size_t width(GgufType type) {
  static constexpr std::byte kZeros[8]{};
  return with_number(type, kZeros, [](auto, int bytes) { return static_cast<std::size_t>(bytes); });
}

// nullopt: beyond an int64.
std::optional<std::int64_t> to_integer(GgufType type, const std::byte* p) {
  return with_number(type, p, [](auto v, int) -> std::optional<std::int64_t> {
    if constexpr (std::is_same_v<decltype(v), std::uint64_t>)
      if (v > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(v);
  });
}
double to_real(GgufType type, const std::byte* p) {
  return with_number(type, p, [](auto v, int) { return static_cast<double>(v); });
}

template <class Block>
void decode_block(const std::byte* stored, float* out) {
  Block block;  // copied, since blocks in files lie at any address
  std::memcpy(&block, stored, sizeof block);
  gguf::decode(block, out);
}

using DecodeBlock = void (*)(const std::byte*, float*);
DecodeBlock block_decoder(gguf::Type type) {
  switch (type) {
    case gguf::Type::q4_0:
      return decode_block<gguf::BlockQ4_0>;
    case gguf::Type::q4_1:
      return decode_block<gguf::BlockQ4_1>;
    case gguf::Type::q5_0:
      return decode_block<gguf::BlockQ5_0>;
    case gguf::Type::q5_1:
      return decode_block<gguf::BlockQ5_1>;
    case gguf::Type::q8_0:
      return decode_block<gguf::BlockQ8_0>;
    case gguf::Type::q2_k:
      return decode_block<gguf::BlockQ2_K>;
    case gguf::Type::q3_k:
      return decode_block<gguf::BlockQ3_K>;
    case gguf::Type::q4_k:
      return decode_block<gguf::BlockQ4_K>;
    case gguf::Type::q5_k:
      return decode_block<gguf::BlockQ5_K>;
    case gguf::Type::q6_k:
      return decode_block<gguf::BlockQ6_K>;
    case gguf::Type::iq4_nl:
      return decode_block<gguf::BlockIQ4_NL>;
    case gguf::Type::iq4_xs:
      return decode_block<gguf::BlockIQ4_XS>;
    case gguf::Type::mxfp4:
      return decode_block<gguf::BlockMXFP4>;
    default:
      return nullptr;
  }
}

void decode_range(const gguf::TypeTraits& type, DecodeBlock decode, const std::byte* stored,
                  std::uint64_t first, std::span<float> out) {
  const auto block = static_cast<std::uint64_t>(type.block_elements);
  std::array<float, 256> whole;
  for (std::size_t done = 0; done < out.size();) {
    const std::uint64_t index = (first + done) / block, skip = (first + done) % block;
    const std::byte* at = stored + index * static_cast<std::uint64_t>(type.block_bytes);
    const std::size_t count =
        std::min<std::size_t>(out.size() - done, static_cast<std::size_t>(block - skip));
    if (count == block) {
      decode(at, out.data() + done);
    } else {
      decode(at, whole.data());
      std::copy_n(whole.data() + skip, count, out.data() + done);
    }
    done += count;
  }
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  static constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                "bool", "string", "array", "u64", "i64", "f64"};
  return static_cast<std::size_t>(type) < std::size(kNames) ? kNames[static_cast<std::size_t>(type)] : "?";
}

std::size_t GgufFile::index(const TensorInfo& info) const {
  const std::less<> before;
  if (!tensors_.empty() && !before(&info, tensors_.data()) &&
      before(&info, tensors_.data() + tensors_.size()))
    return static_cast<std::size_t>(&info - tensors_.data());
  const TensorInfo* own = find(info.name);
  return own ? static_cast<std::size_t>(own - tensors_.data()) : tensors_.size();
}

const TensorInfo* GgufFile::find(std::string_view name) const {
  auto at = std::lower_bound(tensors_sorted_.begin(), tensors_sorted_.end(), name,
                             [&](std::uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  return at != tensors_sorted_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

std::span<const std::byte> GgufFile::bytes(const TensorInfo& info) const {
  const std::size_t i = index(info);
  if (i == tensors_.size()) return {};
  return bytes_.subspan(static_cast<std::size_t>(parts_[i].begin),
                        static_cast<std::size_t>(tensors_[i].bytes));
}

void GgufFile::release(const TensorInfo& info) const {
  if (mapped_.size()) mapped_.release(bytes(info));
}

const gguf::TypeTraits& GgufFile::type(const TensorInfo& info) const {
  const std::size_t i = index(info);
  QF_ASSERT(i < parts_.size());
  return *gguf::traits(parts_[i].type);
}

Status GgufFile::read_f32(const TensorInfo& info, std::uint64_t first, std::span<float> out) const {
  const std::size_t i = index(info);
  if (i == tensors_.size())
    return Status(Errc::not_found, cat({path_, ": no tensor ", printable(info.name)}));
  const TensorInfo& own = tensors_[i];
  if (first > own.elements || out.size() > own.elements - first)
    return Status(Errc::invalid_argument,
                  cat({path_, ": tensor ", printable(own.name), ": elements ", num(first), " to ",
                       num(first + out.size()), " asked for, it has ", num(own.elements)}));
  const gguf::TypeTraits& type = *gguf::traits(parts_[i].type);
  if (DecodeBlock decode = block_decoder(static_cast<gguf::Type>(type.id))) {
    decode_range(type, decode, bytes(own).data(), first, out);
    return {};
  }
  auto plain = dtype_from_name(type.name);
  if (type.support != gguf::Support::decoded || !plain)
    return Status(Errc::unsupported,
                  cat({path_, ": tensor ", printable(own.name), ": type ", type.name, " can't be decoded"}));
  return decode_f32(*plain, bytes(own), first, out).at(cat({path_, ": tensor ", printable(own.name)}));
}

const GgufEntry* GgufFile::entry(std::string_view key) const {
  auto at = std::lower_bound(keys_sorted_.begin(), keys_sorted_.end(), key,
                             [&](std::uint32_t i, std::string_view k) { return entries_[i].key < k; });
  return at != keys_sorted_.end() && entries_[*at].key == key ? &entries_[*at] : nullptr;
}

GgufValue GgufFile::value(const GgufEntry& e) {
  const std::byte* p = e.raw.data();
  switch (e.type) {
    case GgufType::boolean:
      return *p != std::byte{0};
    case GgufType::string:
      return std::string_view(reinterpret_cast<const char*>(p), e.raw.size());
    case GgufType::array:
      return GgufArray{e.element, e.count};
    case GgufType::u64:
      return load<std::uint64_t>(p);
    default:
      if (is_real(e.type)) return to_real(e.type, p);
      return *to_integer(e.type, p);
  }
}

Status GgufFile::wrong(const GgufEntry& e, std::string_view expected) const {
  const bool array = e.type == GgufType::array;
  return Status(Errc::bad_format,
                cat({path_, ": key ", printable(e.key), ": ", array ? "an array of " : "a value of type ",
                     gguf_type_name(array ? e.element : e.type), ", expected ", expected}));
}

Result<const GgufEntry*> GgufFile::need(std::string_view key, std::string_view expected,
                                        bool (*fits)(const GgufEntry&)) const {
  const GgufEntry* e = entry(key);
  if (!e) return Status(Errc::not_found, cat({path_, ": no key ", printable(key)}));
  if (!fits(*e)) return wrong(*e, expected);
  return e;
}

Result<std::string_view> GgufFile::string(std::string_view key) const {
  QF_TRY_ASSIGN(auto e, need(key, "a string", [](const GgufEntry& x) { return x.type == GgufType::string; }));
  return std::string_view(reinterpret_cast<const char*>(e->raw.data()), e->raw.size());
}
Result<std::int64_t> GgufFile::integer(std::string_view key) const {
  QF_TRY_ASSIGN(auto e, need(key, "an integer", [](const GgufEntry& x) { return is_integer(x.type); }));
  auto v = to_integer(e->type, e->raw.data());
  if (!v) return Status(Errc::bad_format, cat({path_, ": key ", printable(key), ": a number beyond 2^63"}));
  return *v;
}
Result<double> GgufFile::real(std::string_view key) const {
  QF_TRY_ASSIGN(auto e, need(key, "a number",
                             [](const GgufEntry& x) { return is_real(x.type) || is_integer(x.type); }));
  return to_real(e->type, e->raw.data());
}
Result<bool> GgufFile::boolean(std::string_view key) const {
  QF_TRY_ASSIGN(auto e, need(key, "a bool", [](const GgufEntry& x) { return x.type == GgufType::boolean; }));
  return e->raw[0] != std::byte{0};
}
Result<std::string_view> GgufFile::string_or(std::string_view key, std::string_view otherwise) const {
  if (!has(key)) return otherwise;
  return string(key);
}
Result<std::int64_t> GgufFile::integer_or(std::string_view key, std::int64_t otherwise) const {
  if (!has(key)) return otherwise;
  return integer(key);
}
Result<double> GgufFile::real_or(std::string_view key, double otherwise) const {
  if (!has(key)) return otherwise;
  return real(key);
}
Result<bool> GgufFile::boolean_or(std::string_view key, bool otherwise) const {
  if (!has(key)) return otherwise;
  return boolean(key);
}

Result<std::vector<std::string>> GgufFile::strings(std::string_view key) const {
  QF_TRY_ASSIGN(auto e, need(key, "an array of strings", [](const GgufEntry& x) {
                  return x.type == GgufType::array && x.element == GgufType::string;
                }));
  try {
    std::vector<std::string> all;
    all.reserve(static_cast<std::size_t>(e->count));
    const std::byte* p = e->raw.data();
    for (std::uint64_t i = 0; i < e->count; ++i) {  // lengths were checked when the file was parsed
      const auto length = static_cast<std::size_t>(load<std::uint64_t>(p));
      all.emplace_back(reinterpret_cast<const char*>(p + 8), length);
      p += 8 + length;
    }
    return all;
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({path_, ": no memory for key ", printable(key)}));
  }
}
Result<std::vector<std::int64_t>> GgufFile::integers(std::string_view key) const {
  QF_TRY_ASSIGN(auto e, need(key, "an array of integers", [](const GgufEntry& x) {
                  return x.type == GgufType::array && is_integer(x.element);
                }));
  try {
    std::vector<std::int64_t> all(static_cast<std::size_t>(e->count));
    for (std::size_t i = 0; i < all.size(); ++i) {
      auto v = to_integer(e->element, e->raw.data() + i * width(e->element));
      if (!v)
        return Status(Errc::bad_format,
                      cat({path_, ": key ", printable(key), ": element ", num(i), " is beyond 2^63"}));
      all[i] = *v;
    }
    return all;
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({path_, ": no memory for key ", printable(key)}));
  }
}
Result<std::vector<double>> GgufFile::reals(std::string_view key) const {
  QF_TRY_ASSIGN(auto e, need(key, "an array of numbers", [](const GgufEntry& x) {
                  return x.type == GgufType::array && (is_real(x.element) || is_integer(x.element));
                }));
  try {
    std::vector<double> all(static_cast<std::size_t>(e->count));
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = to_real(e->element, e->raw.data() + i * width(e->element));
    return all;
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({path_, ": no memory for key ", printable(key)}));
  }
}

}  // namespace qf::io
