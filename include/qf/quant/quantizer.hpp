// What a quantizer is: a type that turns a float matrix into codes. Anything that fits the concept works in
// the pipeline; see docs/quantize.md for one in 30 lines.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <utility>

#include "qf/calib/wanted.hpp"
#include "qf/core/parallel.hpp"
#include "qf/core/result.hpp"
#include "qf/core/tensor.hpp"
#include "qf/format/quantized_matrix.hpp"
#include "qf/format/scheme.hpp"

namespace qf::calib {
struct LinearStatistics;  // what the inputs of one linear layer look like; defined where it is collected
}  // namespace qf::calib

namespace qf::quant {

// What a quantizer has to know about the data. A type says so with `StatisticsNeeds statistics() const`; one without
// such a function works without calibration.
struct StatisticsNeeds {
  calib::Wanted wanted;
  bool sequential =
      true;  // of inputs that come through what is quantized already; false: those of the float model
};

// All that a quantizer gets to see. Nothing here is owned; it is valid during the call only.
struct QuantizerInput {
  MatrixView<const float> w;  // [n, k], a row per output; stride[1] == 1
  Scheme scheme{};
  const calib::LinearStatistics* statistics = nullptr;  // nullptr: none were asked for
  std::string_view name{};                              // the tensor, for errors
  std::int64_t first_row = 0;  // w is rows [first_row, first_row + n) of the tensor, for errors
  ParallelFor parallel{};      // the result may not depend on it
};

// quantize() returns a matrix of in.scheme, n and k, or says by name and row what can't be quantized. It is called from
// several threads at once, on different rows.
template <class Q>
concept Quantizer = requires(const Q& quantizer, const QuantizerInput& in) {
  { quantizer.name() } -> std::convertible_to<std::string_view>;
  { quantizer.quantize(in) } -> std::same_as<Result<QuantizedMatrix>>;
};

// True unless the type says `static constexpr bool kNeedsWholeMatrix = true`: rows can be quantized slab by
// slab with the same result, so that memory stays small.
template <class Q>
constexpr bool rows_are_independent() {
  if constexpr (requires { Q::kNeedsWholeMatrix; }) {
    return !Q::kNeedsWholeMatrix;
  } else {
    return true;
  }
}

template <class Q>
StatisticsNeeds statistics_of(const Q& quantizer) {
  if constexpr (requires { quantizer.statistics(); }) {
    return quantizer.statistics();
  } else {
    return {};
  }
}

// Any quantizer behind one type. It doesn't own the quantizer, which has to outlive it.
class QuantizerRef {
 public:
  QuantizerRef() = default;
  template <Quantizer Q>
  requires(!std::same_as<Q, QuantizerRef>) QuantizerRef(const Q& quantizer)  // NOLINT: implicit on purpose
      : object_(&quantizer),
        name_([](const void* object) -> std::string_view { return static_cast<const Q*>(object)->name(); }),
        quantize_([](const void* object, const QuantizerInput& in) {
          return static_cast<const Q*>(object)->quantize(in);
        }),
        needs_([](const void* object) { return statistics_of(*static_cast<const Q*>(object)); }),
        rows_independent_(quant::rows_are_independent<Q>()) {}

  explicit operator bool() const { return object_ != nullptr; }
  std::string_view name() const { return name_(object_); }
  Result<QuantizedMatrix> quantize(const QuantizerInput& in) const { return quantize_(object_, in); }
  StatisticsNeeds statistics() const { return needs_(object_); }
  bool rows_independent() const { return rows_independent_; }

 private:
  const void* object_ = nullptr;
  std::string_view (*name_)(const void*) = nullptr;
  Result<QuantizedMatrix> (*quantize_)(const void*, const QuantizerInput&) = nullptr;
  StatisticsNeeds (*needs_)(const void*) = nullptr;
  bool rows_independent_ = true;
};

}  // namespace qf::quant
