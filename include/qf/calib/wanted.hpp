// Which statistics of a linear's inputs somebody wants.
#pragma once

namespace qf::calib {

// Names arrays of LinearStatistics.
struct Wanted {
  bool hessian = false, cross = false;
  bool channels = false;  // mean, mean_abs, min, max

  bool any() const { return hessian || cross || channels; }
  Wanted& operator|=(const Wanted& other) {
    hessian |= other.hessian, cross |= other.cross, channels |= other.channels;
    return *this;
  }
  friend bool operator==(const Wanted&, const Wanted&) = default;
};

}  // namespace qf::calib
