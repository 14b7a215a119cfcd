// What this machine can do at most, measured in the same run as the kernels: the yardsticks of qf-bench.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "qf/kernel/abi.hpp"

namespace qf::bench {

// Reads all of `bytes` (a multiple of 1024, 64-byte aligned) in 4 streams with the widest loads of `isa`.
// Returns a value that depends on every byte.
std::uint64_t read_all(std::span<const std::byte> bytes, kernel::IsaMask isa);

// Multiplies as fast as the core can for `rounds` rounds; returns how many operations (2 a multiply-add) that
// was. Floats with the vectors of `isa`, or 8-bit integers if `integers`; 0 if this build has no such loop.
std::int64_t multiply_f32(std::int64_t rounds, kernel::IsaMask isa);
std::int64_t multiply_i8(std::int64_t rounds, kernel::IsaMask isa);

// Size of the last cache, 32 MiB if the system doesn't say.
std::size_t last_cache_bytes();

}  // namespace qf::bench
