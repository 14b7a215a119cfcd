// Traces made up for tests and benchmarks: what prefix caches meet, and what has broken eviction rules. The same bytes everywhere.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "qf/cache/trace.hpp"

namespace qf::cache::test {

using Ids = std::vector<std::uint64_t>;

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  double unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  std::uint64_t below(std::uint64_t n) { return static_cast<std::uint64_t>(unit() * static_cast<double>(n)); }
  double exponential(double mean) { return -mean * std::log(1 - unit()); }
  // At least 1.
  std::uint64_t geometric(double mean) {
    return mean <= 1 ? 1 : 1 + static_cast<std::uint64_t>(std::log(1 - unit()) / std::log(1 - 1 / mean));
  }

 private:
  std::mt19937_64 engine_;
};

// Ranks 0 ... n - 1 with probabilities as 1 / (rank + 1)^alpha.
class Zipf {
 public:
  Zipf(std::size_t n, double alpha) : sum_(n) {
    double total = 0;
    for (std::size_t i = 0; i < n; ++i) sum_[i] = total += std::pow(static_cast<double>(i + 1), -alpha);
  }
  std::size_t operator()(Random& random) const {
    const double x = random.unit() * sum_.back();
    return std::min<std::size_t>(
        sum_.size() - 1,
        static_cast<std::size_t>(std::upper_bound(sum_.begin(), sum_.end(), x) - sum_.begin()));
  }

 private:
  std::vector<double> sum_;
};

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random(seed) {}
  void add(const Ids& ids) {
    if (!builder_.add(ids).ok()) std::abort();
  }
  void extend(Ids& ids, std::uint64_t blocks) {
    while (blocks--) ids.push_back(fresh_++);
  }
  Ids chain(std::uint64_t blocks) {
    Ids ids;
    extend(ids, blocks);
    return ids;
  }
  Trace finish() { return builder_.finish("made"); }
  Random random;

 private:
  TraceBuilder builder_;
  std::uint64_t fresh_ = 1;
};

// Single blocks of fixed popularity.
inline Trace zipf_trace(std::size_t blocks, std::size_t requests, double alpha, std::uint64_t seed = 1) {
  Maker maker(seed);
  const Zipf zipf(blocks, alpha);
  for (std::size_t r = 0; r < requests; ++r) maker.add({zipf(maker.random)});
  return maker.finish();
}

// The same documents over and over in one order, too many for the cache: recency is the worst guide. Now and then another.
inline Trace loop_trace(std::size_t documents, std::size_t blocks, std::size_t requests, double others = 0.05,
                        std::uint64_t seed = 2) {
  Maker maker(seed);
  std::vector<Ids> all;
  for (std::size_t d = 0; d < documents; ++d) all.push_back(maker.chain(blocks));
  for (std::size_t r = 0, next = 0; r < requests; ++r)
    maker.add(maker.random.unit() < others ? maker.chain(blocks) : all[next++ % documents]);
  return maker.finish();
}

// Popular documents, and now and then a burst of long prompts that never come back.
inline Trace scan_trace(std::size_t documents, std::size_t requests, double alpha, std::uint64_t seed = 3) {
  Maker maker(seed);
  const Zipf zipf(documents, alpha);
  std::vector<Ids> all;
  for (std::size_t d = 0; d < documents; ++d) all.push_back(maker.chain(1 + maker.random.below(8)));
  for (std::size_t r = 0; r < requests; ++r) {
    if (maker.random.unit() < 0.005)
      for (int i = 0; i < 60; ++i) maker.add(maker.chain(20));
    maker.add(all[zipf(maker.random)]);
  }
  return maker.finish();
}

// Popularity that turns over: a prompt, one of many documents, a question of its own.
inline Trace shifting_trace(std::size_t documents, std::size_t requests, std::size_t period,
                            std::uint64_t seed = 4) {
  Maker maker(seed);
  const Zipf zipf(documents, 0.9);
  std::vector<Ids> all;
  const Ids system = maker.chain(3);
  for (std::size_t d = 0; d < documents; ++d) {
    Ids ids = system;
    maker.extend(ids, 2 + maker.random.below(12));
    all.push_back(std::move(ids));
  }
  for (std::size_t r = 0; r < requests; ++r) {
    if (r % period == period - 1)
      for (std::size_t d = 0; d < documents / 2; ++d) std::swap(all[d], all[maker.random.below(documents)]);
    Ids ids = all[zipf(maker.random)];
    maker.extend(ids, 1);
    maker.add(ids);
  }
  return maker.finish();
}

struct Chat {
  std::size_t requests = 10000;
  std::size_t systems = 30;                                      // system prompts, of fixed popularity
  double system_blocks = 10, turn_blocks = 6, first_blocks = 8;  // means
  double turns = 4;                                              // mean
  double pause = 300;                                            // mean time between turns, in requests
  double new_share = 0.3;  // of requests that start a conversation when others could go on
};

// Conversations that grow by a few blocks a turn, many at a time, with shared system prompts.
inline Trace chat_trace(const Chat& chat, std::uint64_t seed = 5) {
  Maker maker(seed);
  const Zipf zipf(chat.systems, 1.1);
  std::vector<Ids> systems;
  for (std::size_t s = 0; s < chat.systems; ++s)
    systems.push_back(maker.chain(maker.random.geometric(chat.system_blocks)));
  struct Session {
    double due;
    std::uint64_t left;
    Ids ids;
    bool operator<(const Session& other) const { return due > other.due; }
  };
  std::vector<Session> sessions;  // a heap, the next due on top
  for (std::size_t r = 0; r < chat.requests; ++r) {
    Session now;
    if (!sessions.empty() && sessions.front().due <= static_cast<double>(r) &&
        maker.random.unit() >= chat.new_share / 4) {
      std::pop_heap(sessions.begin(), sessions.end());
      now = std::move(sessions.back());
      sessions.pop_back();
      maker.extend(now.ids, maker.random.geometric(chat.turn_blocks));
    } else {
      now.ids = systems[zipf(maker.random)];
      maker.extend(now.ids, maker.random.geometric(chat.first_blocks));
      now.left = maker.random.geometric(chat.turns);
    }
    maker.add(now.ids);
    if (now.ids.size() > 200 || --now.left == 0) continue;
    // Most pauses are short, some very long.
    const double pause = maker.random.exponential(chat.pause) * (maker.random.unit() < 0.2 ? 6 : 0.5);
    now.due = static_cast<double>(r) + 1 + pause;
    sessions.push_back(std::move(now));
    std::push_heap(sessions.begin(), sessions.end());
  }
  return maker.finish();
}

// Tools: long instructions of few kinds, each request with a tail of its own, some of which are continued a few times at once.
inline Trace agent_trace(std::size_t requests, std::size_t tools, std::uint64_t seed = 6) {
  Maker maker(seed);
  const Zipf zipf(tools, 0.8);
  std::vector<Ids> all;
  for (std::size_t t = 0; t < tools; ++t) all.push_back(maker.chain(5 + maker.random.below(30)));
  std::vector<Ids> open;
  for (std::size_t r = 0; r < requests; ++r) {
    Ids ids;
    if (!open.empty() && maker.random.unit() < 0.6) {
      const std::size_t i = maker.random.below(open.size());
      ids = open[i];
      open[i] = open.back();
      open.pop_back();
      maker.extend(ids, maker.random.geometric(2));
    } else {
      ids = all[zipf(maker.random)];
      maker.extend(ids, maker.random.geometric(5));
    }
    maker.add(ids);
    if (open.size() < 40 && maker.random.unit() < 0.7) open.push_back(std::move(ids));
  }
  return maker.finish();
}

// Batch jobs one after the other: a prefix of its own for each, a few hundred requests with short tails, several jobs at a time.
inline Trace batch_trace(std::size_t requests, std::uint64_t seed = 7) {
  Maker maker(seed);
  struct Job {
    Ids prefix;
    std::uint64_t left;
  };
  std::vector<Job> jobs;
  for (std::size_t r = 0; r < requests; ++r) {
    while (jobs.size() < 12)
      jobs.push_back({maker.chain(10 + maker.random.below(60)), 20 + maker.random.below(400)});
    const std::size_t i = maker.random.below(jobs.size());
    Ids ids = jobs[i].prefix;
    maker.extend(ids, maker.random.geometric(2));
    maker.add(ids);
    if (--jobs[i].left == 0) jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return maker.finish();
}

// One load after the other, without common blocks: what was learned becomes wrong.
inline Trace in_turn(const std::vector<Trace>& traces) {
  Maker maker(0);
  std::uint64_t offset = 0;
  for (const Trace& trace : traces) {
    for (std::size_t r = 0; r < trace.requests(); ++r) {
      Ids ids;
      for (const std::uint32_t b : trace.request(r)) ids.push_back(offset + b);
      maker.add(ids);
    }
    offset += trace.unique();
  }
  return maker.finish();
}

}  // namespace qf::cache::test
