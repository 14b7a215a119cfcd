// How often values of each magnitude occur: what methods that choose a clipping threshold from a distribution start from
// (Migacz, "8-bit inference with TensorRT", 2017).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "qf/core/result.hpp"

namespace qf::calib {

// 2048 bins over |x|. The width of a bin is a power of two that doubles, merging pairs of bins, when a larger value
// comes: counts depend neither on the order of values nor on how they were cut into calls.
class Magnitudes {
 public:
  static constexpr int kBins = 2048;

  // Errors: bad_format for NaN or infinity, with its place in `values`; nothing was added then.
  Status add(std::span<const float> values) {
    float largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i]))
        return Status(
            Errc::bad_format,
            cat({"value ", num(i), " is ", std::isnan(values[i]) ? "NaN" : "infinite", ", finite expected"}));
      const float size = std::fabs(values[i]);
      largest = size > largest ? size : largest;
    }
    if (largest > 0) hold(largest);
    for (float x : values)
      ++counts_[static_cast<std::size_t>(width_ == 0 ? 0.0 : static_cast<double>(std::fabs(x)) / width_)];
    total_ += values.size();
    return {};
  }

  // As if its values had been added here.
  void add(const Magnitudes& other) {
    if (other.width_ > 0) hold(other.width_ * (kBins - 0.5));
    const double ratio = width_ == 0 ? 0 : other.width_ / width_;
    for (int i = 0; i < kBins; ++i)
      counts_[static_cast<std::size_t>(i * ratio)] += other.counts_[static_cast<std::size_t>(i)];
    total_ += other.total_;
  }

  // Bin i counts i * width() <= |x| < (i + 1) * width(). 0: nothing but zeros was seen.
  double width() const { return width_; }
  std::span<const std::uint64_t, kBins> counts() const { return counts_; }
  std::uint64_t total() const { return total_; }

 private:
  // Widens bins until `size` falls into the last.
  void hold(double size) {
    if (width_ == 0) {
      int exponent = 0;
      std::frexp(size, &exponent);  // size < 2^exponent
      width_ = std::ldexp(1.0, exponent - 11);
    }
    while (size >= width_ * kBins) {
      for (std::size_t i = 0; i < kBins / 2; ++i) counts_[i] = counts_[2 * i] + counts_[2 * i + 1];
      for (std::size_t i = kBins / 2; i < kBins; ++i) counts_[i] = 0;
      width_ *= 2;
    }
  }

  double width_ = 0;
  std::uint64_t total_ = 0;
  std::array<std::uint64_t, kBins> counts_{};
};

}  // namespace qf::calib
