// Needs: link qf. Writing safetensors: tensors are declared first, then their bytes come in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qf/core/dtype.hpp"
#include "qf/core/result.hpp"
#include "qf/io/file_writer.hpp"
#include "qf/io/safetensors.hpp"

namespace qf::io {

struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
};

// Bytes that the tensor takes; fails on a negative or overflowing shape and on an F4/F6 tensor that doesn't
// fill whole bytes.
Result<std::uint64_t> stored_bytes(const TensorSpec& tensor);

// Where everything of a file will lie, known before its first tensor: for writers that go on where an earlier one
// was interrupted.
struct SafetensorsLayout {
  struct Slot {
    DType dtype = DType::f32;
    std::uint64_t begin = 0, end = 0;  // from the first byte of the file
  };
  std::string head;  // the file's first bytes: the header and its length
  std::map<std::string, Slot, std::less<>> slots;
  std::uint64_t data_bytes = 0;  // of all tensors; the file has head.size() + data_bytes bytes
};

// Errors as SafetensorsWriter::create, without a path in front.
Result<SafetensorsLayout> layout_safetensors(std::span<const TensorSpec> tensors,
                                             const Metadata& metadata = {});

// The file's bytes depend on the tensors and metadata only, not on the order in which they come. In the file,
// tensors stand by descending alignment of their type, then by name, as the reference writer puts them; the
// header is padded with spaces to a multiple of 8. Memory: the header and what the caller passes.
// Move-only; one thread at a time.
class SafetensorsWriter {
 public:
  // Writes the header. Errors: invalid_argument (a name twice, empty, with control bytes or "__metadata__"; a
  // shape), those of AtomicFile::create.
  static Result<SafetensorsWriter> create(const std::string& path, std::span<const TensorSpec> tensors,
                                          const Metadata& metadata = {});

  // The next bytes of a tensor. Tensors may come in any order and take turns; the pieces of one tensor come
  // front to back. Errors: invalid_argument (no such tensor, more bytes than declared), io_error.
  Status write(std::string_view name, std::span<const std::byte> piece);
  // The next elements, rounded to the declared type (F32, F16, BF16, F8_E4M3, F8_E5M2).
  Status write_f32(std::string_view name, std::span<const float> piece);

  // Fails with invalid_argument, naming the tensor, unless every tensor is whole; then puts the file in
  // place.
  Status commit();

  const std::string& path() const { return file_.path(); }
  std::uint64_t data_bytes() const { return data_bytes_; }  // of all tensors: what an index adds up

 private:
  AtomicFile file_;
  std::map<std::string, SafetensorsLayout::Slot, std::less<>> slots_;  // begin: where the next piece goes
  std::uint64_t data_bytes_ = 0;
};

// "model-00001-of-00003.safetensors"; `shard` counts from 0.
std::string shard_name(std::int64_t shard, std::int64_t count);

// Writes <folder>/model.safetensors.index.json: which tensor is in which file of the folder. `total_bytes` is
// the sum of the writers' data_bytes().
Status write_shard_index(const std::string& folder, const std::map<std::string, std::string>& file_of_tensor,
                         std::uint64_t total_bytes, const Metadata& metadata = {});

}  // namespace qf::io
