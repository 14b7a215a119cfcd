// Needs: link qf. A checkpoint to read: named tensors, wherever they lie (safetensors, sharded folders,
// GGUF).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qf/core/buffer.hpp"
#include "qf/core/dtype.hpp"
#include "qf/core/result.hpp"

namespace qf::io {

// One tensor as its file declares it. Row-major, last dimension fastest (GGUF's reversed dimensions are
// turned round here).
struct TensorInfo {
  std::string name;
  std::string type;  // as the file spells it: "BF16", "F8_E4M3", "Q4_K"
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;  // stored size
  std::uint64_t elements = 0;

  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

// Files are mapped, not loaded: bytes() is a view into the mapping and costs memory only while pages are
// touched; release() gives those pages back. If another process shortens a mapped file, touching it raises
// SIGBUS: replace model files by rename, never in place. Thread rule: const use from many threads.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  virtual const std::string& path() const = 0;
  virtual std::string_view format() const = 0;                      // "safetensors" or "gguf"
  virtual std::span<const TensorInfo> tensors() const = 0;          // in file order
  virtual const TensorInfo* find(std::string_view name) const = 0;  // nullptr when absent
  // The stored bytes of tensors()[i].
  virtual std::span<const std::byte> bytes(const TensorInfo& info) const = 0;
  // Tells the system that the tensor's pages won't be needed soon.
  virtual void release(const TensorInfo& info) const = 0;

  // Decodes elements [first, first + out.size()) of the tensor to float, whatever its type (floats, integers,
  // GGUF blocks: there `first` and the count are multiples of the block, or reach the end of a row). Exact
  // for 16-bit and smaller types. Errors: unsupported type, range outside the tensor.
  virtual Status read_f32(const TensorInfo& info, std::uint64_t first, std::span<float> out) const = 0;
};

// Opens a .safetensors file, a folder with model.safetensors or model.safetensors.index.json, or a .gguf
// file. Tells by content, not by name; a Git-LFS pointer, an HTML page, a pickle or a truncated download is
// named as such.
Result<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& path);

}  // namespace qf::io
