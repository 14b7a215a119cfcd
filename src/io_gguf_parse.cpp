#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <numeric>

#include "io_sniff.hpp"
#include "qf/io/gguf.hpp"

namespace qf::io {
namespace {

constexpr std::uint64_t kMostAlignment = 1u << 20;
constexpr std::uint64_t kMostName = 64;    // of a tensor, as the format's description says
constexpr std::uint64_t kMostKey = 65535;  // as the format's description says
constexpr int kMostDims = 4;

// Bytes of one value; 0: not of a fixed size.
constexpr std::uint64_t fixed_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::string:
    case GgufType::array:
      return 0;
  }
  return 0;
}

bool is_utf8(std::string_view s) {
  for (std::size_t i = 0; i < s.size();) {
    const auto lead = static_cast<unsigned char>(s[i]);
    const std::size_t more = lead < 0x80                   ? 0
                             : lead >= 0xc2 && lead < 0xe0 ? 1
                             : (lead & 0xf0) == 0xe0       ? 2
                             : lead >= 0xf0 && lead < 0xf5 ? 3
                                                           : 4;
    if (more > 3 || i + more >= s.size()) return false;
    std::uint32_t code = more == 0 ? lead : lead & (0x3fu >> more);
    for (std::size_t j = 1; j <= more; ++j) {
      const auto next = static_cast<unsigned char>(s[i + j]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3fu);
    }
    if ((more == 2 && code < 0x800) || (more == 3 && (code < 0x10000 || code > 0x10ffff)) ||
        (code >= 0xd800 && code < 0xe000))
      return false;
    i += more + 1;
  }
  return true;
}

// Reads forward; `place` says where it stands ("key 3") and stands before every error.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, std::string_view what) : bytes_(bytes), what_(what) {}
  std::uint64_t position() const { return position_; }
  std::uint64_t left() const { return bytes_.size() - position_; }

  Status error(std::string_view place, std::string text, Errc code = Errc::bad_format) const {
    return Status(code, cat({what_, ": ", place, text}));
  }
  Result<std::span<const std::byte>> take(std::uint64_t count, std::string_view place) {
    if (count > left())
      return error(place, cat({num(count), " bytes expected at byte ", num(position_), ", ", num(left()),
                               " left in the file"}));
    auto part = bytes_.subspan(static_cast<std::size_t>(position_), static_cast<std::size_t>(count));
    position_ += count;
    return part;
  }
  template <class T>
  Result<T> read(std::string_view place) {
    QF_TRY_ASSIGN(auto part, take(sizeof(T), place));
    T value;
    std::memcpy(&value, part.data(), sizeof value);
    return value;
  }
  Result<std::string_view> string(std::string_view place, std::string_view kind) {
    QF_TRY_ASSIGN(auto length, read<std::uint64_t>(place));
    if (length > left())
      return error(place, cat({kind, " of ", num(length), " bytes, ", num(left()), " left in the file"}));
    QF_TRY_ASSIGN(auto part, take(length, place));
    return std::string_view(reinterpret_cast<const char*>(part.data()), part.size());
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view what_;
  std::uint64_t position_ = 0;
};

struct RawTensor {
  std::string_view name;
  std::uint32_t dims = 0;
  std::int64_t ne[kMostDims] = {1, 1, 1, 1};
  std::int32_t type = 0;
  std::uint64_t offset = 0, elements = 0, bytes = 0;
};

Result<GgufType> read_type(Cursor& in, std::string_view place) {
  QF_TRY_ASSIGN(auto id, in.read<std::uint32_t>(place));
  if (id > static_cast<std::uint32_t>(GgufType::f64))
    return in.error(place, cat({"value type ", num(id), ", expected 0 to 12"}));
  return static_cast<GgufType>(id);
}

Status check_bools(const Cursor& in, std::span<const std::byte> raw, std::string_view place) {
  for (std::byte b : raw)
    if (b > std::byte{1})
      return in.error(place, cat({"a boolean of ", num(static_cast<int>(b)), ", expected 0 or 1"}));
  return {};
}

Result<GgufEntry> read_entry(Cursor& in, std::uint64_t number) {
  GgufEntry e;
  std::string place = "key " + num(number) + ": ";
  QF_TRY_ASSIGN(e.key, in.string(place, "a name"));
  if (e.key.empty()) return in.error(place, "the name is empty");
  if (e.key.size() > kMostKey)
    return in.error(place,
                    cat({"a name of ", num(e.key.size()), " bytes, expected at most ", num(kMostKey)}));
  if (!is_utf8(e.key)) return in.error(place, cat({"the name ", printable(e.key), " is not UTF-8"}));
  place = "key " + printable(e.key) + ": ";
  QF_TRY_ASSIGN(e.type, read_type(in, place));
  if (e.type == GgufType::string) {
    QF_TRY_ASSIGN(auto text, in.string(place, "a string"));
    e.raw = std::as_bytes(std::span(text.data(), text.size()));
  } else if (e.type == GgufType::array) {
    QF_TRY_ASSIGN(e.element, read_type(in, place));
    QF_TRY_ASSIGN(e.count, in.read<std::uint64_t>(place));
    if (e.element == GgufType::array)
      return in.error(place, "an array of arrays, which isn't supported", Errc::unsupported);
    const std::uint64_t least = e.element == GgufType::string ? 8 : fixed_bytes(e.element);
    if (e.count > in.left() / least)
      return in.error(
          place, cat({"an array of ", num(e.count), " elements of type ", gguf_type_name(e.element), ", ",
                      num(in.left()), " bytes left in the file"}));
    if (e.element == GgufType::string) {
      Cursor ahead = in;
      for (std::uint64_t i = 0; i < e.count; ++i) QF_TRY(ahead.string(place, "a string"));
      QF_TRY_ASSIGN(e.raw, in.take(ahead.position() - in.position(), place));
    } else {
      QF_TRY_ASSIGN(e.raw, in.take(e.count * least, place));
      if (e.element == GgufType::boolean) QF_TRY(check_bools(in, e.raw, place));
    }
  } else {
    QF_TRY_ASSIGN(e.raw, in.take(fixed_bytes(e.type), place));
    if (e.type == GgufType::boolean) QF_TRY(check_bools(in, e.raw, place));
  }
  return e;
}

Status check_tensor(const Cursor& in, RawTensor& t, std::string_view place) {
  const gguf::TypeTraits* traits = gguf::traits(t.type);
  if (!traits) return in.error(place, cat({"type ", num(t.type), " is not known"}), Errc::unsupported);
  if (traits->support == gguf::Support::removed)
    return in.error(place,
                    cat({"type ", num(t.type), " (", traits->name,
                         ") was removed from the format; the file must be made anew from its source"}),
                    Errc::unsupported);
  if (traits->support == gguf::Support::named)
    return in.error(place, cat({"type ", num(t.type), " (", traits->name, ") is not supported"}),
                    Errc::unsupported);
  std::int64_t elements = 1;
  for (std::uint32_t d = 0; d < t.dims; ++d) {
    if (t.ne[d] < 0) return in.error(place, cat({"dimension ", num(d), " is ", num(t.ne[d])}));
    if (__builtin_mul_overflow(elements, t.ne[d], &elements))
      return in.error(place, "the product of its dimensions is beyond 2^63");
  }
  // A zero hides an overflow from the product above, so the others are multiplied on their own, too.
  std::int64_t without_zeros = 1;
  for (std::uint32_t d = 0; d < t.dims; ++d)
    if (t.ne[d] && __builtin_mul_overflow(without_zeros, t.ne[d], &without_zeros))
      return in.error(place, "the product of its dimensions is beyond 2^63");
  if (t.ne[0] % traits->block_elements)
    return in.error(place, cat({"rows of ", num(t.ne[0]), " elements, expected a multiple of ",
                                num(traits->block_elements), " for ", traits->name}));
  t.elements = static_cast<std::uint64_t>(elements);
  if (__builtin_mul_overflow(t.elements / static_cast<std::uint64_t>(traits->block_elements),
                             static_cast<std::uint64_t>(traits->block_bytes), &t.bytes))
    return in.error(place, "its size in bytes is beyond 2^64");
  return {};
}

Result<RawTensor> read_tensor(Cursor& in, std::uint64_t number) {
  RawTensor t;
  std::string place = "tensor " + num(number) + ": ";
  QF_TRY_ASSIGN(t.name, in.string(place, "a name"));
  if (t.name.empty()) return in.error(place, "the name is empty");
  if (t.name.size() > kMostName)
    return in.error(place,
                    cat({"a name of ", num(t.name.size()), " bytes, expected at most ", num(kMostName)}));
  if (!is_utf8(t.name) || t.name.find('\0') != std::string_view::npos)
    return in.error(place, cat({"the name ", printable(t.name), " is not UTF-8 text"}));
  place = "tensor " + printable(t.name) + ": ";
  QF_TRY_ASSIGN(t.dims, in.read<std::uint32_t>(place));
  if (t.dims > kMostDims)
    return in.error(place, cat({num(t.dims), " dimensions, expected at most ", num(kMostDims)}));
  for (std::uint32_t d = 0; d < t.dims; ++d) {
    QF_TRY_ASSIGN(t.ne[d], in.read<std::int64_t>(place));
  }
  QF_TRY_ASSIGN(t.type, in.read<std::int32_t>(place));
  QF_TRY_ASSIGN(t.offset, in.read<std::uint64_t>(place));
  QF_TRY(check_tensor(in, t, place));
  return t;
}

// Indices in the order of their names; the name that stands twice, if one does.
template <class Name>
std::optional<std::string_view> sort_names(std::vector<std::uint32_t>& order, std::size_t count, Name name) {
  order.resize(count);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return name(a) < name(b); });
  for (std::size_t i = 1; i < count; ++i)
    if (name(order[i]) == name(order[i - 1])) return name(order[i]);
  return std::nullopt;
}

}  // namespace

class GgufParser {
 public:
  GgufParser(GgufFile& file, std::string_view what) : file_(file), in_(file.bytes_, what) {}

  Status run() {
    QF_TRY(read_head());
    // First only walk: memory is taken once everything that the head announces was seen to be there.
    Cursor walk = in_;
    for (std::uint64_t i = 0; i < keys_; ++i) QF_TRY(read_entry(walk, i));
    Cursor tensors = walk;
    for (std::uint64_t i = 0; i < count_; ++i) QF_TRY(read_tensor(walk, i));

    file_.entries_.reserve(static_cast<std::size_t>(keys_));
    for (std::uint64_t i = 0; i < keys_; ++i) {
      QF_TRY_ASSIGN(auto entry, read_entry(in_, i));
      file_.entries_.push_back(entry);
    }
    if (auto twice = sort_names(file_.keys_sorted_, file_.entries_.size(),
                                [&](std::uint32_t i) { return file_.entries_[i].key; }))
      return in_.error("", cat({"the key ", printable(*twice), " stands twice"}));
    QF_TRY(read_alignment());
    return read_tensors(tensors);
  }

 private:
  Status read_head() {
    QF_TRY_ASSIGN(auto magic, in_.take(4, ""));
    if (std::memcmp(magic.data(), "GGUF", 4) != 0) {
      QF_TRY(detail::refuse_foreign(detail::sniff(file_.bytes_), detail::FileKind::gguf).at(file_.path_));
      return in_.error("", cat({"not a GGUF file: it begins with ",
                                printable({reinterpret_cast<const char*>(magic.data()), 4})}));
    }
    QF_TRY_ASSIGN(file_.version_, in_.read<std::uint32_t>("version: "));
    if (file_.version_ != 0 && (file_.version_ & 0xffff) == 0)
      return in_.error("", "a big-endian GGUF file, which isn't supported", Errc::unsupported);
    if (file_.version_ != 2 && file_.version_ != 3)
      return in_.error("", cat({"GGUF version ", num(file_.version_), ", expected 2 or 3"}),
                       Errc::unsupported);
    QF_TRY_ASSIGN(auto tensors, in_.read<std::int64_t>("number of tensors: "));
    QF_TRY_ASSIGN(auto keys, in_.read<std::int64_t>("number of keys: "));
    QF_TRY_ASSIGN(count_, fits(tensors, "tensors", 24));
    QF_TRY_ASSIGN(keys_, fits(keys, "keys", 13));
    return {};
  }

  // `least` bytes is what one of them takes at least.
  Result<std::uint64_t> fits(std::int64_t count, std::string_view kind, std::uint64_t least) const {
    const std::uint64_t most = std::min<std::uint64_t>(in_.left() / least, 0xffffffffu);
    if (count < 0 || static_cast<std::uint64_t>(count) > most)
      return in_.error("", cat({num(count), " ", kind, " announced, a file of ", num(file_.bytes_.size()),
                                " bytes holds at most ", num(most)}));
    return static_cast<std::uint64_t>(count);
  }

  Status read_alignment() {
    const GgufEntry* e = file_.entry("general.alignment");
    if (!e) return {};
    if (e->type != GgufType::u32)
      return in_.error("key 'general.alignment': ",
                       cat({"a value of type ", gguf_type_name(e->type), ", expected u32"}));
    std::uint32_t alignment;
    std::memcpy(&alignment, e->raw.data(), 4);
    if (!std::has_single_bit(alignment) || alignment > kMostAlignment)
      return in_.error("key 'general.alignment': ",
                       cat({num(alignment), ", expected a power of two up to ", num(kMostAlignment)}));
    file_.alignment_ = alignment;
    return {};
  }

  Status read_tensors(Cursor& in) {
    Cursor end = in;
    for (std::uint64_t i = 0; i < count_; ++i) QF_TRY(read_tensor(end, i));
    const std::uint64_t align = file_.alignment_;
    const std::uint64_t base = (end.position() + align - 1) / align * align, size = file_.bytes_.size();
    file_.tensors_.reserve(static_cast<std::size_t>(count_));
    file_.parts_.reserve(static_cast<std::size_t>(count_));
    std::uint64_t next = 0;
    for (std::uint64_t i = 0; i < count_; ++i) {
      QF_TRY_ASSIGN(auto t, read_tensor(in, i));
      const std::string place = "tensor " + printable(t.name) + ": ";
      // Tensors follow one another in order, padded: what llama.cpp requires. Anything else hides bytes or
      // lets two tensors share them.
      if (t.offset % align)
        return in.error(place, cat({"offset ", num(t.offset), ", expected a multiple of ", num(align)}));
      if (t.offset != next)
        return in.error(place, cat({"offset ", num(t.offset),
                                    t.offset < next ? " overlaps what comes before it" : " leaves a gap",
                                    ", expected ", num(next)}));
      std::uint64_t last = 0;
      if (__builtin_add_overflow(base, t.offset, &last) || __builtin_add_overflow(last, t.bytes, &last) ||
          last > size)
        return in.error(place, cat({num(t.bytes), " bytes at ", num(t.offset),
                                    " of the data, which end beyond the file of ", num(size),
                                    " bytes (a truncated download?)"}));
      TensorInfo info;
      info.name = t.name;
      info.type = gguf::traits(t.type)->name;
      info.shape.reserve(t.dims);
      for (std::uint32_t d = t.dims; d-- > 0;) info.shape.push_back(t.ne[d]);
      info.bytes = t.bytes;
      info.elements = t.elements;
      file_.tensors_.push_back(std::move(info));
      file_.parts_.push_back({base + t.offset, t.type});
      next = t.offset + (t.bytes + align - 1) / align * align;
    }
    if (auto twice = sort_names(file_.tensors_sorted_, file_.tensors_.size(),
                                [&](std::uint32_t i) { return std::string_view(file_.tensors_[i].name); }))
      return in.error("", cat({"the tensor ", printable(*twice), " stands twice"}));
    return {};
  }

  GgufFile& file_;
  Cursor in_;
  std::uint64_t keys_ = 0, count_ = 0;
};

Result<std::unique_ptr<GgufFile>> parse_gguf(std::span<const std::byte> bytes, std::string_view what) {
  try {
    std::unique_ptr<GgufFile> file(new GgufFile);
    file->path_ = what;
    file->bytes_ = bytes;
    QF_TRY(GgufParser(*file, what).run());
    return file;
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({what, ": no memory for its metadata"}));
  }
}

Result<std::unique_ptr<GgufFile>> open_gguf(const std::string& path) {
  QF_TRY_ASSIGN(auto mapped, MappedFile::open(path));
  QF_TRY_ASSIGN(auto file, parse_gguf(mapped.bytes(), path));
  QF_TRY_ASSIGN(auto part, file->integer_or("split.count", 1));
  if (part > 1)
    return Status(Errc::unsupported,
                  cat({path, ": one of ", num(part),
                       " parts of a split model; join them with `llama-gguf-split --merge`"}));
  file->mapped_ = std::move(mapped);
  return file;
}

}  // namespace qf::io
