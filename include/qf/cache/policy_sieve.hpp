// One queue, one bit and a hand.
#pragma once

#include "qf/cache/policy_lists.hpp"

namespace qf::cache {

// Zhang, Yang, Yue, Vigfusson, Rashmi: SIEVE is Simpler than LRU, NSDI 2024. The hand walks from the oldest page to the newest, takes
// the first that was not used since it last came by, and starts again at the oldest.
class SieveOrder final : public EvictionOrder {
 public:
  explicit SieveOrder(const PageTree& tree)
      : tree_(tree), lists_(tree.capacity(), 1), state_(tree.capacity()), hand_(lists_.head(0)) {}

  void inserted(Page p) override { state_[p] = {}; }
  void used(Page p) override { state_[p].used = true; }
  void released(Page p) override {
    if (state_[p].queued) return;
    state_[p].queued = true;
    lists_.push_front(0, p);
  }
  // The hand would have taken it when it couldn't go: now it is what the hand meets next.
  void freed(Page p) override {
    if (lists_.linked(p)) return;
    const bool at_end = lists_.is_head(hand_);
    lists_.insert_after(at_end ? lists_.back(0) : hand_, p);
    hand_ = p;
  }
  Page victim() override {
    for (;;) {
      if (lists_.is_head(hand_)) hand_ = lists_.back(0);
      const Page p = hand_;
      hand_ = lists_.before(p);
      if (state_[p].used) {
        state_[p].used = false;
      } else if (tree_.evictable(p)) {
        return p;
      } else {
        lists_.unlink(p);
      }
    }
  }
  void removed(Page p) override {
    if (hand_ == p) hand_ = lists_.before(p);
    lists_.unlink(p);
  }

 private:
  struct State {
    bool used = false, queued = false;
  };
  const PageTree& tree_;
  detail::Lists lists_;
  std::vector<State> state_;
  std::uint32_t hand_;  // the next page to look at; the list's head: start at the oldest
};

}  // namespace qf::cache
