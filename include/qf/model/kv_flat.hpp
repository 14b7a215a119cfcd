// Needs: link qf. Keys and values of one sequence, contiguous by layer and head: [layer][kv head][capacity]
// [head_dim]. The memory is taken at once.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>

#include "qf/core/buffer.hpp"
#include "qf/kernel/small_ops.hpp"
#include "qf/model/kv.hpp"

namespace qf::model {

// T is float, or f16 for half the memory: rounded to nearest, beyond 65504 infinity.
// Thread rule: one writer; keys() and values() may be read by many threads until the next append().
template <class T>
class KvFlat final : public KvStore {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, f16>);

 public:
  // Errors: sizes below 1 (capacity below 0), out of memory.
  static Result<std::unique_ptr<KvFlat>> make(std::int64_t layers, std::int64_t kv_heads,
                                              std::int64_t head_dim, std::int64_t capacity,
                                              const Allocator& allocator = default_allocator()) {
    std::int64_t half = 0;
    if (layers < 1 || kv_heads < 1 || head_dim < 1 || capacity < 0 ||
        __builtin_mul_overflow(layers, kv_heads, &half) || __builtin_mul_overflow(half, head_dim, &half) ||
        __builtin_mul_overflow(half, capacity, &half))
      return Status(Errc::invalid_argument,
                    cat({"a cache of ", num(layers), " layers, ", num(kv_heads), " heads of ", num(head_dim),
                         " and ", num(capacity), " tokens"}));
    std::unique_ptr<KvFlat> kv(new (std::nothrow) KvFlat);
    if (!kv) return Status(Errc::out_of_memory, "no memory for a cache");
    kv->layers_ = layers, kv->heads_ = kv_heads, kv->dim_ = head_dim, kv->capacity_ = capacity;
    QF_TRY_ASSIGN(kv->keys_, Array<T>::make(static_cast<std::size_t>(half), allocator));
    QF_TRY_ASSIGN(kv->values_, Array<T>::make(static_cast<std::size_t>(half), allocator));
    return kv;
  }

  std::int64_t length() const override { return length_; }
  std::int64_t capacity() const override { return capacity_; }

  Status append(std::int64_t layer, std::int64_t tokens, const float* keys, const float* values) override {
    if (layer < 0 || layer >= layers_)
      return Status(Errc::invalid_argument, cat({"layer ", num(layer), " of a cache with ", num(layers_)}));
    if (tokens < 0 || tokens > capacity_ - length_)
      return Status(Errc::invalid_argument, cat({"the cache is full: ", num(length_), " of ", num(capacity_),
                                                 " tokens held, ", num(tokens), " more don't fit"}));
    for (std::int64_t h = 0; h < heads_; ++h) {
      T *k = at(keys_, layer, h) + length_ * dim_, *v = at(values_, layer, h) + length_ * dim_;
      for (std::int64_t t = 0; t < tokens; ++t) {
        copy(keys + (t * heads_ + h) * dim_, k + t * dim_);
        copy(values + (t * heads_ + h) * dim_, v + t * dim_);
      }
    }
    return {};
  }
  void commit(std::int64_t tokens) override {
    QF_ASSERT(tokens >= 0 && tokens <= capacity_ - length_);
    length_ += tokens;
  }
  const void* keys(std::int64_t layer, std::int64_t kv_head, std::int64_t* stride) override {
    *stride = dim_;
    return at(keys_, layer, kv_head);
  }
  const void* values(std::int64_t layer, std::int64_t kv_head, std::int64_t* stride) override {
    *stride = dim_;
    return at(values_, layer, kv_head);
  }
  DType dtype() const override { return std::is_same_v<T, float> ? DType::f32 : DType::f16; }
  Status truncate(std::int64_t length) override {
    if (length < 0 || length > length_)
      return Status(Errc::invalid_argument,
                    cat({"a cache of ", num(length_), " tokens can't be cut to ", num(length)}));
    length_ = length;
    return {};
  }

 private:
  KvFlat() = default;
  void copy(const float* from, T* to) const {
    if constexpr (std::is_same_v<T, float>)
      std::memcpy(to, from, static_cast<std::size_t>(dim_) * sizeof(float));
    else
      kernel::to_f16(from, dim_, to);
  }
  T* at(Array<T>& all, std::int64_t layer, std::int64_t head) {
    return all.data() + (layer * heads_ + head) * capacity_ * dim_;
  }
  std::int64_t layers_ = 0, heads_ = 0, dim_ = 0, capacity_ = 0, length_ = 0;
  Array<T> keys_, values_;
};

using KvF32 = KvFlat<float>;
using KvF16 = KvFlat<f16>;

}  // namespace qf::model
