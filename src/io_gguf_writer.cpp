#include "qf/io/gguf_writer.hpp"

#include <algorithm>
#include <new>

#include "qf/format/gguf_encode.hpp"

namespace qf::io {
namespace {

constexpr std::uint64_t kAlignment = 32;  // what readers assume when no key says otherwise
constexpr std::size_t kMostName = 63;     // llama.cpp's GGML_MAX_NAME holds one byte more for the final NUL

std::uint64_t padding(std::uint64_t size) {
  return (kAlignment - size % kAlignment) % kAlignment;
}

template <class T>
void put(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

Result<std::uint64_t> stored_bytes(const GgufTensorSpec& t) {
  const gguf::TypeTraits& type = gguf::traits(t.type);
  std::int64_t elements = 1;
  bool fits = t.shape.size() <= 4;
  for (std::int64_t d : t.shape) fits = fits && d >= 0 && !__builtin_mul_overflow(elements, d, &elements);
  const std::int64_t row = t.shape.empty() ? 1 : t.shape.back();
  std::uint64_t bytes = 0;
  if (!fits || row % type.block_elements ||
      __builtin_mul_overflow(static_cast<std::uint64_t>(elements / type.block_elements),
                             static_cast<std::uint64_t>(type.block_bytes), &bytes) ||
      bytes > static_cast<std::uint64_t>(INT64_MAX)) {
    std::string shape;
    for (std::int64_t d : t.shape) shape += (shape.empty() ? "" : ", ") + num(d);
    return Status(
        Errc::invalid_argument,
        cat({"tensor ", printable(t.name), ": shape [", shape, "] doesn't fit type ", type.name,
             ", which needs at most 4 dimensions and rows of a multiple of ", num(type.block_elements)}));
  }
  return bytes;
}

template <class Names>
Status check_unique(Names names, std::string_view kind) {
  std::sort(names.begin(), names.end());
  auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return {};
  return Status(Errc::invalid_argument, cat({"the ", kind, " ", printable(*twice), " is given twice"}));
}

}  // namespace

void GgufMetadata::put_text(std::string_view text) {
  put<std::uint64_t>(text.size());
  bytes_ += text;
}
void GgufMetadata::begin(std::string_view key, GgufType type) {
  keys_.emplace_back(key);
  put_text(key);
  put(static_cast<std::uint32_t>(type));
}
void GgufMetadata::begin_array(std::string_view key, GgufType element, std::size_t count) {
  begin(key, GgufType::array);
  put(static_cast<std::uint32_t>(element));
  put<std::uint64_t>(count);
}
void GgufMetadata::text(std::string_view key, std::string_view value) {
  begin(key, GgufType::string);
  put_text(value);
}
void GgufMetadata::u32(std::string_view key, std::uint32_t value) {
  begin(key, GgufType::u32);
  put(value);
}
void GgufMetadata::u64(std::string_view key, std::uint64_t value) {
  begin(key, GgufType::u64);
  put(value);
}
void GgufMetadata::i32(std::string_view key, std::int32_t value) {
  begin(key, GgufType::i32);
  put(value);
}
void GgufMetadata::f32(std::string_view key, float value) {
  begin(key, GgufType::f32);
  put(value);
}
void GgufMetadata::boolean(std::string_view key, bool value) {
  begin(key, GgufType::boolean);
  put<std::uint8_t>(value);
}
void GgufMetadata::texts(std::string_view key, std::span<const std::string> values) {
  begin_array(key, GgufType::string, values.size());
  for (const std::string& v : values) put_text(v);
}
void GgufMetadata::i32s(std::string_view key, std::span<const std::int32_t> values) {
  begin_array(key, GgufType::i32, values.size());
  for (std::int32_t v : values) put(v);
}
void GgufMetadata::f32s(std::string_view key, std::span<const float> values) {
  begin_array(key, GgufType::f32, values.size());
  for (float v : values) put(v);
}
void GgufMetadata::copy(const GgufEntry& e) {
  if (e.type == GgufType::array) {
    begin_array(e.key, e.element, static_cast<std::size_t>(e.count));
  } else {
    begin(e.key, e.type);
    if (e.type == GgufType::string) put<std::uint64_t>(e.raw.size());
  }
  bytes_.append(reinterpret_cast<const char*>(e.raw.data()), e.raw.size());
}

Result<GgufWriter> GgufWriter::create(const std::string& path, const GgufMetadata& metadata,
                                      std::span<const GgufTensorSpec> tensors) {
  try {
    QF_TRY(check_unique(std::vector<std::string>(metadata.keys().begin(), metadata.keys().end()), "key")
               .at(path));
    std::vector<std::string> names;
    GgufWriter writer;
    std::string head = "GGUF";
    put<std::uint32_t>(head, 3);
    put<std::uint64_t>(head, tensors.size());
    put<std::uint64_t>(head, metadata.keys().size());
    head += metadata.bytes();
    std::uint64_t offset = 0;
    for (const GgufTensorSpec& t : tensors) {
      if (t.name.empty() || t.name.size() > kMostName)
        return Status(Errc::invalid_argument,
                      cat({path, ": tensor ", printable(t.name), ": a name of ", num(t.name.size()),
                           " bytes, expected 1 to ", num(kMostName)}));
      auto bytes = stored_bytes(t);
      QF_TRY(bytes.status().at(path));
      put<std::uint64_t>(head, t.name.size());
      head += t.name;
      put<std::uint32_t>(head, static_cast<std::uint32_t>(t.shape.size()));
      for (std::size_t d = t.shape.size(); d-- > 0;) put(head, t.shape[d]);
      put(head, static_cast<std::int32_t>(t.type));
      put(head, offset);
      if (__builtin_add_overflow(offset, *bytes + padding(*bytes), &offset))
        return Status(Errc::invalid_argument, cat({path, ": the tensors take more than 2^64 bytes"}));
      names.push_back(t.name);
      writer.slots_.push_back({t.name, t.type, *bytes});
    }
    QF_TRY(check_unique(std::move(names), "tensor").at(path));
    head.append(static_cast<std::size_t>(padding(head.size())), '\0');
    QF_TRY_ASSIGN(writer.file_, AtomicFile::create(path));
    QF_TRY(writer.file_.write(head));
    QF_TRY(writer.skip_whole());
    return writer;
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({path, ": no memory for the header"}));
  }
}

// Pads a tensor that is complete and goes on to the next that isn't.
Status GgufWriter::skip_whole() {
  static constexpr std::byte kZeros[kAlignment]{};
  while (next_ < slots_.size() && slots_[next_].left == 0) {
    QF_TRY(file_.write(std::span(kZeros).first(static_cast<std::size_t>(padding(file_.size())))));
    ++next_;
  }
  return {};
}

Result<GgufWriter::Slot*> GgufWriter::current(std::string_view name, std::uint64_t bytes) {
  if (next_ == slots_.size() || slots_[next_].name != name)
    return Status(Errc::invalid_argument,
                  cat({path(), ": tensor ", printable(name), " is written, expected ",
                       next_ == slots_.size() ? "no more" : printable(slots_[next_].name)}));
  if (bytes > slots_[next_].left)
    return Status(Errc::invalid_argument, cat({path(), ": tensor ", printable(name), ": ", num(bytes),
                                               " more bytes, ", num(slots_[next_].left), " expected"}));
  return &slots_[next_];
}

Status GgufWriter::write(std::string_view name, std::span<const std::byte> piece) {
  if (piece.empty()) return {};
  QF_TRY_ASSIGN(Slot * slot, current(name, piece.size()));
  QF_TRY(file_.write(piece));
  slot->left -= piece.size();
  return skip_whole();
}

Status GgufWriter::write_f32(std::string_view name, std::span<const float> piece) {
  if (piece.empty()) return {};
  QF_TRY_ASSIGN(Slot * slot, current(name, 0));
  try {
    blocks_.resize(
        static_cast<std::size_t>(gguf::row_bytes(slot->type, static_cast<std::int64_t>(piece.size()))));
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({path(), ": no memory for a piece of ", printable(name)}));
  }
  QF_TRY(gguf::encode_row(slot->type, piece, blocks_.data()).at(cat({path(), ": tensor ", printable(name)})));
  return write(name, blocks_);
}

Status GgufWriter::commit() {
  if (next_ < slots_.size())
    return Status(Errc::invalid_argument, cat({path(), ": tensor ", printable(slots_[next_].name), ": ",
                                               num(slots_[next_].left), " bytes are missing"}));
  return file_.commit();
}

}  // namespace qf::io
