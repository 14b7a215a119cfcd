// Frequency that fades: an exponentially weighted moving average of uses.
#pragma once

#include <cmath>

#include "qf/cache/policy_lists.hpp"

namespace qf::cache {

// Score S <- 1 + S * 2^(-dt / half-life) at each use; evicts the leaf with the least score as of now, which is the least
// log2 S + t / half-life at any time (Lee et al.: LRFU, IEEE Trans. Computers 50(12), 2001).
class EwmaOrder final : public EvictionOrder {
 public:
  struct Options {
    double half_life = 1;
    bool count_requests =
        false;  // time is counted in requests; else in inserted pages / capacity, at any load alike
    bool remember = true;  // scores of evicted blocks are remembered, for history_of(pages) blocks
  };
  // The rule of the first version: a factor of .95 a request, and evicted blocks are forgotten.
  static Options fixed() { return {std::log(2.0) / -std::log(0.95), true, false}; }

  EwmaOrder(const PageTree& tree, Options options)
      : tree_(tree),
        options_(options),
        rate_(1 / options.half_life),
        state_(tree.capacity()),
        heap_(tree.capacity()),
        ghosts_(options.remember ? detail::history_of(tree.capacity()) : 0) {}

  void request() override { now_ += options_.count_requests ? 1 : 0; }
  void inserted(Page p) override {
    if (!options_.count_requests) now_ += 1 / static_cast<double>(tree_.capacity());
    const Score* old = ghosts_.find(tree_.key(p));
    state_[p].score = old ? *old : Score{};
    ghosts_.erase(tree_.key(p));
    used(p);
  }
  void used(Page p) override {
    Score& s = state_[p].score;
    s.sum = 1 + s.sum * std::exp2(rate_ * (s.at - now_));
    s.at = now_;
  }
  void released(Page p) override { state_[p].order = ++releases_; }
  void freed(Page p) override {
    const State& s = state_[p];
    heap_.push(p, {std::log2(s.score.sum) + rate_ * s.score.at, s.order});
  }
  void blocked(Page p) override { heap_.erase(p); }
  Page victim() override { return heap_.top(); }
  void removed(Page p) override {
    heap_.erase(p);
    ghosts_.push(tree_.key(p), state_[p].score);
  }

 private:
  struct Score {
    double sum = 0, at = 0;
  };
  struct State {
    Score score;
    double order = 0;
  };
  const PageTree& tree_;
  Options options_;
  double rate_;
  std::vector<State> state_;
  detail::PageHeap heap_;
  detail::Ghosts<Score> ghosts_;
  double now_ = 0, releases_ = 0;
};

}  // namespace qf::cache
