// Three queues: what is used only once leaves early.
#pragma once

#include <algorithm>

#include "qf/cache/policy_lists.hpp"

namespace qf::cache {

// Yang, Zhang, Qiu, Yue, Rashmi: FIFO Queues are All You Need for Cache Eviction, SOSP 2023. A small queue of a tenth of
// the pages, a main queue, and ghosts of as many blocks as there are pages; pages of the small queue that were used
// since they came move to the main one.
class S3FifoOrder final : public EvictionOrder {
 public:
  explicit S3FifoOrder(const PageTree& tree)
      : tree_(tree),
        small_most_(std::max<std::size_t>(1, tree.capacity() / 10)),
        lists_(tree.capacity(), 2),
        state_(tree.capacity()),
        ghosts_(tree.capacity()) {}

  void inserted(Page p) override {
    state_[p] = {};
    state_[p].queue = ghosts_.erase(tree_.key(p)) ? kMain : kSmall;
    ++pages_[state_[p].queue];
  }
  void used(Page p) override {
    if (state_[p].uses < 3) ++state_[p].uses;
  }
  void released(Page p) override {
    if (state_[p].queued) return;
    state_[p].queued = true;
    lists_.push_front(state_[p].queue, p);
  }
  void freed(Page p) override {
    if (!lists_.linked(p))
      lists_.push_back(state_[p].queue, p);  // victim() would have taken it when it couldn't go
  }
  Page victim() override {
    for (;;) {
      const std::size_t first = pages_[kSmall] >= small_most_ || pages_[kMain] == 0 ? kSmall : kMain;
      const std::size_t queue = lists_.empty(first) ? 1 - first : first;
      const Page p = lists_.back(queue);
      lists_.unlink(p);
      State& s = state_[p];
      if (s.uses == 0) {
        if (tree_.evictable(p)) return p;
        continue;  // back when it can go, see freed()
      }
      if (queue == kSmall) {
        s.uses = 0, s.queue = kMain;
        --pages_[kSmall], ++pages_[kMain];
      } else {
        --s.uses;
      }
      lists_.push_front(kMain, p);
    }
  }
  void removed(Page p) override {
    lists_.unlink(p);
    --pages_[state_[p].queue];
    if (state_[p].queue == kSmall) ghosts_.push(tree_.key(p), {});
  }

 private:
  static constexpr std::uint8_t kSmall = 0, kMain = 1;
  struct Nothing {};
  struct State {
    std::uint8_t queue = 0, uses = 0;
    bool queued = false;  // false until the request that brought it is through
  };
  const PageTree& tree_;
  std::size_t small_most_;
  detail::Lists lists_;
  std::vector<State> state_;
  std::size_t pages_[2] = {0, 0};
  detail::Ghosts<Nothing> ghosts_;
};

}  // namespace qf::cache
