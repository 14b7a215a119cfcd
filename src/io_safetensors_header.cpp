#include "io_safetensors_header.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "io_posix.hpp"
#include "io_sniff.hpp"
#include "qf/io/convert.hpp"

namespace qf::io::detail {
namespace {

// More than any real file has; keeps the memory of a header in proportion to its bytes.
constexpr std::size_t kMaxRank = 32, kMaxMetadata = 4096, kMaxName = 4096;
// "":{"dtype":"U8","shape":[],"data_offsets":[0,0]}
constexpr std::size_t kShortestEntry = 49;
constexpr std::string_view kDtype = "\"dtype\"";

Status bad(std::initializer_list<std::string_view> parts) {
  return Status(Errc::bad_format, cat(parts));
}

// Receives the header's JSON event by event and keeps tensors only: a document tree would cost ten times the
// header's size.
class HeaderBuilder {
 public:
  HeaderBuilder(SafetensorsHeader& out) : out_(out) {}
  const Status& status() const { return status_; }

  bool null() { return scalar("null"); }
  bool boolean(bool) { return scalar("a boolean"); }
  bool number_integer(std::int64_t value) { return scalar(num(value)); }
  bool number_float(double, const std::string& text) { return scalar(text); }
  bool binary(std::vector<std::uint8_t>&) { return scalar("binary"); }

  bool number_unsigned(std::uint64_t value) {
    if (place_ == Place::shape) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return fail({"tensor ", printable(name_), ": shape holds ", num(value), ", too large"});
      if (shape_.size() == kMaxRank)
        return fail({"tensor ", printable(name_), ": more than ", num(kMaxRank), " dimensions"});
      shape_.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ == Place::offsets) {
      if (offset_count_ == 2)
        return fail({"tensor ", printable(name_), ": data_offsets has more than 2 entries"});
      offsets_[offset_count_++] = value;
      return true;
    }
    return scalar(num(value));
  }

  bool string(std::string& text) {
    if (place_ == Place::metadata) {
      if (out_.metadata.size() == kMaxMetadata)
        return fail({"__metadata__ has more than ", num(kMaxMetadata), " entries"});
      out_.metadata.emplace_back(name_, text);
      return true;
    }
    if (place_ == Place::tensor && field_ == Field::dtype) {
      const auto type = dtype_from_name(text);
      if (!type) return fail({"tensor ", printable(name_), ": dtype ", printable(text, 32), " is not known"});
      type_ = *type;
      return true;
    }
    return scalar("a string");
  }

  bool key(std::string& text) {
    if (place_ != Place::tensor) {
      if (text.size() > kMaxName)
        return fail({"a name of ", num(text.size()), " bytes, at most ", num(kMaxName), " expected"});
      name_ = text;
      return true;
    }
    const Field field = text == "dtype"          ? Field::dtype
                        : text == "shape"        ? Field::shape
                        : text == "data_offsets" ? Field::offsets
                                                 : Field::none;
    if (field == Field::none)
      return fail({"tensor ", printable(name_), ": the field ", printable(text, 32), " is not known"});
    if (seen_ & 1u << static_cast<unsigned>(field))
      return fail({"tensor ", printable(name_), ": the field ", printable(text), " stands twice"});
    seen_ |= 1u << static_cast<unsigned>(field);
    field_ = field;
    return true;
  }

  bool start_object(std::size_t) {
    if (place_ == Place::before) {
      place_ = Place::root;
    } else if (place_ == Place::root && name_ == "__metadata__") {
      if (has_metadata_) return fail({"__metadata__ stands twice"});
      has_metadata_ = true;
      place_ = Place::metadata;
    } else if (place_ == Place::root) {
      place_ = Place::tensor;
      seen_ = 0, offset_count_ = 0;
      shape_.clear();
    } else {
      return scalar("an object");
    }
    return true;
  }

  bool end_object() {
    if (place_ == Place::tensor && !add_tensor()) return false;
    place_ = place_ == Place::root ? Place::after : Place::root;
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ == Place::tensor && field_ == Field::shape) return place_ = Place::shape, true;
    if (place_ == Place::tensor && field_ == Field::offsets) return place_ = Place::offsets, true;
    return scalar("an array");
  }

  bool end_array() {
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    return fail({"the header is not valid JSON at its byte ", num(position)});
  }

 private:
  enum class Place { before, root, metadata, tensor, shape, offsets, after };
  enum class Field : unsigned { none, dtype, shape, offsets };

  bool fail(std::initializer_list<std::string_view> parts) {
    if (status_.ok()) status_ = bad(parts);
    return false;
  }

  // A value where something else is expected.
  bool scalar(std::string_view found) {
    const std::string shown(found.substr(0, 40));
    switch (place_) {
      case Place::before:
      case Place::after:
        return fail({"the header is ", shown, ", expected an object"});
      case Place::root:
        return fail({printable(name_), " is ", shown, ", expected an object"});
      case Place::metadata:
        return fail({"__metadata__ ", printable(name_), " is ", shown, ", expected a string"});
      case Place::shape:
        return fail(
            {"tensor ", printable(name_), ": shape holds ", shown, ", expected an integer of 0 or more"});
      case Place::offsets:
        return fail({"tensor ", printable(name_), ": data_offsets holds ", shown,
                     ", expected an integer of 0 or more"});
      case Place::tensor:
        break;
    }
    const std::string_view wanted = field_ == Field::dtype   ? "dtype is "
                                    : field_ == Field::shape ? "shape is "
                                                             : "data_offsets is ";
    return fail({"tensor ", printable(name_), ": ", wanted, shown, ", expected ",
                 field_ == Field::dtype ? "a string" : "an array"});
  }

  bool add_tensor() {
    constexpr std::pair<Field, std::string_view> kFields[] = {
        {Field::dtype, "dtype"}, {Field::shape, "shape"}, {Field::offsets, "data_offsets"}};
    for (const auto& [field, text] : kFields)
      if (!(seen_ & 1u << static_cast<unsigned>(field)))
        return fail({"tensor ", printable(name_), ": the field '", text, "' is missing"});
    if (offset_count_ != 2)
      return fail(
          {"tensor ", printable(name_), ": data_offsets has ", num(offset_count_), " entries, expected 2"});
    if (offsets_[1] < offsets_[0])
      return fail({"tensor ", printable(name_), ": data_offsets end at ", num(offsets_[1]),
                   ", before they begin at ", num(offsets_[0])});
    std::uint64_t elements = 1;
    for (std::int64_t d : shape_)
      if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(d), &elements))
        return fail({"tensor ", printable(name_), ": the shape's product overflows 64 bits"});
    const auto bytes = stored_bytes(type_, elements);
    if (!bytes.ok()) return fail({"tensor ", printable(name_), ": ", bytes.status().text()});
    if (offsets_[1] - offsets_[0] != *bytes)
      return fail({"tensor ", printable(name_), ": ", num(offsets_[1] - offsets_[0]), " bytes stored, ",
                   num(*bytes), " expected from shape ", shape_text(shape_), " ", dtype_name(type_)});
    TensorInfo info;
    info.name = name_;
    info.type = dtype_name(type_);
    info.shape = shape_;
    info.bytes = *bytes;
    info.elements = elements;
    out_.tensors.push_back(std::move(info));
    out_.begin.push_back(offsets_[0]);
    return true;
  }

  SafetensorsHeader& out_;
  Status status_;
  Place place_ = Place::before;
  Field field_ = Field::none;
  unsigned seen_ = 0;
  bool has_metadata_ = false;
  std::string name_;
  DType type_ = DType::f32;
  std::vector<std::int64_t> shape_;
  std::uint64_t offsets_[2] = {0, 0};
  unsigned offset_count_ = 0;
};

Status check_name(std::string_view name) {
  if (name.empty()) return bad({"a tensor has an empty name"});
  for (char c : name)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      return bad({"tensor ", printable(name), ": control bytes in the name"});
  bool up = name.front() == '/';
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find_first_of("/\\", at), name.size());
    up = up || name.substr(at, end - at) == "..";
    at = end + 1;
  }
  if (up) return bad({"tensor ", printable(name), ": the name is a path that leaves its folder"});
  return {};
}

// Puts tensors[order[i]] at place i, without a second copy of them; `order` becomes 0, 1, 2, ...
void reorder(SafetensorsHeader& header, std::vector<std::uint32_t>& order) {
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    std::uint32_t to = i;
    while (order[to] != i) {
      const std::uint32_t from = order[to];
      std::swap(header.tensors[to], header.tensors[from]);
      std::swap(header.begin[to], header.begin[from]);
      order[to] = to;
      to = from;
    }
    order[to] = to;
  }
}

Status check_layout(const SafetensorsHeader& header, std::uint64_t data, std::uint64_t size) {
  std::uint64_t end = data;
  for (std::size_t i = 0; i < header.tensors.size(); ++i) {
    const TensorInfo& info = header.tensors[i];
    const std::uint64_t begin = header.begin[i];
    if (begin > end)
      return bad({"tensor ", printable(info.name), ": a hole of ", num(begin - end), " bytes before it"});
    if (begin < end)
      return bad({"tensor ", printable(info.name), ": overlaps ", printable(header.tensors[i - 1].name)});
    if (info.bytes > size - end)
      return bad({"tensor ", printable(info.name), ": ends ", num(info.bytes - (size - end)),
                  " bytes beyond the file's end (", num(size), " bytes): a truncated download?"});
    end += info.bytes;
  }
  if (end != size) return bad({num(size - end), " bytes after the last tensor"});
  return {};
}

Result<std::string_view> header_text(std::span<const std::byte> file, const SafetensorsOptions& options) {
  if (file.size() < 8) return bad({"the file has ", num(file.size()), " bytes, at least 8 expected"});
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  if (length > kMaxSafetensorsHeader)
    return bad({"a header of ", num(length), " bytes, at most ", num(kMaxSafetensorsHeader), " expected"});
  if (length > file.size() - 8)
    return bad({"a header of ", num(length), " bytes in a file of ", num(file.size()),
                " bytes: a truncated download?"});
  std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, static_cast<std::size_t>(length));
  if (options.lenient) text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  if (text.empty() || text.front() != '{') return bad({"the header doesn't start with '{'"});
  const std::size_t last = text.find_last_not_of(options.lenient ? " \t\r\n" : " ");
  if (text[last] != '}') return bad({"the header doesn't end with '}' and spaces"});
  return text.substr(0, last + 1);
}

// Sorts by name; a name that stands twice is refused, or, when lenient, only its last entry is kept.
Status settle_names(SafetensorsHeader& header, bool lenient) {
  auto& order = header.by_name;
  order.resize(header.tensors.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto less = [&](std::uint32_t a, std::uint32_t b) {
    const int c = header.tensors[a].name.compare(header.tensors[b].name);
    return c ? c < 0 : a < b;
  };
  std::sort(order.begin(), order.end(), less);
  bool repeated = false;
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (header.tensors[order[i]].name != header.tensors[order[i - 1]].name) continue;
    if (!lenient)
      return bad({"tensor ", printable(header.tensors[order[i]].name), ": stands twice in the header"});
    repeated = true;
  }
  if (!repeated) return {};
  std::vector<bool> drop(order.size());
  for (std::size_t i = 1; i < order.size(); ++i)
    if (header.tensors[order[i]].name == header.tensors[order[i - 1]].name) drop[order[i - 1]] = true;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < drop.size(); ++i) {
    if (drop[i]) continue;
    if (kept != i) {
      header.tensors[kept] = std::move(header.tensors[i]);
      header.begin[kept] = header.begin[i];
    }
    ++kept;
  }
  header.tensors.resize(kept);
  header.begin.resize(kept);
  return {};
}

Status settle_metadata(Metadata& metadata, bool lenient) {
  std::stable_sort(metadata.begin(), metadata.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 1; i < metadata.size(); ++i) {
    if (metadata[i].first != metadata[i - 1].first) continue;
    if (!lenient) return bad({"__metadata__ ", printable(metadata[i].first), ": stands twice"});
    metadata.erase(metadata.begin() + static_cast<std::ptrdiff_t>(i - 1));
    --i;
  }
  return {};
}

Result<SafetensorsHeader> parse(std::span<const std::byte> file, const SafetensorsOptions& options) {
  QF_TRY(refuse_foreign(sniff(file), FileKind::safetensors));
  QF_TRY_ASSIGN(const std::string_view text, header_text(file, options));
  SafetensorsHeader header;
  // Room is made once, since growing takes three times as much for a moment. No name can hold "dtype" with its
  // quotes, so names can't raise the count.
  std::size_t most = 0;
  for (std::size_t at = text.find(kDtype); at != text.npos; at = text.find(kDtype, at + kDtype.size()))
    ++most;
  most = std::min(most, text.size() / kShortestEntry + 1);
  header.tensors.reserve(most);
  header.begin.reserve(most);
  HeaderBuilder builder(header);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder))
    return builder.status().ok() ? bad({"the header is not valid JSON"}) : builder.status();
  if (!options.lenient)
    for (const TensorInfo& info : header.tensors) QF_TRY(check_name(info.name));
  QF_TRY(settle_names(header, options.lenient));
  QF_TRY(settle_metadata(header.metadata, options.lenient));

  auto& order = header.by_name;
  order.resize(header.tensors.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const auto key = [&](std::uint32_t i) { return std::pair(header.begin[i], header.tensors[i].bytes); };
    if (key(a) != key(b)) return key(a) < key(b);
    return header.tensors[a].name < header.tensors[b].name;
  });
  reorder(header, order);
  std::uint64_t data = 0;
  std::memcpy(&data, file.data(), 8);
  data += 8;
  for (std::size_t i = 0; i < header.begin.size(); ++i)
    if (__builtin_add_overflow(header.begin[i], data, &header.begin[i]))
      return bad({"tensor ", printable(header.tensors[i].name), ": its offset overflows 64 bits"});
  QF_TRY(check_layout(header, data, file.size()));
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return header.tensors[a].name < header.tensors[b].name;
  });
  return header;
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file,
                                                   const SafetensorsOptions& options) {
  try {
    return parse(file, options);
  } catch (const std::bad_alloc&) {
    return detail::no_memory({"no memory for the header"});
  }
}

}  // namespace qf::io::detail
