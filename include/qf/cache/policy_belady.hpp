// The most that any policy can reach; it needs to know the future, so only the simulator has it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "qf/cache/policy_lists.hpp"

namespace qf::cache {

// Belady: A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5(2), 1966: evicts the leaf
// whose next use is farthest away. A block's parent is used whenever it is, so no leaf stands in the way of a better choice.
class BeladyOrder final : public EvictionOrder {
 public:
  static constexpr std::uint32_t kNever = 0xffffffff;
  // `next_use[i]` is the request that uses the block of access i the next time, kNever if none. It has to outlive
  // the order.
  BeladyOrder(const PageTree& tree, std::span<const std::uint32_t> next_use)
      : next_use_(next_use), next_(tree.capacity()), heap_(tree.capacity()) {}

  // The access that the following inserted() or used() belongs to.
  void at(std::size_t access) { access_ = access; }

  void inserted(Page p) override { next_[p] = -static_cast<double>(next_use_[access_]); }
  void used(Page p) override { next_[p] = -static_cast<double>(next_use_[access_]); }
  void freed(Page p) override { heap_.push(p, {next_[p], ++order_}); }
  void blocked(Page p) override { heap_.erase(p); }
  Page victim() override { return heap_.top(); }
  void removed(Page p) override { heap_.erase(p); }

 private:
  std::span<const std::uint32_t> next_use_;
  std::vector<double> next_;
  detail::PageHeap heap_;
  std::size_t access_ = 0;
  double order_ = 0;
};

}  // namespace qf::cache
