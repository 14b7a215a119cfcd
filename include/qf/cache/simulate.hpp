// Needs: link qf. Replays a trace through a policy.
#pragma once

#include <cstdint>
#include <string_view>

#include "qf/cache/trace.hpp"

namespace qf::cache {

struct SimulationResult {
  std::uint64_t accesses = 0;  // blocks of all requests
  std::uint64_t hits = 0;      // of them, found with all blocks of the request before them
  double seconds = 0;          // of processor time, for all of it
  double hit_ratio() const {
    return accesses ? static_cast<double>(hits) / static_cast<double>(accesses) : 0;
  }
};

// Names of make_policy(), and "belady". Errors: those of make_policy().
Result<SimulationResult> simulate(const Trace& trace, std::string_view policy, std::size_t pages);

}  // namespace qf::cache
