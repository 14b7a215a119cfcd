// What this machine can do at most, measured in the same run as the kernels: the yardsticks of qf-bench.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qf/core/buffer.hpp"
#include "qf/core/parallel.hpp"
#include "qf/kernel/abi.hpp"

namespace qf::bench {

// A way to read memory in 4 streams, a quarter of the bytes apart.
struct ReadLoop {
  const char* name;
  kernel::IsaMask isa;
  // Reads 4 streams of `stride` bytes (a multiple of 64), 64-byte aligned; the result depends on every byte.
  std::uint64_t (*run)(const std::byte* bytes, std::int64_t stride);
};
std::span<const ReadLoop> read_loops();

// What multiplications a peak is of.
enum class Numbers : std::uint8_t { f32, i8 };

// A loop of multiplications in registers alone.
struct PeakLoop {
  const char* name;
  Numbers numbers;
  kernel::IsaMask isa;
  std::int64_t operations;  // of a round: 2 a multiply-add
  void (*run)(std::int64_t rounds);
};
// Fastest last among those of the same numbers.
std::span<const PeakLoop> peak_loops();
// The fastest that `isa` has, which this CPU must have too; nullptr if there is none.
const PeakLoop* peak_loop(Numbers numbers, kernel::IsaMask isa);

// Size of the last cache, 32 MiB if the system doesn't say.
std::size_t last_cache_bytes();

// The limits of `threads` threads together. Memory: more than 4 last caches, once in pages of the usual size
// and once in huge ones (if the system gives any). The constructor tries every way of reading in turns and
// keeps the one with the best median.
class Limits {
 public:
  Limits(int threads, ParallelFor parallel);
  int threads() const { return threads_; }

  struct Read {
    std::string name;
    bool huge;
    double gb_s, wall_gb_s;  // medians, by the stopwatch and by the wall
  };
  const std::vector<Read>& reads() const { return reads_; }
  const Read& best_read() const { return reads_[best_]; }
  // The best of those from pages of this kind.
  const Read& best_read(bool huge) const;

  double read_gb_s();  // now, by the best way
  double peak_gop_s(const PeakLoop& loop);

 private:
  void read(std::size_t way);
  int threads_;
  ParallelFor parallel_;
  std::vector<Read> reads_;
  std::vector<std::pair<const ReadLoop*, const std::byte*>> ways_;
  Array<std::byte> normal_, huge_;
  std::size_t part_ = 0, best_ = 0;
  volatile std::uint64_t sink_ = 0;
};

}  // namespace qf::bench
