#include "qf/cache/simulate.hpp"

#include <time.h>

#include <new>
#include <vector>

#include "qf/cache/directory.hpp"
#include "qf/cache/policies.hpp"
#include "qf/cache/policy_belady.hpp"

namespace qf::cache {
namespace {

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// For each access the request that uses its block next.
std::vector<std::uint32_t> next_uses(const Trace& trace) {
  std::vector<std::uint32_t> next(trace.blocks.size()), seen(trace.unique(), BeladyOrder::kNever);
  for (std::size_t r = trace.requests(); r-- > 0;)
    for (std::size_t i = trace.starts[r]; i < trace.starts[r + 1]; ++i) {
      next[i] = seen[trace.blocks[i]];
      seen[trace.blocks[i]] = static_cast<std::uint32_t>(r);
    }
  return next;
}

BlockKey key_of(std::uint32_t block) {
  return block == Trace::kNone ? kNoBlock : BlockKey{block} + 1;
}

// `before(i)` is called before access i.
template <class Before>
SimulationResult replay(const Trace& trace, Directory& directory, Before&& before) {
  SimulationResult result;
  result.accesses = trace.blocks.size();
  const double start = thread_seconds();
  for (std::size_t r = 0; r < trace.requests(); ++r) {
    directory.begin();
    for (std::size_t i = trace.starts[r]; i < trace.starts[r + 1]; ++i) {
      before(i);
      result.hits += directory.touch(key_of(trace.blocks[i]), key_of(trace.parents[trace.blocks[i]]));
    }
    directory.end();
  }
  result.seconds = thread_seconds() - start;
  return result;
}

}  // namespace

Result<SimulationResult> simulate(const Trace& trace, std::string_view policy, std::size_t pages) {
  try {
    if (policy != "belady") {
      QF_TRY_ASSIGN(Policy made, make_policy(policy, pages));
      Directory directory(std::move(made));
      return replay(trace, directory, [](std::size_t) {});
    }
    QF_TRY(make_policy("lru", pages));  // refuses the number of pages
    const auto next = next_uses(trace);
    auto tree = std::make_unique<PageTree>(pages);
    auto order = std::make_unique<BeladyOrder>(*tree, next);
    BeladyOrder& belady = *order;
    Directory directory(Policy(std::move(tree), std::move(order)));
    return replay(trace, directory, [&](std::size_t i) { belady.at(i); });
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({"no memory to simulate ", policy}));
  }
}

}  // namespace qf::cache
