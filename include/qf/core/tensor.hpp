// Views: a pointer with a shape. They own nothing; whoever made the buffer keeps it alive.
// Matrices are fixed once for all rooms: x [m, k], w [n, k] (a row per output), y [m, n].
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "qf/core/config.hpp"
#include "qf/core/dtype.hpp"

namespace qf {

template <class T, int Rank>
struct TensorView {
  T* data = nullptr;
  std::array<std::int64_t, Rank> shape{};
  std::array<std::int64_t, Rank> stride{};  // in elements

  TensorView() = default;
  // A contiguous tensor, last dimension fastest.
  TensorView(T* pointer, std::array<std::int64_t, Rank> dims) : data(pointer), shape(dims) {
    std::int64_t step = 1;
    for (int d = Rank - 1; d >= 0; --d) {
      stride[d] = step;
      step *= shape[d];
    }
  }
  TensorView(T* pointer, std::array<std::int64_t, Rank> dims, std::array<std::int64_t, Rank> steps)
      : data(pointer), shape(dims), stride(steps) {}

  template <class... Index>
  requires(sizeof...(Index) == Rank) T& operator()(Index... index) const {
    std::int64_t offset = 0;
    int d = 0;
    ((QF_ASSERT(index >= 0 && index < shape[d]), offset += static_cast<std::int64_t>(index) * stride[d], ++d),
     ...);
    return data[offset];
  }

  T* row(std::int64_t i) const {
    QF_ASSERT(i >= 0 && i < shape[0]);
    return data + i * stride[0];
  }
  std::int64_t size() const {
    std::int64_t n = 1;
    for (std::int64_t d : shape) n *= d;
    return n;
  }
  operator TensorView<const T, Rank>() const  // NOLINT: adding const is free
      requires(!std::is_const_v<T>) {
    return {data, shape, stride};
  }
};

template <class T>
using MatrixView = TensorView<T, 2>;

// A tensor whose type is known at run time only; used at the borders (io, capi).
struct AnyTensorView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, 4> shape{};
  std::array<std::int64_t, 4> stride{};  // in elements
};

}  // namespace qf
