// Needs: link qf. GGUF files (versions 2 and 3, little-endian): metadata and tensors.
// Everything the file says about itself is checked against its size before memory is taken for it; the
// metadata stay where they are, in the mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "qf/format/gguf_blocks.hpp"
#include "qf/io/checkpoint.hpp"
#include "qf/io/mapped_file.hpp"

namespace qf::io {

// Types of metadata values; numbers as files store them.
enum class GgufType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};

std::string_view gguf_type_name(GgufType type);

struct GgufArray {
  GgufType element = GgufType::u8;
  std::uint64_t count = 0;
};

// A value for listing: arrays show their type and length only.
using GgufValue = std::variant<bool, std::int64_t, std::uint64_t, double, std::string_view, GgufArray>;

// One key and where its value lies. Views into the file.
struct GgufEntry {
  std::string_view key;
  GgufType type = GgufType::u8;
  GgufType element = GgufType::u8;  // of an array
  std::uint64_t count = 1;          // elements of an array
  std::span<const std::byte> raw;   // the value; of strings, without their length
};

// A GGUF file as a checkpoint, and its metadata. Getters name the file and the key in errors: not_found when
// the key is absent, bad_format when it has another type or doesn't fit. Thread rule: const use from many
// threads.
class GgufFile final : public Checkpoint {
 public:
  const std::string& path() const override { return path_; }
  std::string_view format() const override { return "gguf"; }
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  const TensorInfo* find(std::string_view name) const override;
  std::span<const std::byte> bytes(const TensorInfo& info) const override;
  void release(const TensorInfo& info) const override;
  // Any range of elements may be asked for, whole blocks are fastest.
  Status read_f32(const TensorInfo& info, std::uint64_t first, std::span<float> out) const override;

  std::uint32_t version() const { return version_; }
  std::uint64_t alignment() const { return alignment_; }
  // The tensor's type as a number; traits() of format/gguf_blocks.hpp knows it.
  const gguf::TypeTraits& type(const TensorInfo& info) const;

  std::span<const GgufEntry> entries() const { return entries_; }  // in file order
  bool has(std::string_view key) const { return entry(key) != nullptr; }
  const GgufEntry* entry(std::string_view key) const;  // nullptr when absent
  static GgufValue value(const GgufEntry& entry);

  // Views into the file: valid as long as the GgufFile. Strings may hold any bytes.
  Result<std::string_view> string(std::string_view key) const;
  Result<std::int64_t> integer(std::string_view key) const;  // any integer type
  Result<double> real(std::string_view key) const;           // f32, f64 or any integer type
  Result<bool> boolean(std::string_view key) const;
  // As above, but `otherwise` when the key is absent.
  Result<std::string_view> string_or(std::string_view key, std::string_view otherwise) const;
  Result<std::int64_t> integer_or(std::string_view key, std::int64_t otherwise) const;
  Result<double> real_or(std::string_view key, double otherwise) const;
  Result<bool> boolean_or(std::string_view key, bool otherwise) const;

  Result<std::vector<std::string>> strings(std::string_view key) const;
  Result<std::vector<std::int64_t>> integers(std::string_view key) const;
  Result<std::vector<double>> reals(std::string_view key) const;

 private:
  friend Result<std::unique_ptr<GgufFile>> open_gguf(const std::string& path);
  friend Result<std::unique_ptr<GgufFile>> parse_gguf(std::span<const std::byte> bytes,
                                                      std::string_view what);
  friend class GgufParser;
  struct Part {
    std::uint64_t begin = 0;  // in the file
    std::int32_t type = 0;
  };
  GgufFile() = default;
  std::size_t index(const TensorInfo& info) const;
  Result<const GgufEntry*> need(std::string_view key, std::string_view expected,
                                bool (*fits)(const GgufEntry&)) const;
  Status wrong(const GgufEntry& entry, std::string_view expected) const;

  std::string path_;
  MappedFile mapped_;
  std::span<const std::byte> bytes_;
  std::vector<GgufEntry> entries_;
  std::vector<std::uint32_t> keys_sorted_, tensors_sorted_;
  std::vector<TensorInfo> tensors_;
  std::vector<Part> parts_;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
};

// Errors name the file and the field, what was found and what was expected: bad_format for bytes that break
// the format (big-endian files are named as such), unsupported for version 1, for parts of a split model and
// for tensor types that aren't known or were removed from the format.
Result<std::unique_ptr<GgufFile>> open_gguf(const std::string& path);
// The same from memory, which the caller keeps alive; `what` names it in errors.
Result<std::unique_ptr<GgufFile>> parse_gguf(std::span<const std::byte> bytes, std::string_view what);

}  // namespace qf::io
