#include <array>
#include <new>

#include "qf/cache/policies.hpp"
#include "qf/cache/policy_adaptive.hpp"
#include "qf/cache/policy_arc.hpp"
#include "qf/cache/policy_ewma.hpp"
#include "qf/cache/policy_hazard.hpp"
#include "qf/cache/policy_lru.hpp"
#include "qf/cache/policy_lru2.hpp"
#include "qf/cache/policy_s3fifo.hpp"
#include "qf/cache/policy_sieve.hpp"

namespace qf::cache {
namespace {

using OrderPtr = std::unique_ptr<EvictionOrder>;

struct Entry {
  PolicyInfo info;
  OrderPtr (*make)(const PageTree& tree);
};

template <class Order>
OrderPtr plain(const PageTree& tree) {
  return std::make_unique<Order>(tree);
}

template <int Sixteenths>
OrderPtr fading(const PageTree& tree) {
  return std::make_unique<EwmaOrder>(tree, EwmaOrder::Options{Sixteenths / 16.0});
}

// Half-lives from a sixteenth of the capacity to sixteen times it, and the last use but one.
constexpr AdaptiveOrder::Make kFading[] = {fading<16>, fading<1>,   fading<8>,       fading<32>,
                                           fading<64>, fading<256>, plain<Lru2Order>};
template <const auto& Candidates>
OrderPtr adaptive(const PageTree& tree) {
  return std::make_unique<AdaptiveOrder>(tree, Candidates, AdaptiveOrder::Options{});
}

constexpr Entry kPolicies[] = {
    {{"default", "what a cache uses unless told otherwise: hazard"}, plain<HazardOrder>},
    {{"lru", "least recently used"}, plain<LruOrder>},
    {{"lru2", "least recent last use but one"}, plain<Lru2Order>},
    {{"arc", "adaptive replacement: recency and frequency with ghosts"}, plain<ArcOrder>},
    {{"s3fifo", "small, main and ghost queue"}, plain<S3FifoOrder>},
    {{"sieve", "one queue and a hand"}, plain<SieveOrder>},
    {{"ewma", "fading frequency, a factor of .95 a request"},
     [](const PageTree& tree) -> OrderPtr { return std::make_unique<EwmaOrder>(tree, EwmaOrder::fixed()); }},
    {{"ewma-adaptive", "fading frequency, its half-life chosen online"}, adaptive<kFading>},
    {{"hazard", "learned rate of reuse by age"}, plain<HazardOrder>},
};

}  // namespace

std::span<const PolicyInfo> policies() {
  static const auto infos = [] {
    std::array<PolicyInfo, std::size(kPolicies)> list;
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = kPolicies[i].info;
    return list;
  }();
  return infos;
}

Result<Policy> make_policy(std::string_view name, std::size_t pages) {
  if (pages < 1 || pages > std::size_t{1} << 31)
    return Status(Errc::invalid_argument, cat({"a cache of ", num(pages), " pages, 1 to 2^31 expected"}));
  for (const Entry& entry : kPolicies) {
    if (entry.info.name != name) continue;
    try {
      auto tree = std::make_unique<PageTree>(pages);
      auto order = entry.make(*tree);
      return Policy(std::move(tree), std::move(order));
    } catch (const std::bad_alloc&) {
      return Status(Errc::out_of_memory,
                    cat({"no memory for the policy ", name, " of ", num(pages), " pages"}));
    }
  }
  std::string names;
  for (const Entry& entry : kPolicies) names += (names.empty() ? "" : ", ") + std::string(entry.info.name);
  return Status(Errc::invalid_argument, cat({"no policy ", printable(name), "; there are ", names}));
}

}  // namespace qf::cache
