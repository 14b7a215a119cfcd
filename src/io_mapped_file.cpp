#include "qf/io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <limits>

#include "io_posix.hpp"

namespace qf::io {
namespace {

void advise(std::span<const std::byte> part, int advice) {
  if (part.empty()) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  // Outward to whole pages: a neighbour's page that is dropped is only read once more.
  const std::uintptr_t from = reinterpret_cast<std::uintptr_t>(part.data()) / page * page;
  const std::uintptr_t to = reinterpret_cast<std::uintptr_t>(part.data()) + part.size();
  ::madvise(reinterpret_cast<void*>(from), to - from, advice);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path, bool follow_links) {
  // O_NONBLOCK: opening a pipe must not wait for its writer; it means nothing for regular files.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (follow_links ? 0 : O_NOFOLLOW);
  const detail::Descriptor file(::open(path.c_str(), flags));
  if (!file.ok()) {
    if (!follow_links && errno == ELOOP)
      return Status(Errc::invalid_argument, cat({path, ": a symbolic link, expected a file"}));
    return detail::system_error(path, "cannot be opened", errno);
  }
  struct stat info;
  if (::fstat(file.fd(), &info) != 0) return detail::system_error(path, "cannot be examined", errno);
  if (S_ISDIR(info.st_mode))
    return Status(Errc::invalid_argument, cat({path, ": a folder, expected a file"}));
  if (!S_ISREG(info.st_mode))
    return Status(Errc::invalid_argument, cat({path, ": a pipe, socket or device, expected a file"}));
  if (info.st_size <= 0) return Status(Errc::bad_format, cat({path, ": the file is empty"}));
  if (static_cast<std::uint64_t>(info.st_size) > std::numeric_limits<std::size_t>::max() / 2)
    return Status(Errc::unsupported, cat({path, ": too large for this machine's addresses"}));
  const auto size = static_cast<std::size_t>(info.st_size);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (memory == MAP_FAILED) return detail::system_error(path, "cannot be mapped", errno);
  MappedFile mapped;
  mapped.data_ = static_cast<const std::byte*>(memory);
  mapped.size_ = size;
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(std::span<const std::byte> part) const {
  // Memory that isn't the mapping's own would lose its contents.
  if (holds(part)) advise(part, MADV_DONTNEED);
}

void MappedFile::prefetch(std::span<const std::byte> part) const {
  if (holds(part)) advise(part, MADV_WILLNEED);
}

bool MappedFile::holds(std::span<const std::byte> part) const {
  const std::less_equal<const std::byte*> not_after;
  return data_ && not_after(data_, part.data()) && not_after(part.data() + part.size(), data_ + size_);
}

}  // namespace qf::io
