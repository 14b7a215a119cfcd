// Between C and C++: every function of the C face is convert, call, convert, and this is how.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "capi/qf.h"
#include "qf/core/parallel.hpp"
#include "qf/core/progress.hpp"
#include "qf/core/result.hpp"
#include "qf/core/tensor.hpp"
#include "qf/format/quantized_matrix.hpp"
#include "qf/kernel/matmul.hpp"
#include "qf/model/bundle.hpp"

struct qf_matrix {
  qf::QuantizedMatrix value;
};
struct qf_weight {
  qf::kernel::PackedWeight value;
};
struct qf_tokenizer {
  qf::model::TextSide value;  // with a tokenizer
};

namespace qf::capi {

inline Status bad(std::string text) {
  return Status(Errc::invalid_argument, std::move(text));
}

// Writes code and message as far as the caller's struct reaches.
inline qf_status report(const Status& status, qf_error* error) noexcept {
  const auto code = static_cast<qf_status>(status.code());
  if (!error) return code;
  constexpr std::size_t kHead = offsetof(qf_error, message);
  const std::size_t size = error->struct_size < sizeof(qf_error) ? error->struct_size : sizeof(qf_error);
  if (size < kHead) return code;
  error->code = code;
  if (size == kHead) return code;
  std::size_t length = status.text().size();
  if (length > size - kHead - 1) {
    length = size - kHead - 1;
    while (length > 0 && (static_cast<unsigned char>(status.text()[length]) & 0xc0) == 0x80) --length;
  }
  std::memcpy(error->message, status.text().data(), length);
  error->message[length] = 0;
  return code;
}

// Runs `body` (-> Status) and lets no exception pass.
template <class Body>
qf_status guard(qf_error* error, Body&& body) noexcept {
  try {
    return report(body(), error);
  } catch (const std::bad_alloc&) {
    return report(Status(Errc::out_of_memory, "out of memory"), error);  // short enough to need none
  } catch (...) {
    return report(Status(Errc::internal, "internal error"), error);
  }
}

inline Status need(const void* pointer, std::string_view name) {
  return pointer ? Status() : bad(cat({name, " is NULL"}));
}

// Reads a caller's struct whose first field is its size: what the caller doesn't have keeps its value in
// *own.
template <class T>
Status read_struct(const T* given, std::string_view name, T* own) {
  if (!given) return {};
  const std::size_t size = given->struct_size;
  if (size < sizeof(std::uint32_t) || size > 65536)
    return bad(cat({name, ".struct_size is ", num(size), ", expected ", num(sizeof(T)), ": initialise it"}));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(T); i < size; ++i)
    if (bytes[i])
      return Status(Errc::unsupported, cat({name, ": a field beyond the ", num(sizeof(T)),
                                            " bytes that this version of the library knows is set"}));
  std::memcpy(static_cast<void*>(own), given, size < sizeof(T) ? size : sizeof(T));
  return {};
}

// Writes a result struct, as far as the caller's reaches.
template <class T>
Status write_struct(T own, T* out, std::string_view name) {
  QF_TRY(need(out, name));
  const std::uint32_t size = out->struct_size;
  if (size < sizeof(std::uint32_t) || size > 65536)
    return bad(cat({name, "->struct_size is ", num(size), ", expected ", num(sizeof(T)), ": set it first"}));
  own.struct_size = size;
  std::memcpy(static_cast<void*>(out), &own, size < sizeof(T) ? size : sizeof(T));
  if (size > sizeof(T)) std::memset(reinterpret_cast<char*>(out) + sizeof(T), 0, size - sizeof(T));
  return {};
}

template <class T>
void init_struct(T defaults, T* out, std::size_t size) noexcept {
  if (!out || size < sizeof(std::uint32_t)) return;
  defaults.struct_size = static_cast<std::uint32_t>(size);
  std::memcpy(static_cast<void*>(out), &defaults, size < sizeof(T) ? size : sizeof(T));
  if (size > sizeof(T)) std::memset(reinterpret_cast<char*>(out) + sizeof(T), 0, size - sizeof(T));
}

// The two-call pattern: *size always, the elements if they fit.
template <class T>
Status write_array(const T* data, std::size_t count, T* out, std::size_t capacity, std::size_t* size) {
  if (!size && !out) return bad("out and size are both NULL");
  if (size) *size = count;
  if (capacity == 0) return {};
  QF_TRY(need(out, "out"));
  if (capacity < count) return bad(cat({"capacity is ", num(capacity), ", ", num(count), " needed"}));
  if (count) std::memcpy(out, data, count * sizeof(T));
  return {};
}
inline Status write_text(const std::string& text, char* out, std::size_t capacity, std::size_t* size) {
  return write_array(text.c_str(), text.size() + 1, out, capacity, size);
}

// The host's loop lives as long as the call that reads it.
class HostParallel {
 public:
  Status read(const qf_parallel* given) {
    qf_parallel_init(&host_, sizeof host_);
    QF_TRY(read_struct(given, "parallel", &host_));
    if (host_.threads < 0 || host_.threads > 65536)
      return bad(cat({"parallel.threads is ", num(host_.threads), ", expected 1 to 65536"}));
    return {};
  }
  ParallelFor get() {
    if (!host_.run) return {};
    return {[](void* user, std::int64_t count, void (*body)(void*, std::int64_t), void* context) {
              auto* host = static_cast<qf_parallel*>(user);
              host->run(count, body, context, host->user);
            },
            &host_, host_.threads};
  }

 private:
  qf_parallel host_;
};

// A progress callback for one call.
class HostProgress {
 public:
  HostProgress(qf_progress callback, void* user) : callback_(callback), user_(user) {}
  Progress get() {
    if (!callback_) return {};
    return {[](void* self, const ProgressEvent& event) {
              auto* host = static_cast<HostProgress*>(self);
              const std::string stage(event.stage), item(event.item), unit(event.unit);
              const qf_progress_event c{sizeof(qf_progress_event),
                                        0,
                                        stage.c_str(),
                                        item.c_str(),
                                        unit.c_str(),
                                        event.done,
                                        event.total};
              return host->callback_(&c, host->user_) == 0;
            },
            this};
  }

 private:
  qf_progress callback_;
  void* user_;
};

// What every matrix argument has to be, whatever its type; `name` is the parameter's.
inline Status check_matrix(const qf_tensor* t, std::string_view name) {
  QF_TRY(need(t, name));
  if (t->device_type != QF_CPU) return bad(cat({name, " is not on the CPU"}));
  if (t->rank != 2) return bad(cat({name, " has rank ", num(t->rank), ", expected 2"}));
  const std::int64_t rows = t->shape[0], columns = t->shape[1];
  std::int64_t size = 0;
  if (rows < 0 || columns < 0 || __builtin_mul_overflow(rows, columns, &size))
    return bad(cat({name, " has shape [", num(rows), ", ", num(columns), "]"}));
  if (size && !t->data) return bad(cat({name, ".data is NULL"}));
  if ((columns > 1 && t->stride[1] != 1) || (rows > 1 && t->stride[0] < columns) ||
      (rows > 1 && __builtin_mul_overflow(rows, t->stride[0], &size)))
    return bad(cat({name, " has strides [", num(t->stride[0]), ", ", num(t->stride[1]),
                    "], expected rows of ", num(columns), " or more elements with stride 1"}));
  return {};
}

inline Status check_float(std::int32_t dtype, std::string_view name) {
  if (dtype >= QF_F32 && dtype <= QF_BF16) return {};
  return bad(cat({name, " has dtype ", num(dtype), ", expected F32, F16 or BF16 (0 to 2)"}));
}

// A checked matrix whose type is known to be T.
template <class T>
MatrixView<T> view_as(const qf_tensor& t) {
  return {static_cast<T*>(t.data), {t.shape[0], t.shape[1]}, {t.shape[0] > 1 ? t.stride[0] : t.shape[1], 1}};
}
template <class T>
Result<MatrixView<T>> matrix_view(const qf_tensor* t, std::string_view name) {
  QF_TRY(check_matrix(t, name));
  constexpr DType kWant = DTypeOf<std::remove_const_t<T>>::value;
  if (t->dtype != static_cast<std::int32_t>(kWant))
    return bad(cat({name, " has dtype ", num(t->dtype), ", expected ", num(static_cast<std::int32_t>(kWant)),
                    " (", dtype_name(kWant), ")"}));
  return view_as<T>(*t);
}

Result<Scheme> read_scheme(const qf_scheme* given);  // NULL: QF_SCHEME_INIT

// Hands a new C handle out.
template <class Handle, class Value>
Status give(Value&& value, Handle** out) {
  auto* handle = new (std::nothrow) Handle{std::forward<Value>(value)};
  if (!handle) return Status(Errc::out_of_memory, "no memory for a handle");
  *out = handle;
  return {};
}
// To be called first in functions that make a handle: out is checked and NULL until the end.
template <class Handle>
Status take_out(Handle** out) {
  QF_TRY(need(out, "out"));
  *out = nullptr;
  return {};
}

}  // namespace qf::capi
