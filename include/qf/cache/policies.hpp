// Needs: link qf. The policies by name.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "qf/cache/policy.hpp"
#include "qf/core/result.hpp"

namespace qf::cache {

struct PolicyInfo {
  std::string_view name, about;
};

// What make_policy() knows, the default first.
std::span<const PolicyInfo> policies();

// A policy for `pages` pages. Errors: invalid_argument (no such name, pages < 1 or > 2^31), out_of_memory.
Result<Policy> make_policy(std::string_view name, std::size_t pages);

}  // namespace qf::cache
