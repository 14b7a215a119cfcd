// The header of one safetensors file, parsed and checked; shared by the sources that read single files and
// folders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "qf/core/dtype.hpp"
#include "qf/io/safetensors.hpp"

namespace qf::io::detail {

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;     // by position in the file
  std::vector<std::uint64_t> begin;    // of each tensor, from the first byte of the file
  std::vector<std::uint32_t> by_name;  // indices of `tensors`, sorted by name
  Metadata metadata;
};

// `file` is the whole file. Memory stays within 4 bytes for each byte of the header plus 1 MiB.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file,
                                                   const SafetensorsOptions& options);

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

}  // namespace qf::io::detail
