// Errors are values: Status says what went wrong, Result<T> holds a T or a Status. Works with -fno-exceptions
// -fno-rtti.
#pragma once

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "qf/core/config.hpp"
#if QF_EXCEPTIONS
#include <stdexcept>
#endif

namespace qf {

// The one list of error codes; the C face pins the same numbers. Values in tens leave gaps; numbers are never
// reused.
enum class Errc : std::int32_t {
  ok = 0,
  invalid_argument = 10,  // an option, shape or name that the caller chose
  unsupported = 20,       // valid, but not something this build does (an architecture, a method, a type)
  not_found = 30,         // a file, tensor or key that isn't there
  io_error = 40,          // the operating system refused: permission, disk full, read error
  bad_format = 50,        // a file whose bytes break its format
  out_of_memory = 60,
  cancelled = 70,  // a callback or a signal asked to stop
  internal = 90,   // a bug in this library
};

constexpr const char* errc_name(Errc code) {
  switch (code) {
    case Errc::ok:
      return "ok";
    case Errc::invalid_argument:
      return "invalid argument";
    case Errc::unsupported:
      return "unsupported";
    case Errc::not_found:
      return "not found";
    case Errc::io_error:
      return "I/O error";
    case Errc::bad_format:
      return "bad format";
    case Errc::out_of_memory:
      return "out of memory";
    case Errc::cancelled:
      return "cancelled";
    case Errc::internal:
      return "internal error";
  }
  return "unknown error";
}

// A code and one sentence for a person: it names the file, the tensor, the field and what was expected.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Errc code, std::string text) : code_(code), text_(std::move(text)) {}

  bool ok() const { return code_ == Errc::ok; }
  Errc code() const { return code_; }
  const std::string& text() const { return text_; }
  const Status& status() const { return *this; }

  // The same error with a place put before it: "model.safetensors: header too short".
  Status at(std::string_view place) const {
    if (ok()) return *this;
    return Status(code_, std::string(place) + ": " + text_);
  }

 private:
  Errc code_ = Errc::ok;
  std::string text_;
};

#if QF_EXCEPTIONS
// What Result::value() throws where exceptions exist; nothing else in the library throws it.
class Error : public std::runtime_error {
 public:
  explicit Error(Status status) : std::runtime_error(status.text()), status_(std::move(status)) {}
  const Status& status() const { return status_; }

 private:
  Status status_;
};
#endif

template <class T>
class [[nodiscard]] Result {
  static_assert(!std::is_reference_v<T> && !std::is_same_v<T, Status>);

 public:
  using value_type = T;

  template <class U = T>
  requires(std::is_convertible_v<U&&, T> && !std::is_same_v<std::remove_cvref_t<U>, Result> &&
           !std::is_convertible_v<U&&, Status>) Result(U&& value)
      : has_(true) {  // NOLINT: implicit on purpose
    new (&value_) T(std::forward<U>(value));
  }
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit on purpose
    if (status_.ok()) status_ = Status(Errc::internal, "a Result was made from an ok Status");
  }
  Result(Result&& other) noexcept : status_(std::move(other.status_)), has_(other.has_) {
    if (has_) new (&value_) T(std::move(other.value_));
  }
  Result& operator=(Result&& other) noexcept {
    if (this != &other) {
      this->~Result();
      new (this) Result(std::move(other));
    }
    return *this;
  }
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
  ~Result() {
    if (has_) value_.~T();
  }

  bool ok() const { return has_; }
  const Status& status() const { return status_; }

  // Precondition: ok().
  T& operator*() { return QF_ASSERT(has_), value_; }
  const T& operator*() const { return QF_ASSERT(has_), value_; }
  T* operator->() { return QF_ASSERT(has_), &value_; }
  const T* operator->() const { return QF_ASSERT(has_), &value_; }

#if QF_EXCEPTIONS
  // The value, or throws qf::Error.
  T& value() & {
    if (!has_) throw Error(status_);
    return value_;
  }
  T value() && {
    if (!has_) throw Error(status_);
    return std::move(value_);
  }
#endif

 private:
  Status status_;
  bool has_ = false;
  union {
    T value_;
  };
};

// Builds the text of an error without a formatting library: cat({"tensor '", name, "': ", num(n), " bytes"}).
inline std::string cat(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (std::string_view part : parts) text += part;
  return text;
}
template <class Int>
std::string num(Int value) {
  char digits[24];
  auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  return std::string(digits, end);
}
// A shape as errors show it: "[2, 3]".
inline std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += cat({i ? ", " : "", num(shape[i])});
  return text + "]";
}

// Strings from files, made fit to be shown: control bytes and broken UTF-8 become \xNN, long ones end in
// "...".
inline std::string printable(std::string_view raw, std::size_t most = 96) {
  std::string text = "'";
  static constexpr char kHex[] = "0123456789abcdef";
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (i >= most) {
      text += "...";
      break;
    }
    unsigned char c = static_cast<unsigned char>(raw[i]);
    if (c >= 0x20 && c < 0x7f) {
      text += static_cast<char>(c);
    } else {
      text += "\\x";
      text += kHex[c >> 4];
      text += kHex[c & 15];
    }
  }
  return text + "'";
}

}  // namespace qf
