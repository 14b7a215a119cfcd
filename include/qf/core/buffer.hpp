// Owning arrays, aligned for any kernel, whose allocation can fail as a Status instead of an exception.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "qf/core/result.hpp"

namespace qf {

// Where large memory comes from. `allocate` returns nullptr when there is none; `release` takes nullptr too. Both
// may be called from any thread.
struct Allocator {
  void* (*allocate)(void* user, std::size_t bytes, std::size_t alignment);
  void (*release)(void* user, void* pointer, std::size_t bytes);
  void* user;
};

inline constexpr std::size_t kBufferAlignment = 64;

// malloc() with the block's own start noted before the aligned address: glibc's aligned_alloc doesn't find room in the
// hole that a block of the same size has left, and a heap grows by all that was ever allocated.
inline const Allocator& default_allocator() {
  static constexpr Allocator kDefault{
      [](void*, std::size_t bytes, std::size_t alignment) -> void* {
        auto* start = static_cast<std::byte*>(std::malloc(bytes + alignment));
        if (!start) return nullptr;
        const auto address = reinterpret_cast<std::uintptr_t>(start);
        std::byte* block = start + (alignment - address % alignment);  // 8 bytes or more behind start
        std::memcpy(block - sizeof start, &start, sizeof start);
        return block;
      },
      [](void*, void* pointer, std::size_t) {
        if (!pointer) return;
        std::byte* start = nullptr;
        std::memcpy(&start, static_cast<std::byte*>(pointer) - sizeof start, sizeof start);
        std::free(start);
      },
      nullptr};
  return kDefault;
}

// `size()` elements of a trivial type, 64-byte aligned, zeroed. Move-only. Thread-compatible.
template <class T>
class Array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Array() = default;
  // Fails with Errc::out_of_memory; `count` may be 0. The allocator must outlive the array.
  static Result<Array> make(std::size_t count, const Allocator& allocator = default_allocator()) {
    Array array;
    if (count == 0) return array;
    std::size_t bytes = 0;
    void* memory = nullptr;
    if (!__builtin_mul_overflow(count, sizeof(T), &bytes) &&
        bytes < static_cast<std::size_t>(PTRDIFF_MAX) - 64)
      memory = allocator.allocate(allocator.user, bytes, kBufferAlignment);
    if (!memory)
      return Status(Errc::out_of_memory,
                    cat({"no memory for ", num(count), " x ", num(sizeof(T)), " bytes"}));
    std::memset(memory, 0, bytes);
    array.data_ = static_cast<T*>(memory);
    array.size_ = count;
    array.allocator_ = &allocator;
    return array;
  }
  Array(Array&& other) noexcept { swap(other); }
  Array& operator=(Array&& other) noexcept {
    Array(std::move(other)).swap(*this);
    return *this;
  }
  ~Array() {
    if (data_) allocator_->release(allocator_->user, data_, size_ * sizeof(T));
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](std::size_t i) { return QF_ASSERT(i < size_), data_[i]; }
  const T& operator[](std::size_t i) const { return QF_ASSERT(i < size_), data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  operator std::span<const T>() const { return {data_, size_}; }  // NOLINT
  operator std::span<T>() { return {data_, size_}; }              // NOLINT

 private:
  void swap(Array& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(allocator_, other.allocator_);
  }
  T* data_ = nullptr;
  std::size_t size_ = 0;
  const Allocator* allocator_ = nullptr;
};

}  // namespace qf
