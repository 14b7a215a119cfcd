// Needs: link qf. Files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "qf/core/result.hpp"

namespace qf::io {

// Writes "<path>.partial" and renames it to `path` on commit(); until then `path` stays as it was. After a
// crash the partial file is taken over by the next writer of the same path. A second writer at the same time
// is refused. Every error leaves nothing new under `path`. Move-only; one thread at a time.
class AtomicFile {
 public:
  AtomicFile() = default;
  // Errors: io_error or not_found (the folder), invalid_argument (`path` is a folder or empty).
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept { swap(other); }
  AtomicFile& operator=(AtomicFile&& other) noexcept {
    AtomicFile(std::move(other)).swap(*this);
    return *this;
  }
  ~AtomicFile();  // removes the partial file unless committed

  Status write(std::span<const std::byte> bytes);  // at the end
  Status write(std::string_view text);
  // Anywhere; bytes that were skipped read as zeros.
  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  std::uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

  // Flushes file and folder to the disk. After an error the file can't be written on.
  Status commit();

 private:
  void swap(AtomicFile& other) noexcept;
  void abandon() noexcept;
  std::string path_, partial_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

// A whole small file: refuses one larger than `most_bytes` before reading it.
Result<std::string> read_file(const std::string& path, std::uint64_t most_bytes);

// AtomicFile with one write.
Status write_file(const std::string& path, std::string_view text);

}  // namespace qf::io
