// The texts that a model is shown to see what its activations look like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "qf/core/result.hpp"

namespace qf::calib {

// `count` sequences of `length` tokens, one after the other. Each starts from an empty cache.
struct Samples {
  std::vector<std::int32_t> ids;  // [count * length]
  std::int64_t count = 0, length = 0;

  std::span<const std::int32_t> sequence(std::int64_t i) const {
    return std::span(ids).subspan(static_cast<std::size_t>(i * length), static_cast<std::size_t>(length));
  }
};

// Cuts `count` sequences from a tokenized text, evenly over all of it: number i starts at token
// i * floor((tokens - length) / count). They overlap where the text is shorter than all of them together. Errors:
// count or length below 1, a text shorter than one sequence.
inline Result<Samples> cut_samples(std::span<const std::int32_t> text, std::int64_t count,
                                   std::int64_t length) {
  const auto tokens = static_cast<std::int64_t>(text.size());
  if (count < 1 || length < 1)
    return Status(Errc::invalid_argument, cat({num(count), " calibration sequences of ", num(length),
                                               " tokens, 1 or more of 1 or more expected"}));
  if (tokens < length)
    return Status(Errc::invalid_argument, cat({"the calibration text has ", num(tokens), " tokens, ",
                                               num(length), " or more expected: one sequence"}));
  std::int64_t total = 0;
  if (__builtin_mul_overflow(count, length, &total) || total > (std::int64_t{1} << 40))
    return Status(Errc::invalid_argument, cat({num(count), " calibration sequences of ", num(length),
                                               " tokens are more than any memory holds"}));
  Samples samples;
  samples.count = count;
  samples.length = length;
  samples.ids.reserve(static_cast<std::size_t>(total));
  const std::int64_t step = (tokens - length) / count;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto from = text.begin() + i * step;
    samples.ids.insert(samples.ids.end(), from, from + length);
  }
  return samples;
}

}  // namespace qf::calib
