// Needs: link qf. Writing GGUF version 3: metadata and tensors are declared first, then the bytes of the
// tensors come in order, in pieces. Padding is what llama.cpp requires.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qf/core/result.hpp"
#include "qf/format/gguf_blocks.hpp"
#include "qf/io/file_writer.hpp"
#include "qf/io/gguf.hpp"

namespace qf::io {

// Keys and values in the order in which they stand in the file. A key that is set twice is an error of
// GgufWriter::create().
class GgufMetadata {
 public:
  void text(std::string_view key, std::string_view value);
  void u32(std::string_view key, std::uint32_t value);
  void u64(std::string_view key, std::uint64_t value);
  void i32(std::string_view key, std::int32_t value);
  void f32(std::string_view key, float value);
  void boolean(std::string_view key, bool value);
  void texts(std::string_view key, std::span<const std::string> values);
  void i32s(std::string_view key, std::span<const std::int32_t> values);
  void f32s(std::string_view key, std::span<const float> values);
  void copy(const GgufEntry& entry);  // from another file, as it is

  std::span<const std::string> keys() const { return keys_; }
  std::string_view bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, GgufType type);
  void begin_array(std::string_view key, GgufType element, std::size_t count);
  template <class T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(std::string_view text);
  std::vector<std::string> keys_;
  std::string bytes_;
};

struct GgufTensorSpec {
  std::string name;  // 1 to 63 bytes
  gguf::Type type = gguf::Type::f32;
  std::vector<std::int64_t> shape;  // row-major, as everywhere in qf; at most 4 dimensions
};

// Move-only; one thread at a time. The file appears under its name on commit(), whole, or never.
class GgufWriter {
 public:
  // Writes the header. Errors: invalid_argument (a key or tensor twice, a name that's empty or too long, a
  // shape that the type can't hold), those of AtomicFile::create().
  static Result<GgufWriter> create(const std::string& path, const GgufMetadata& metadata,
                                   std::span<const GgufTensorSpec> tensors);

  // The next bytes of tensor `name`. Tensors come in the order in which they were declared, each front to
  // back.
  Status write(std::string_view name, std::span<const std::byte> piece);
  // The next elements, rounded to the declared type (one that gguf::can_encode()): whole blocks.
  Status write_f32(std::string_view name, std::span<const float> piece);

  // Fails with invalid_argument, naming the tensor, unless every tensor is whole.
  Status commit();

  const std::string& path() const { return file_.path(); }

 private:
  struct Slot {
    std::string name;
    gguf::Type type;
    std::uint64_t left;
  };
  Result<Slot*> current(std::string_view name, std::uint64_t bytes);
  Status skip_whole();
  AtomicFile file_;
  std::vector<Slot> slots_;
  std::size_t next_ = 0;
  std::vector<std::byte> blocks_;
};

}  // namespace qf::io
