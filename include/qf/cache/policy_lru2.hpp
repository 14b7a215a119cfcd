// The last use but one.
#pragma once

#include "qf/cache/policy_lists.hpp"

namespace qf::cache {

// O'Neil, O'Neil, Weikum: The LRU-K Page Replacement Algorithm For Database Disk Buffering, SIGMOD 1993, with K = 2: evicts the
// leaf whose last use but one is longest ago; pages used once go first, the least recently used of them before.
// Time is counted in requests, so that a request's blocks are equals. The last uses of evicted blocks are remembered for
// history_of(pages) blocks.
class Lru2Order final : public EvictionOrder {
 public:
  explicit Lru2Order(const PageTree& tree)
      : tree_(tree),
        uses_(tree.capacity()),
        heap_(tree.capacity()),
        ghosts_(detail::history_of(tree.capacity())) {}

  void request() override { ++now_; }
  void inserted(Page p) override {
    const BlockKey key = tree_.key(p);
    const double* last = ghosts_.find(key);
    uses_[p] = {last ? *last : -1.0, now_, 0};
    ghosts_.erase(key);
  }
  void used(Page p) override { uses_[p].before = uses_[p].last, uses_[p].last = now_; }
  void released(Page p) override { uses_[p].order = ++releases_; }
  void freed(Page p) override { heap_.push(p, {uses_[p].before, uses_[p].order}); }
  void blocked(Page p) override { heap_.erase(p); }
  Page victim() override { return heap_.top(); }
  void removed(Page p) override {
    heap_.erase(p);
    ghosts_.push(tree_.key(p), uses_[p].last);
  }

 private:
  struct Uses {
    double before = -1, last = 0, order = 0;
  };
  const PageTree& tree_;
  std::vector<Uses> uses_;
  detail::PageHeap heap_;
  detail::Ghosts<double> ghosts_;
  double now_ = 0, releases_ = 0;
};

}  // namespace qf::cache
