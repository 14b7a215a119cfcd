// Adaptive replacement between recency and frequency.
#pragma once

#include <algorithm>

#include "qf/cache/policy_lists.hpp"

namespace qf::cache {

// Megiddo, Modha: ARC: A Self-Tuning, Low Overhead Replacement Cache, FAST 2003. T1 holds pages used once, T2 pages
// used again; the ghosts B1 and B2 move the share `target_` of T1. Room for a request's new blocks is made before they come.
class ArcOrder final : public EvictionOrder {
 public:
  explicit ArcOrder(const PageTree& tree)
      : tree_(tree),
        lists_(tree.capacity(), 2),
        in_(tree.capacity(), 0),
        ghosts_{detail::Ghosts<Nothing>(tree.capacity() + 1),
                detail::Ghosts<Nothing>(2 * tree.capacity() + 1)} {}

  void inserted(Page p) override {
    const BlockKey key = tree_.key(p);
    const double b1 = static_cast<double>(ghosts_[0].size()), b2 = static_cast<double>(ghosts_[1].size());
    in_[p] = 1;
    if (ghosts_[0].erase(key)) {
      target_ = std::min(capacity(), target_ + std::max(1.0, b2 / b1));
    } else if (ghosts_[1].erase(key)) {
      target_ = std::max(0.0, target_ - std::max(1.0, b1 / b2));
    } else {
      in_[p] = 0;
    }
    ++pages_[in_[p]];
    trim();
  }
  void used(Page p) override {
    lists_.unlink(p);
    --pages_[in_[p]];
    ++pages_[1];
    in_[p] = 1;
  }
  void released(Page p) override { lists_.push_front(in_[p], p); }
  void freed(Page p) override {
    if (!lists_.linked(p)) lists_.push_back(in_[p], p);  // taken out by last_of(), see LruOrder
  }
  Page victim() override {
    const std::size_t from = pages_[0] >= 1 && static_cast<double>(pages_[0]) > target_ ? 0 : 1;
    const Page p = last_of(from);
    return p != kNoPage ? p : last_of(1 - from);
  }
  void removed(Page p) override {
    lists_.unlink(p);
    --pages_[in_[p]];
    ghosts_[in_[p]].push(tree_.key(p), {});
    trim();
  }

 private:
  struct Nothing {};
  double capacity() const { return static_cast<double>(tree_.capacity()); }
  Page last_of(std::size_t list) {
    while (!lists_.empty(list)) {
      const Page p = lists_.back(list);
      if (tree_.evictable(p)) return p;
      lists_.unlink(p);
    }
    return kNoPage;
  }
  // |T1| + |B1| <= c and |T1| + |T2| + |B1| + |B2| <= 2c.
  void trim() {
    const std::size_t c = tree_.capacity();
    while (ghosts_[0].size() && pages_[0] + ghosts_[0].size() > c) ghosts_[0].pop();
    while (ghosts_[1].size() && pages_[0] + pages_[1] + ghosts_[0].size() + ghosts_[1].size() > 2 * c)
      ghosts_[1].pop();
  }
  const PageTree& tree_;
  detail::Lists lists_;
  std::vector<std::uint8_t> in_;  // 0: T1, 1: T2
  std::size_t pages_[2] = {0, 0};
  detail::Ghosts<Nothing> ghosts_[2];
  double target_ = 0;
};

}  // namespace qf::cache
