// The chart that qf kv-sim writes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace qf::cli {

struct KvRun {
  std::string policy;
  double capacity = 0;  // share of the unique blocks
  std::size_t pages = 0;
  double hit_ratio = 0, attainable = 0;  // attainable: share of Belady's hits
  double ns_per_access = 0;
};

// A self-contained SVG: hit ratio over capacity (logarithmic), a line a policy. `runs` is [policy][capacity].
std::string kv_chart(const std::string& title, const std::vector<std::string>& policies,
                     const std::vector<double>& capacities, const std::vector<KvRun>& runs);

}  // namespace qf::cli
