// Which page of a prefix cache goes when room is needed. Pages form a forest: a page holds one block of tokens,
// its parent the block before it. A page can go only when nobody uses it (no pins) and no page stands on it
// (it is a leaf), so what is resident is always whole prefixes.
//
// Policy does that bookkeeping; an EvictionOrder, one for each algorithm, only ranks pages. Anything that implements
// EvictionOrder works in the simulator and in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "qf/core/config.hpp"

namespace qf::cache {

// A page of the cache, below its capacity: dense, so that everything about pages lies in arrays.
using Page = std::uint32_t;
inline constexpr Page kNoPage = 0xffffffff;

// Names the content of a page: a hash of its tokens and of all before them. 0 names nothing.
using BlockKey = std::uint64_t;
inline constexpr BlockKey kNoBlock = 0;

// Who stands on whom, and who is in use. Read-only for orders.
class PageTree {
 public:
  explicit PageTree(std::size_t pages) : nodes_(pages) {}

  std::size_t capacity() const { return nodes_.size(); }
  bool resident(Page p) const { return nodes_[p].key != kNoBlock; }
  BlockKey key(Page p) const { return nodes_[p].key; }
  Page parent(Page p) const { return nodes_[p].parent; }
  std::uint32_t pins(Page p) const { return nodes_[p].pins; }
  std::uint32_t children(Page p) const { return nodes_[p].children; }
  bool evictable(Page p) const {
    const Node& n = nodes_[p];
    return n.key != kNoBlock && n.pins == 0 && n.children == 0;
  }

 private:
  friend class Policy;
  struct Node {
    BlockKey key = kNoBlock;
    Page parent = kNoPage;
    std::uint32_t children = 0, pins = 0;
  };
  std::vector<Node> nodes_;
};

// The ranking of an algorithm. All memory is taken when it is made, but for buffers of a request longer than any
// before. Calls come from Policy, in the order described there. Everything is deterministic.
class EvictionOrder {
 public:
  virtual ~EvictionOrder() = default;
  // A request begins: the clock of algorithms that count requests.
  virtual void request() {}
  // `p` holds a new block, pinned once; its key and parent stand in the tree.
  virtual void inserted(Page p) = 0;
  // A request found `p` resident; it is pinned.
  virtual void used(Page p) = 0;
  // The last pin of `p` is gone. Blocks of a request are let go leaf first: their order of recency.
  virtual void released(Page) {}
  // `p` can be evicted from now on: it has neither pins nor children. After released() when both come at once.
  virtual void freed(Page) {}
  // `p` can't be evicted any more: a request uses it, or a new page stands on it.
  virtual void blocked(Page) {}
  // The page that should go. There is one that can; the answer must be evictable.
  virtual Page victim() = 0;
  // `p` leaves, by this order's wish or another's. Its key still stands in the tree.
  virtual void removed(Page p) = 0;
};

// A cache's pages and the order in which they go. Life of a request: request(), then for its blocks from the root
// on hit() or insert() (evict() first when no page is free), and when it is through, release() for each of them from
// the leaf on. Costs well below 1 us a call at 10^6 pages.
// Thread rule: one thread at a time. Move-only.
class Policy {
 public:
  // `tree` has to be the one that `order` was made for.
  Policy(std::unique_ptr<PageTree> tree, std::unique_ptr<EvictionOrder> order)
      : tree_(std::move(tree)), order_(std::move(order)) {}

  const PageTree& tree() const { return *tree_; }
  const EvictionOrder& order() const { return *order_; }
  std::size_t evictable() const { return evictable_; }

  void request() { order_->request(); }

  // Precondition: `page` is resident.
  void hit(Page page) {
    QF_ASSERT(tree_->resident(page));
    if (tree_->evictable(page)) block(page);
    ++tree_->nodes_[page].pins;
    order_->used(page);
  }

  // `page` was free and now holds the block `key`, pinned once. Preconditions: key != kNoBlock; the parent is resident,
  // or kNoPage for the first block of a prompt.
  void insert(Page page, BlockKey key, Page parent) {
    QF_ASSERT(!tree_->resident(page) && key != kNoBlock);
    if (parent != kNoPage) {
      QF_ASSERT(tree_->resident(parent));
      if (tree_->evictable(parent)) block(parent);
      ++tree_->nodes_[parent].children;
    }
    tree_->nodes_[page] = {key, parent, 0, 1};
    order_->inserted(page);
  }

  // Takes one pin away. Precondition: it has one.
  void release(Page page) {
    QF_ASSERT(tree_->nodes_[page].pins > 0);
    if (--tree_->nodes_[page].pins) return;
    order_->released(page);
    if (tree_->evictable(page)) free(page);
  }

  // Chooses a page, forgets it and returns it; kNoPage when every page is pinned or carries a pinned one. Before the
  // page is forgotten, `leaving` is called with its key.
  template <class Leaving>
  Page evict(Leaving&& leaving) {
    if (!evictable_) return kNoPage;
    const Page page = order_->victim();
    QF_ASSERT(tree_->evictable(page));
    leaving(tree_->key(page));
    remove(page);
    return page;
  }
  Page evict() {
    return evict([](BlockKey) {});
  }

  // Forgets a page whose content became invalid. Precondition: evictable.
  void remove(Page page) {
    QF_ASSERT(tree_->evictable(page));
    order_->removed(page);
    --evictable_;
    const Page parent = tree_->nodes_[page].parent;
    tree_->nodes_[page] = {};
    if (parent == kNoPage) return;
    --tree_->nodes_[parent].children;
    if (tree_->evictable(parent)) free(parent);
  }

 private:
  void block(Page page) {
    --evictable_;
    order_->blocked(page);
  }
  void free(Page page) {
    ++evictable_;
    order_->freed(page);
  }
  std::unique_ptr<PageTree> tree_;
  std::unique_ptr<EvictionOrder> order_;
  std::size_t evictable_ = 0;
};

}  // namespace qf::cache
