// A cache without content: which blocks would be resident under a policy. The simulator runs on it, and so do the
// shadows that the default policy learns from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "qf/cache/policy.hpp"
#include "qf/cache/policy_lists.hpp"

namespace qf::cache {

// Takes all memory when made, except for requests longer than any before. One thread at a time.
class Directory {
 public:
  explicit Directory(Policy policy) : policy_(std::move(policy)), index_(policy_.tree().capacity()) {
    const std::size_t pages = policy_.tree().capacity();
    free_.reserve(pages);
    for (std::size_t p = pages; p-- > 0;) free_.push_back(static_cast<Page>(p));
    held_.reserve(std::min<std::size_t>(pages, 4096));
  }

  const Policy& policy() const { return policy_; }
  std::size_t resident() const { return policy_.tree().capacity() - free_.size(); }
  bool holds(BlockKey key) const { return find(key) != kNoPage; }

  // A request: begin(), touch() for its blocks from the root on, end().
  void begin() { policy_.request(); }
  // True: the block was resident. False: it wasn't, and is now, unless the cache is full of this request's blocks or the
  // parent isn't resident. `parent` is kNoBlock for a first block. Precondition: key != kNoBlock.
  bool touch(BlockKey key, BlockKey parent) {
    const Page page = find(key);
    if (page != kNoPage) {
      policy_.hit(page);
      hold(page, key);
      return true;
    }
    // Often the block before is the parent; it is pinned, so it can't have left.
    const Page under = parent == kNoBlock ? kNoPage : parent == last_key_ ? last_page_ : find(parent);
    if (parent != kNoBlock && under == kNoPage) return false;
    if (under != kNoPage &&
        under != last_page_) {  // not of this request as seen so far: keep it while room is made
      policy_.hit(under);
      held_.push_back(under);
    }
    const Page room = take();
    if (room == kNoPage) return false;
    policy_.insert(room, key, under);
    index_.insert(key, room);
    hold(room, key);
    return false;
  }
  void end() {
    while (!held_.empty()) {
      policy_.release(held_.back());
      held_.pop_back();
    }
    last_key_ = kNoBlock;
    last_page_ = kNoPage;
  }

 private:
  auto key_of() const {
    return [this](std::uint32_t page) { return policy_.tree().key(page); };
  }
  Page find(BlockKey key) const { return index_.find(key, key_of()); }
  void hold(Page page, BlockKey key) {
    held_.push_back(page);
    last_key_ = key;
    last_page_ = page;
  }
  Page take() {
    if (free_.empty()) {
      // The index asks the tree for keys: the entry goes first, while the tree still knows the page.
      return policy_.evict([this](BlockKey gone) { index_.erase(gone, key_of()); });
    }
    const Page page = free_.back();
    free_.pop_back();
    return page;
  }
  Policy policy_;
  detail::KeyIndex index_;
  std::vector<Page> free_, held_;
  BlockKey last_key_ = kNoBlock;
  Page last_page_ = kNoPage;
};

}  // namespace qf::cache
