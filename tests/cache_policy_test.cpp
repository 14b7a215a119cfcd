#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <vector>

#include "qf/cache/directory.hpp"
#include "qf/cache/policies.hpp"
#include "qf/cache/simulate.hpp"
#include "tests/cache_traces.hpp"

using namespace qf;
using namespace qf::cache;
using namespace qf::cache::test;

namespace {

using Block = std::uint64_t;

// The rules once more, with nothing but standard containers and linear searches.
class Model {
 public:
  explicit Model(std::size_t capacity) : capacity_(capacity) {}
  virtual ~Model() = default;

  // Hits of one request; `parents` of its blocks, 0: none.
  std::size_t access(const std::vector<Block>& blocks) {
    ++now_;
    std::size_t hits = 0;
    std::vector<Block> held;
    Block parent = 0;
    for (const Block b : blocks) {
      if (in_.count(b)) {
        ++hits;
        pinned_.insert(b);
        use(b);
      } else {
        if (parent && !in_.count(parent)) break;
        if (in_.size() == capacity_) {
          const bool any =
              std::any_of(in_.begin(), in_.end(), [&](const auto& x) { return evictable(x.first); });
          if (!any) break;
          const Block gone = victim();
          REQUIRE(evictable(gone));
          remove(gone);
          const Block above = in_[gone];
          in_.erase(gone);
          if (above && evictable(above)) freed(above);
        }
        in_[b] = parent;
        pinned_.insert(b);
        insert(b);
      }
      held.push_back(b);
      parent = b;
    }
    for (; !held.empty(); held.pop_back()) {
      pinned_.erase(held.back());
      release(held.back());
      if (evictable(held.back())) freed(held.back());
    }
    return hits;
  }
  const std::map<Block, Block>& resident() const { return in_; }

 protected:
  bool evictable(Block b) const {
    if (!in_.count(b) || pinned_.count(b)) return false;
    return std::none_of(in_.begin(), in_.end(), [&](const auto& x) { return x.second == b; });
  }
  virtual void insert(Block b) = 0;
  virtual void use(Block b) = 0;
  virtual void release(Block b) = 0;
  virtual void freed(Block) {}
  virtual Block victim() = 0;
  virtual void remove(Block b) = 0;
  std::size_t capacity_;
  std::map<Block, Block> in_;  // block -> parent
  std::set<Block> pinned_;
  double now_ = 0;
};

// The evictable block of the least rank.
class RankModel : public Model {
 public:
  using Model::Model;

 protected:
  using Rank = std::pair<double, double>;
  virtual Rank rank(Block b) = 0;
  Block victim() override {
    Block best = 0;
    for (const auto& [b, parent] : in_)
      if (evictable(b) && (!best || rank(b) < rank(best))) best = b;
    return best;
  }
  void release(Block b) override { order_[b] = ++releases_; }
  std::map<Block, double> order_;
  double releases_ = 0;
};

class LruModel final : public RankModel {
 public:
  using RankModel::RankModel;

 private:
  Rank rank(Block b) override { return {order_[b], 0}; }
  void insert(Block) override {}
  void use(Block) override {}
  void remove(Block) override {}
};

class Lru2Model final : public RankModel {
 public:
  using RankModel::RankModel;

 private:
  Rank rank(Block b) override {
    const auto& times = uses_[b];
    return {times.size() > 1 ? times[times.size() - 2] : -1, order_[b]};
  }
  void insert(Block b) override {
    gone_.remove(b);
    uses_[b].push_back(now_);
  }
  void use(Block b) override { uses_[b].push_back(now_); }
  void remove(Block b) override {  // remembered for the last 8 * capacity blocks that went
    gone_.push_back(b);
    if (gone_.size() <= 8 * capacity_) return;
    uses_.erase(gone_.front());
    gone_.pop_front();
  }
  std::map<Block, std::vector<double>> uses_;
  std::list<Block> gone_;
};

class EwmaModel final : public RankModel {
 public:
  using RankModel::RankModel;

 private:
  Rank rank(Block b) override { return {std::log2(score_[b]) + rate() * at_[b], order_[b]}; }
  static double rate() { return 1 / (std::log(2.0) / -std::log(0.95)); }
  void insert(Block b) override {
    score_[b] = 0;
    at_[b] = 0;
    use(b);
  }
  void use(Block b) override {
    score_[b] = 1 + score_[b] * std::exp2(rate() * (at_[b] - now_));
    at_[b] = now_;
  }
  void remove(Block) override {}
  std::map<Block, double> score_, at_;
};

// Queues, newest first. A block that can't go when its turn comes is set aside; once it can, it is the next.
class QueueModel : public Model {
 public:
  using Model::Model;

 protected:
  using Queue = std::list<Block>;
  virtual Queue& queue_of(Block b) = 0;
  bool queued(Block b) { return std::count(queue_of(b).begin(), queue_of(b).end(), b) != 0; }
  void freed(Block b) override {
    if (!queued(b)) queue_of(b).push_back(b);
  }
};

class ArcModel final : public QueueModel {
 public:
  using QueueModel::QueueModel;

 private:
  Queue& queue_of(Block b) override { return t_[second_.count(b)]; }
  double c() const { return static_cast<double>(capacity_); }
  std::size_t once() const { return in_.size() - second_.size(); }
  void insert(Block b) override {
    const double b1 = static_cast<double>(b_[0].size()), b2 = static_cast<double>(b_[1].size());
    if (std::count(b_[0].begin(), b_[0].end(), b)) {
      p_ = std::min(c(), p_ + std::max(1.0, b2 / b1));
      second_.insert(b);
    } else if (std::count(b_[1].begin(), b_[1].end(), b)) {
      p_ = std::max(0.0, p_ - std::max(1.0, b1 / b2));
      second_.insert(b);
    }
    for (Queue& ghosts : b_) ghosts.remove(b);
    trim(in_.size());
  }
  void use(Block b) override {
    for (Queue& t : t_) t.remove(b);
    second_.insert(b);
  }
  void release(Block b) override {
    if (!queued(b)) queue_of(b).push_front(b);
  }
  Block victim() override {
    const std::size_t from = once() >= 1 && static_cast<double>(once()) > p_ ? 0 : 1;
    for (const std::size_t i : {from, 1 - from})
      for (; !t_[i].empty(); t_[i].pop_back())
        if (evictable(t_[i].back())) return t_[i].back();
    return 0;
  }
  void remove(Block b) override {
    const std::size_t i = second_.count(b);
    t_[i].remove(b);
    second_.erase(b);
    b_[i].push_front(b);
    trim(in_.size() - 1);
  }
  void trim(std::size_t resident) {
    const std::size_t t1 = resident - second_.size();
    while (!b_[0].empty() && t1 + b_[0].size() > capacity_) b_[0].pop_back();
    while (!b_[1].empty() && resident + b_[0].size() + b_[1].size() > 2 * capacity_) b_[1].pop_back();
  }
  Queue t_[2], b_[2];
  std::set<Block> second_;  // resident blocks of T2
  double p_ = 0;
};

class S3FifoModel final : public QueueModel {
 public:
  using QueueModel::QueueModel;

 private:
  Queue& queue_of(Block b) override { return main_.count(b) ? queues_[1] : queues_[0]; }
  void insert(Block b) override {
    uses_[b] = 0;
    main_.erase(b);
    if (std::count(ghosts_.begin(), ghosts_.end(), b)) main_.insert(b);
    ghosts_.remove(b);
    seen_.erase(b);
  }
  void use(Block b) override { uses_[b] = std::min(3, uses_[b] + 1); }
  void release(Block b) override {
    if (seen_.insert(b).second) queue_of(b).push_front(b);
  }
  Block victim() override {
    for (;;) {
      const std::size_t in_main = main_.size(), in_small = in_.size() - in_main;
      std::size_t from = in_small >= std::max<std::size_t>(1, capacity_ / 10) || in_main == 0 ? 0 : 1;
      if (queues_[from].empty()) from = 1 - from;
      const Block b = queues_[from].back();
      queues_[from].pop_back();
      if (uses_[b] == 0) {
        if (evictable(b)) return b;
        continue;
      }
      uses_[b] = from == 0 ? 0 : uses_[b] - 1;
      main_.insert(b);
      queues_[1].push_front(b);
    }
  }
  void remove(Block b) override {
    if (!main_.count(b)) ghosts_.push_front(b);
    if (ghosts_.size() > capacity_) ghosts_.pop_back();
    main_.erase(b);
  }
  Queue queues_[2], ghosts_;
  std::set<Block> main_, seen_;
  std::map<Block, int> uses_;
};

class SieveModel final : public Model {
 public:
  using Model::Model;

 private:
  // The queue as an array, the oldest first; the hand is the index of what it looks at next.
  void insert(Block b) override { used_[b] = seen_[b] = false; }
  void use(Block b) override { used_[b] = true; }
  void release(Block b) override {
    if (seen_[b]) return;
    seen_[b] = true;
    if (hand_ >= queue_.size()) hand_ = 0;  // behind the newest: it starts again at the oldest
    queue_.push_back(b);
  }
  void freed(Block b) override {
    if (std::count(queue_.begin(), queue_.end(), b)) return;
    if (hand_ >= queue_.size()) hand_ = 0;
    queue_.insert(queue_.begin() + static_cast<std::ptrdiff_t>(hand_), b);
  }
  Block victim() override {
    for (;;) {
      if (hand_ >= queue_.size()) hand_ = 0;
      const Block b = queue_[hand_];
      if (used_[b]) {
        used_[b] = false;
        ++hand_;
      } else if (evictable(b)) {
        return b;
      } else {
        queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(hand_));
      }
      if (hand_ >= queue_.size()) hand_ = 0;
    }
  }
  void remove(Block b) override { queue_.erase(std::find(queue_.begin(), queue_.end(), b)); }
  std::vector<Block> queue_;
  std::map<Block, bool> used_, seen_;
  std::size_t hand_ = 0;
};

template <class M>
std::unique_ptr<Model> model(std::size_t capacity) {
  return std::make_unique<M>(capacity);
}

struct Pair {
  const char* name;
  std::unique_ptr<Model> (*make)(std::size_t);
};
const Pair kPairs[] = {{"lru", model<LruModel>},     {"lru2", model<Lru2Model>},
                       {"arc", model<ArcModel>},     {"s3fifo", model<S3FifoModel>},
                       {"sieve", model<SieveModel>}, {"ewma", model<EwmaModel>}};

std::vector<Block> blocks_of(const Trace& trace, std::size_t request) {
  std::vector<Block> blocks;
  for (const std::uint32_t b : trace.request(request)) blocks.push_back(Block{b} + 1);
  return blocks;
}

// Short chains that share beginnings, with popular ones among them.
Trace random_trace(std::uint64_t seed, std::size_t requests, std::size_t width, std::size_t depth) {
  Maker maker(seed);
  for (std::size_t r = 0; r < requests; ++r) {
    Ids ids;
    const std::size_t length = 1 + maker.random.below(depth);
    for (std::size_t i = 0; i < length; ++i)
      ids.push_back(std::min(maker.random.below(width), maker.random.below(width)));
    maker.add(ids);
  }
  return maker.finish();
}

Directory directory(std::string_view name, std::size_t pages) {
  auto policy = make_policy(name, pages);
  REQUIRE(policy.ok());
  return Directory(std::move(*policy));
}

}  // namespace

TEST_CASE("policies: each evicts what a straightforward model of it evicts") {
  for (const Pair& pair : kPairs)
    for (std::uint64_t seed = 1; seed <= 6; ++seed)
      for (const std::size_t capacity : {1, 3, 10, 27}) {
        CAPTURE(pair.name, seed, capacity);
        const Trace trace = random_trace(seed, 600, 2 + seed, 1 + seed);
        Directory ours = directory(pair.name, capacity);
        const auto theirs = pair.make(capacity);
        for (std::size_t r = 0; r < trace.requests(); ++r) {
          const auto blocks = blocks_of(trace, r);
          std::size_t hits = 0;
          ours.begin();
          for (std::size_t i = 0; i < blocks.size(); ++i)
            hits += ours.touch(blocks[i], i ? blocks[i - 1] : kNoBlock);
          ours.end();
          CAPTURE(r);
          REQUIRE(hits == theirs->access(blocks));
          REQUIRE(ours.resident() == theirs->resident().size());
          for (const auto& [block, parent] : theirs->resident()) REQUIRE(ours.holds(block));
        }
      }
}

TEST_CASE("policies: what is resident is whole prefixes, pins hold, and the same calls give the same pages") {
  for (const PolicyInfo& info : policies()) {
    CAPTURE(info.name);
    const std::size_t pages = 40;
    auto first = make_policy(info.name, pages), second = make_policy(info.name, pages);
    REQUIRE(first.ok());
    REQUIRE(second.ok());
    Random random(11);
    std::map<Page, std::pair<BlockKey, Page>> in;  // page -> key, parent
    std::map<Page, int> pins;
    std::vector<Page> held;
    BlockKey next_key = 1;
    std::vector<BlockKey> gone;
    for (int step = 0; step < 20000; ++step) {
      if (step % 5 == 0) first->request(), second->request();
      const double what = random.unit();
      if (what < 0.45) {  // a new block, or one that went, on a page that is pinned, or as a root
        Page parent = kNoPage;
        if (!held.empty() && random.unit() < 0.7) parent = held[random.below(held.size())];
        Page page = 0;
        while (page < pages && in.count(page)) ++page;
        if (page == pages) {
          BlockKey key = 0;
          page = first->evict([&](BlockKey k) { key = k; });
          REQUIRE(second->evict() == page);
          const bool can = std::any_of(in.begin(), in.end(), [&](const auto& x) {
            return !pins[x.first] && std::none_of(in.begin(), in.end(),
                                                  [&](const auto& y) { return y.second.second == x.first; });
          });
          REQUIRE((page != kNoPage) == can);
          if (page == kNoPage) continue;
          REQUIRE(in.at(page).first == key);
          REQUIRE(pins[page] == 0);
          for (const auto& [other, about] : in) REQUIRE(about.second != page);
          gone.push_back(key);
          in.erase(page);
        }
        BlockKey key = next_key;
        if (!gone.empty() && random.unit() < 0.3) {
          const std::size_t i = random.below(gone.size());
          key = gone[i];
          gone.erase(gone.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          ++next_key;
        }
        first->insert(page, key, parent), second->insert(page, key, parent);
        in[page] = {key, parent};
        ++pins[page];
        held.push_back(page);
      } else if (what < 0.6 && !in.empty()) {  // a hit, with all that stand above
        auto at = in.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(random.below(in.size())));
        for (Page p = at->first; p != kNoPage; p = in.at(p).second) {
          first->hit(p), second->hit(p);
          ++pins[p];
          held.push_back(p);
        }
      } else if (what < 0.97 && !held.empty()) {
        const std::size_t i = random.below(held.size());
        first->release(held[i]), second->release(held[i]);
        --pins[held[i]];
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
      } else if (!in.empty()) {  // content that became invalid
        auto at = in.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(random.below(in.size())));
        if (!first->tree().evictable(at->first)) continue;
        first->remove(at->first), second->remove(at->first);
        gone.push_back(at->second.first);
        in.erase(at);
      }
    }
  }
}

TEST_CASE("policies: names and sizes that don't exist are refused") {
  CHECK(make_policy("mru", 10).status().text().find("'mru'") != std::string::npos);
  CHECK(make_policy("lru", 0).status().code() == Errc::invalid_argument);
  CHECK(make_policy("lru", (std::size_t{1} << 31) + 1).status().code() == Errc::invalid_argument);
  REQUIRE(policies().size() >= 8);
  CHECK(policies().front().name == "default");
}
