// Stopwatches and estimators of qf-bench.
#pragma once

#include <algorithm>
#include <ctime>
#include <vector>

namespace qf::bench {

inline double clock_seconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// On one thread it counts the time of the processor, so that programs which take the core away don't count
// (those that use the memory do); on several, the time of the wall.
class Stopwatch {
 public:
  explicit Stopwatch(int threads)
      : clock_(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC), start_(clock_seconds(clock_)) {}
  double seconds() const { return clock_seconds(clock_) - start_; }

 private:
  clockid_t clock_;
  double start_;
};

// Linear between ranks; 0 of nothing.
inline double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(rank);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (rank - static_cast<double>(low)) * (values[high] - values[low]);
}
inline double median(const std::vector<double>& values) {
  return quantile(values, 0.5);
}
// Distance of the quartiles as a share of the median.
inline double spread(const std::vector<double>& values) {
  const double middle = median(values);
  return middle > 0 ? (quantile(values, 0.75) - quantile(values, 0.25)) / middle : 0;
}

}  // namespace qf::bench
