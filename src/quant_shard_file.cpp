#include "src/quant_shard_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "src/quant_workspace.hpp"

namespace qf::quant::detail {
namespace {

using io::detail::Descriptor;
using io::detail::system_error;

// How much may wait in memory for the disk; then it is flushed and dropped from the cache.
constexpr std::uint64_t kMostUnflushed = std::uint64_t{64} << 20;

Status no_room(const std::string& path, std::uint64_t needed, int code) {
  struct statvfs info;
  std::string text = cat({path, ": no room for its ", num(needed), " bytes"});
  if (code == ENOSPC && ::statvfs(path.c_str(), &info) == 0)
    text += cat({" (", num(std::uint64_t{info.f_bavail} * info.f_frsize), " bytes free)"});
  return system_error(text, "cannot be written", code);
}

}  // namespace

Result<ShardFile> ShardFile::open(const std::string& folder, const Shard& shard) {
  ShardFile file;
  file.path_ = folder + "/" + shard.name;
  file.file_ = Descriptor(::open(file.path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!file.file_.ok()) return system_error(file.path_, "cannot be made", errno);
  struct stat info;
  if (::fstat(file.file_.fd(), &info) != 0) return system_error(file.path_, "cannot be examined", errno);
  const auto size = static_cast<off_t>(shard.file_bytes);
  if (info.st_size > size && ::ftruncate(file.file_.fd(), size) != 0)
    return system_error(file.path_, "cannot be shortened", errno);
  // Better to learn now than after hours that the disk is too small. Not every file system can reserve.
  int failed = 0;
  do {
    failed = ::fallocate(file.file_.fd(), 0, 0, size) == 0 ? 0 : errno;
  } while (failed == EINTR);
  if (failed == EOPNOTSUPP) failed = ::ftruncate(file.file_.fd(), size) == 0 ? 0 : errno;
  if (failed) {
    (void)!::ftruncate(file.file_.fd(), std::min(info.st_size, size));  // what was reserved in vain
    return no_room(file.path_, shard.file_bytes, failed);
  }
  QF_TRY(write_all(file.file_.fd(), file.path_, 0, shard.head.data(), shard.head.size()));
  return file;
}

Status ShardFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  QF_TRY(write_all(file_.fd(), path_, offset, bytes.data(), bytes.size()));
  unflushed_ += bytes.size();
  return unflushed_ >= kMostUnflushed ? flush() : Status();
}

Status ShardFile::flush() {
  QF_TRY(detail::flush(file_.fd(), path_));
  ::posix_fadvise(file_.fd(), 0, 0, POSIX_FADV_DONTNEED);
  unflushed_ = 0;
  return {};
}

Result<io::Hash128> ShardFile::hash(std::uint64_t offset, std::uint64_t count) const {
  QF_TRY_ASSIGN(auto buffer,
                Array<std::byte>::make(static_cast<std::size_t>(std::min(count, std::uint64_t{1} << 20))));
  io::Hasher hasher;
  while (count > 0) {
    const ssize_t got = ::pread(file_.fd(), buffer.data(), std::min<std::uint64_t>(count, buffer.size()),
                                static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(path_, "cannot be read", errno);
    if (got == 0) break;  // shortened by someone: the hash won't fit
    hasher.update({buffer.data(), static_cast<std::size_t>(got)});
    offset += static_cast<std::uint64_t>(got);
    count -= static_cast<std::uint64_t>(got);
  }
  return hasher.digest128();
}

}  // namespace qf::quant::detail
