// Needs: link qf. A file seen as memory, read-only: pages come in when touched and can be given back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "qf/core/result.hpp"

namespace qf::io {

// Move-only. Thread rule: const use from many threads.
class MappedFile {
 public:
  MappedFile() = default;
  // Errors, each with the path in front: not_found (no such file), io_error (permission, a read error),
  // invalid_argument (a folder, a pipe or a device), bad_format (an empty file).
  // `follow_links` false refuses a symbolic link as the last part of the path.
  static Result<MappedFile> open(const std::string& path, bool follow_links = true);
  MappedFile(MappedFile&& other) noexcept { swap(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    MappedFile(std::move(other)).swap(*this);
    return *this;
  }
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::uint64_t size() const { return size_; }
  // Gives the pages that hold `part` back to the system; touching them reads them again. Does nothing unless
  // `part` lies within bytes().
  void release(std::span<const std::byte> part) const;
  // Asks the system to read the pages of `part` ahead.
  void prefetch(std::span<const std::byte> part) const;

 private:
  bool holds(std::span<const std::byte> part) const;
  void swap(MappedFile& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace qf::io
