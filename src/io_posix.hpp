// What the sources of io share about the operating system: a descriptor that closes itself, errors as Status.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <initializer_list>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "qf/core/result.hpp"

namespace qf::io::detail {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  bool ok() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  int give_up() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// "model.bin: cannot be opened: No such file or directory".
inline Status system_error(std::string_view path, std::string_view what, int code) {
  const Errc errc = code == ENOENT || code == ENOTDIR ? Errc::not_found
                    : code == ENOMEM                  ? Errc::out_of_memory
                                                      : Errc::io_error;
  return Status(errc, cat({path, ": ", what, ": ", std::generic_category().message(code)}));
}

// For handlers of bad_alloc: where even the text has no memory, the code alone is left.
inline Status no_memory(std::initializer_list<std::string_view> text) noexcept {
  try {
    return Status(Errc::out_of_memory, cat(text));
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, std::string());
  }
}

}  // namespace qf::io::detail
