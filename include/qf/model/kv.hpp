// Keys and values between tokens, behind a small interface so that any cache can stand in.
#pragma once

#include <cstdint>
#include <span>

#include "qf/core/buffer.hpp"
#include "qf/core/dtype.hpp"

namespace qf::model {

// One sequence's keys and values. Decoder::forward calls, per layer and in order: append, then read.
class KvStore {
 public:
  virtual ~KvStore() = default;
  virtual std::int64_t length() const = 0;    // tokens held
  virtual std::int64_t capacity() const = 0;  // tokens that fit
  // Adds tokens' keys (after RoPE) and values to a layer: each [tokens, kv_heads * head_dim], behind
  // length().
  virtual Status append(std::int64_t layer, std::int64_t tokens, const float* keys, const float* values) = 0;
  // Makes what was appended part of length(); called once after all layers.
  virtual void commit(std::int64_t tokens) = 0;
  // Contiguous [length() + appended, head_dim] of one head in elements of dtype(), row stride `stride` elements;
  // valid until the next append.
  virtual const void* keys(std::int64_t layer, std::int64_t kv_head, std::int64_t* stride) = 0;
  virtual const void* values(std::int64_t layer, std::int64_t kv_head, std::int64_t* stride) = 0;
  virtual DType dtype() const { return DType::f32; }  // f32, f16 or bf16
  // Forgets tokens from `length` on.
  virtual Status truncate(std::int64_t length) = 0;
};

}  // namespace qf::model
