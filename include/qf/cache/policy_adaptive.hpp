// Several orders, of which the one leads that would do best at the moment.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "qf/cache/directory.hpp"
#include "qf/cache/policy_lists.hpp"

namespace qf::cache {

// Follows the best expert (Gramacy, Warmuth, Brandt, Ari: Adaptive Caching by Refetching, NIPS 2002). Every candidate has a shadow: a
// directory of a cache that it would run alone, over a sample of the blocks by hash where the cache is large (Waldspurger, Park,
// Garthwaite, Ahmad: SHARDS, FAST 2015). The hits that shadows would have had, fading with time, say who leads. All candidates watch
// the real pages; the leader names the victims.
class AdaptiveOrder final : public EvictionOrder {
 public:
  using Make = std::unique_ptr<EvictionOrder> (*)(const PageTree& tree);
  struct Options {
    std::size_t shadow_pages = 8192;  // at most, of each shadow
    double half_life = 4;             // of hits, in shadow accesses / shadow pages
    double least_accesses = 20000;    // but no less than so many shadow accesses
    double margin = 0.01;             // by which a candidate has to be better to take over
  };

  AdaptiveOrder(const PageTree& tree, std::span<const Make> candidates, Options options)
      : tree_(tree), options_(options), sampled_parent_(tree.capacity()) {
    const std::size_t pages = std::min(tree.capacity(), options.shadow_pages);
    if (pages < tree.capacity())
      threshold_ = static_cast<std::uint64_t>(static_cast<double>(pages) /
                                              static_cast<double>(tree.capacity()) * 0x1p64);
    for (const Make make : candidates) {
      followers_.push_back(make(tree));
      auto shadow_tree = std::make_unique<PageTree>(pages);
      auto order = make(*shadow_tree);
      shadows_.emplace_back(Policy(std::move(shadow_tree), std::move(order)));
    }
    score_.assign(candidates.size(), 0);
    fade_ = std::exp2(-1 / std::max(options.least_accesses, options.half_life * static_cast<double>(pages)));
    seen_.reserve(4096);
  }
  std::size_t leader() const { return leader_; }

  void request() override {
    learn();
    for (auto& f : followers_) f->request();
  }
  void inserted(Page p) override {
    const Page parent = tree_.parent(p);
    // The nearest block above that the shadows know.
    sampled_parent_[p] = parent == kNoPage               ? kNoBlock
                         : is_sampled(tree_.key(parent)) ? tree_.key(parent)
                                                         : sampled_parent_[parent];
    see(p);
    for (auto& f : followers_) f->inserted(p);
  }
  void used(Page p) override {
    see(p);
    for (auto& f : followers_) f->used(p);
  }
  void released(Page p) override {
    for (auto& f : followers_) f->released(p);
  }
  void freed(Page p) override {
    for (auto& f : followers_) f->freed(p);
  }
  void blocked(Page p) override {
    for (auto& f : followers_) f->blocked(p);
  }
  Page victim() override { return followers_[leader_]->victim(); }
  void removed(Page p) override {
    for (auto& f : followers_) f->removed(p);
  }

 private:
  struct Seen {
    BlockKey key, parent;
  };
  bool is_sampled(BlockKey key) const { return detail::mix(key ^ 0x5bf03635u) <= threshold_; }
  void see(Page p) {
    if (is_sampled(tree_.key(p))) seen_.push_back({tree_.key(p), sampled_parent_[p]});
  }
  // Lets the shadows serve what was seen since the last request.
  void learn() {
    if (seen_.empty()) return;
    const double fade = std::pow(fade_, static_cast<double>(seen_.size()));
    for (std::size_t i = 0; i < shadows_.size(); ++i) {
      std::size_t hits = 0;
      shadows_[i].begin();
      for (const Seen& s : seen_) hits += shadows_[i].touch(s.key, s.parent);
      shadows_[i].end();
      score_[i] = score_[i] * fade + static_cast<double>(hits);
    }
    seen_.clear();
    const auto best =
        static_cast<std::size_t>(std::max_element(score_.begin(), score_.end()) - score_.begin());
    if (score_[best] > score_[leader_] * (1 + options_.margin) + 1) leader_ = best;
  }

  const PageTree& tree_;
  Options options_;
  std::uint64_t threshold_ = ~std::uint64_t{0};
  std::vector<std::unique_ptr<EvictionOrder>> followers_;
  std::vector<Directory> shadows_;
  std::vector<double> score_;
  std::vector<BlockKey> sampled_parent_;
  std::vector<Seen> seen_;
  std::size_t leader_ = 0;
  double fade_ = 1;
};

}  // namespace qf::cache
