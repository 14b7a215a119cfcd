// Least recently used: the oldest rule, and what most prefix caches do.
#pragma once

#include "qf/cache/policy_lists.hpp"

namespace qf::cache {

// Evicts the leaf whose last use is longest ago; within a request the leaf is older than its parent.
class LruOrder final : public EvictionOrder {
 public:
  explicit LruOrder(const PageTree& tree) : tree_(tree), lists_(tree.capacity(), 1) {}

  void inserted(Page) override {}
  void used(Page p) override { lists_.unlink(p); }
  void released(Page p) override { lists_.push_front(0, p); }
  // Pages that can't go were taken out when victim() met them. They are older than all that it has not met yet.
  void freed(Page p) override {
    if (!lists_.linked(p)) lists_.push_back(0, p);
  }
  Page victim() override {
    Page p = lists_.back(0);
    for (; !tree_.evictable(p); p = lists_.back(0)) lists_.unlink(p);
    return p;
  }
  void removed(Page p) override { lists_.unlink(p); }

 private:
  const PageTree& tree_;
  detail::Lists lists_;
};

}  // namespace qf::cache
