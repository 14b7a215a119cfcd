#include "qf/io/file_writer.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "io_posix.hpp"
#include "qf/io/mapped_file.hpp"

namespace qf::io {
namespace {

using detail::Descriptor;
using detail::system_error;

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == path.npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Opens and locks the partial file. The lock tells a live writer from the leftover of a crash; a file that
// its owner renamed or removed between our open and our lock is not ours, then we open anew.
Result<Descriptor> open_locked(const std::string& partial) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    Descriptor file(::open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
    if (!file.ok()) return system_error(partial, "cannot be created", errno);
    struct stat opened, named;
    if (::fstat(file.fd(), &opened) != 0) return system_error(partial, "cannot be examined", errno);
    if (!S_ISREG(opened.st_mode))
      return Status(Errc::invalid_argument, cat({partial, ": not a regular file"}));
    if (::flock(file.fd(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      return Status(Errc::io_error, cat({partial, ": is being written by someone else"}));
    if (::stat(partial.c_str(), &named) != 0 || named.st_ino != opened.st_ino ||
        named.st_dev != opened.st_dev)
      continue;
    if (::ftruncate(file.fd(), 0) != 0) return system_error(partial, "cannot be emptied", errno);
    return file;
  }
  return Status(Errc::io_error, cat({partial, ": is being written by someone else"}));
}

Status flush_folder(const std::string& folder) {
  const Descriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file.ok()) return system_error(folder, "cannot be opened", errno);
  // Some file systems can't flush a folder and say so with EINVAL.
  if (::fsync(file.fd()) != 0 && errno != EINVAL) return system_error(folder, "cannot be flushed", errno);
  return {};
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  if (path.empty()) return Status(Errc::invalid_argument, "the path of the file to write is empty");
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
    return Status(Errc::invalid_argument, cat({path, ": a folder, expected a file to write"}));
  AtomicFile file;
  file.path_ = path;
  file.partial_ = path + ".partial";
  QF_TRY_ASSIGN(Descriptor opened, open_locked(file.partial_));
  file.fd_ = opened.give_up();
  return file;
}

AtomicFile::~AtomicFile() {
  abandon();
}

void AtomicFile::abandon() noexcept {
  if (fd_ < 0) return;
  ::unlink(partial_.c_str());  // before close: the lock still holds others off
  ::close(fd_);
  fd_ = -1;
}

void AtomicFile::swap(AtomicFile& other) noexcept {
  path_.swap(other.path_);
  partial_.swap(other.partial_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  return write_at(size_, bytes);
}

Status AtomicFile::write(std::string_view text) {
  return write(std::as_bytes(std::span(text.data(), text.size())));
}

Status AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (fd_ < 0) return Status(Errc::invalid_argument, cat({path_, ": the file is closed"}));
  std::uint64_t end = 0;
  if (__builtin_add_overflow(offset, std::uint64_t{bytes.size()}, &end) || end > std::uint64_t{1} << 62)
    return Status(Errc::invalid_argument, cat({path_, ": offset ", num(offset), " is too large"}));
  while (!bytes.empty()) {
    constexpr std::size_t kMost = std::size_t{1} << 30;  // one call moves at most 2 GiB on Linux
    const ssize_t done =
        ::pwrite(fd_, bytes.data(), std::min(bytes.size(), kMost), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      const int code = done < 0 ? errno : ENOSPC;
      abandon();
      return system_error(path_, "cannot be written", code);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
  size_ = std::max(size_, end);
  return {};
}

Status AtomicFile::commit() {
  if (fd_ < 0) return Status(Errc::invalid_argument, cat({path_, ": the file is closed"}));
  int code = 0;
  do {
    code = ::fsync(fd_) == 0 ? 0 : errno;
  } while (code == EINTR);
  if (code) {
    abandon();
    return system_error(path_, "cannot be flushed to the disk", code);
  }
  if (::rename(partial_.c_str(), path_.c_str()) != 0) {
    code = errno;
    abandon();
    return system_error(path_, "cannot be put in place", code);
  }
  code = ::close(fd_) == 0 ? 0 : errno;
  fd_ = -1;
  if (code && code != EINTR) return system_error(path_, "cannot be closed", code);
  return flush_folder(folder_of(path_));
}

Result<std::string> read_file(const std::string& path, std::uint64_t most_bytes) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.ok()) return system_error(path, "cannot be opened", errno);
  struct stat info;
  if (::fstat(file.fd(), &info) != 0) return system_error(path, "cannot be examined", errno);
  if (!S_ISREG(info.st_mode)) return Status(Errc::invalid_argument, cat({path, ": not a file"}));
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > most_bytes)
    return Status(Errc::bad_format,
                  cat({path, ": ", num(size), " bytes, at most ", num(most_bytes), " expected"}));
  try {
    std::string text(static_cast<std::size_t>(size), '\0');
    std::size_t have = 0;
    while (have < text.size()) {
      const ssize_t got = ::read(file.fd(), text.data() + have, text.size() - have);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return system_error(path, "cannot be read", errno);
      if (got == 0) break;  // shortened meanwhile
      have += static_cast<std::size_t>(got);
    }
    text.resize(have);
    return text;
  } catch (const std::bad_alloc&) {
    return detail::no_memory({path, ": no memory for ", num(size), " bytes"});
  }
}

Status write_file(const std::string& path, std::string_view text) {
  QF_TRY_ASSIGN(AtomicFile file, AtomicFile::create(path));
  QF_TRY(file.write(text));
  return file.commit();
}

}  // namespace qf::io
