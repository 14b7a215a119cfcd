// Files of packed weights: a header of 64 bytes, the weights at multiples of 64, then the index and the source.
#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "qf/core/align.hpp"
#include "qf/io/file_writer.hpp"
#include "qf/model/packed_file.hpp"

namespace qf::model {
namespace {

static_assert(std::endian::native == std::endian::little);

struct Header {
  static constexpr std::uint32_t kMagic = 0x46504651;  // "QFPF"
  static constexpr std::uint16_t kVersion = 1;
  std::uint32_t magic;
  std::uint16_t version, reserved;
  std::uint32_t count, source_bytes;
  std::uint64_t index_offset, size_bytes;  // of the index; of the file
  std::uint64_t zeros[4];
};
static_assert(sizeof(Header) == 64);

// Of one weight; its name follows. Weights lie in the order of the index, which is that of names.
struct Entry {
  std::uint64_t offset, bytes;
  std::uint32_t name_bytes;
};
constexpr std::size_t kEntryBytes = 20;

Status wrong(std::string_view field, std::uint64_t found, std::string_view expected) {
  return Status(Errc::bad_format, cat({field, " ", num(found), ", expected ", expected}));
}

// Takes bytes off the front of the index.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::size_t left() const { return bytes_.size(); }
  bool read(void* to, std::size_t count) {
    if (count > bytes_.size()) return false;
    std::memcpy(to, bytes_.data(), count);
    bytes_ = bytes_.subspan(count);
    return true;
  }
  bool read(std::string& to, std::size_t count) {
    if (count > bytes_.size()) return false;
    to.assign(reinterpret_cast<const char*>(bytes_.data()), count);
    bytes_ = bytes_.subspan(count);
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
};

Status check_header(std::span<const std::byte> file, Header& h) {
  if (file.size() < sizeof h) return wrong("size", file.size(), "64 or more bytes");
  std::memcpy(&h, file.data(), sizeof h);
  if (h.magic != Header::kMagic) return wrong("magic", h.magic, num(Header::kMagic));
  if (h.version != Header::kVersion)
    return Status(Errc::unsupported, cat({"version ", num(h.version), ", expected ", num(Header::kVersion)}));
  if (h.reserved) return wrong("reserved field", h.reserved, "0");
  for (std::uint64_t zero : h.zeros)
    if (zero) return wrong("reserved field", zero, "0");
  if (h.size_bytes != file.size()) return wrong("size in the header", h.size_bytes, num(file.size()));
  if (h.index_offset < sizeof h || h.index_offset > file.size())
    return wrong("offset of the index", h.index_offset, cat({"64 to ", num(file.size())}));
  const std::uint64_t least = std::uint64_t{h.count} * kEntryBytes + h.source_bytes;
  if (least > file.size() - h.index_offset)
    return wrong("size of the index", file.size() - h.index_offset, cat({num(least), " or more bytes"}));
  return {};
}

}  // namespace

Status save_packed(const std::string& path, std::span<const NamedWeight> weights, std::string_view source) {
  try {
    std::vector<NamedWeight> sorted(weights.begin(), weights.end());
    std::ranges::sort(sorted, {}, &NamedWeight::name);
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      if (sorted[i].name.empty())
        return Status(Errc::invalid_argument, cat({path, ": a weight without a name"}));
      if (i && sorted[i].name == sorted[i - 1].name)
        return Status(Errc::invalid_argument, cat({path, ": two weights named ", printable(sorted[i].name)}));
    }
    QF_TRY_ASSIGN(io::AtomicFile file, io::AtomicFile::create(path));
    Header h{};
    h.magic = Header::kMagic;
    h.version = Header::kVersion;
    h.count = static_cast<std::uint32_t>(sorted.size());
    h.source_bytes = static_cast<std::uint32_t>(source.size());
    std::string index;
    std::uint64_t offset = sizeof h;
    for (const NamedWeight& w : sorted) {
      const std::span<const std::byte> bytes = w.weight->buffer();
      const Entry entry{offset, bytes.size(), static_cast<std::uint32_t>(w.name.size())};
      index.append(reinterpret_cast<const char*>(&entry), kEntryBytes).append(w.name);
      QF_TRY(file.write_at(offset, bytes));
      offset = align64(offset + bytes.size());
    }
    index += source;
    h.index_offset = offset;
    h.size_bytes = offset + index.size();
    QF_TRY(file.write_at(offset, std::as_bytes(std::span(index))));
    QF_TRY(file.write_at(0, std::as_bytes(std::span(&h, 1))));
    return file.commit();
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({path, ": no memory for the index"}));
  }
}

Result<PackedFile> PackedFile::open(const std::string& path) {
  try {
    PackedFile made;
    QF_TRY_ASSIGN(made.file_, io::MappedFile::open(path));
    const std::span<const std::byte> file = made.file_.bytes();
    Header h;
    if (Status status = check_header(file, h); !status.ok()) return status.at(path);
    Reader index(file.subspan(h.index_offset));
    std::uint64_t offset = sizeof h;
    for (std::uint32_t i = 0; i < h.count; ++i) {
      Entry entry{};
      std::string name;
      if (!index.read(&entry, kEntryBytes) || !index.read(name, entry.name_bytes))
        return wrong("size of the index", index.left(), cat({"weight ", num(i)})).at(path);
      const std::string what = cat({path, ": weight ", printable(name)});
      if (name.empty() || (i && name <= made.names_.back()))
        return Status(Errc::bad_format, cat({what, ": names aren't in order"}));
      if (entry.offset != offset) return wrong("offset", entry.offset, num(offset)).at(what);
      if (entry.bytes > h.index_offset - offset)
        return wrong("size", entry.bytes, cat({"at most ", num(h.index_offset - offset)})).at(what);
      QF_TRY_ASSIGN(kernel::PackedWeight weight,
                    kernel::PackedWeight::from_bytes(file.subspan(offset, entry.bytes), what));
      offset = align64(offset + entry.bytes);
      if (offset > h.index_offset) return wrong("offset of the index", h.index_offset, num(offset)).at(path);
      made.names_.push_back(std::move(name));
      made.weights_.push_back(std::move(weight));
    }
    if (offset != h.index_offset) return wrong("offset of the index", h.index_offset, num(offset)).at(path);
    if (index.left() != h.source_bytes)
      return wrong("bytes behind the index", index.left(), num(h.source_bytes)).at(path);
    index.read(made.source_, h.source_bytes);
    return made;
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({path, ": no memory for the index"}));
  }
}

const kernel::PackedWeight* PackedFile::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(names_, name, std::less<>());
  if (found == names_.end() || *found != name) return nullptr;
  return &weights_[static_cast<std::size_t>(found - names_.begin())];
}

}  // namespace qf::model
