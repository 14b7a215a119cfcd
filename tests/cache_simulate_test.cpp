#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "qf/cache/policies.hpp"
#include "qf/cache/policy_hazard.hpp"
#include "qf/cache/simulate.hpp"
#include "tests/cache_traces.hpp"

using namespace qf;
using namespace qf::cache;
using namespace qf::cache::test;

namespace {

const char* const kClassic[] = {"lru", "lru2", "arc", "s3fifo", "sieve"};

double ratio(const Trace& trace, std::string_view policy, std::size_t pages) {
  const auto result = simulate(trace, policy, pages);
  INFO(result.status().text());
  REQUIRE(result.ok());
  CHECK(result->accesses == trace.blocks.size());
  return result->hit_ratio();
}

std::size_t pages_of(const Trace& trace, double share) {
  return std::max<std::size_t>(1, static_cast<std::size_t>(share * static_cast<double>(trace.unique())));
}

// Never 2 % below the best classic policy, above all of them on average, never above Belady.
void judge(const Trace& trace, std::initializer_list<double> shares, double slack = 0.98) {
  double mean = 0, best_mean = 0, means[std::size(kClassic)] = {};
  for (const double share : shares) {
    const std::size_t pages = pages_of(trace, share);
    double best = 0;
    for (std::size_t i = 0; i < std::size(kClassic); ++i) {
      const double hits = ratio(trace, kClassic[i], pages);
      best = std::max(best, hits);
      means[i] += hits;
    }
    const double ours = ratio(trace, "default", pages);
    CAPTURE(share, pages, ours, best);
    CHECK(ours >= slack * best);
    CHECK(ours <= ratio(trace, "belady", pages) + 1e-12);
    mean += ours;
  }
  for (const double m : means) best_mean = std::max(best_mean, m);
  CAPTURE(mean, best_mean);
  CHECK(mean >= slack * best_mean);
}

}  // namespace

TEST_CASE("simulate: hits are leading blocks, counted by hand") {
  // A cache of 3: 1 2 3 comes in; 1 2 hits; 4 evicts the leaf 3; 1 2 3 hits twice and evicts 4, the only leaf.
  const auto trace = parse_trace("1 2 3\n1 2\n4\n1 2 3\n", "t");
  REQUIRE(trace.ok());
  const auto result = simulate(*trace, "lru", 3);
  REQUIRE(result.ok());
  CHECK(result->accesses == 9);
  CHECK(result->hits == 4);
}

TEST_CASE("simulate: requests that don't fit keep their beginning") {
  const auto trace = parse_trace("1 2 3 4 5\n1 2 3 4 5\n6 7 8\n", "t");
  REQUIRE(trace.ok());
  for (const PolicyInfo& info : policies()) {
    CAPTURE(info.name);
    CHECK(simulate(*trace, info.name, 2)->hits == 2);
    CHECK(simulate(*trace, info.name, 100)->hits == 5);
  }
}

TEST_CASE("simulate: no policy is above Belady, and all are equal when everything fits") {
  const Trace traces[] = {zipf_trace(300, 5000, 0.8),    loop_trace(20, 5, 600), scan_trace(100, 1000, 0.9),
                          chat_trace({.requests = 800}), agent_trace(800, 20),   batch_trace(600)};
  for (const Trace& trace : traces)
    for (const std::size_t pages :
         {std::size_t{64}, trace.unique() / 20, trace.unique() / 4, trace.unique()}) {
      const std::size_t size = std::max<std::size_t>(pages, 210);  // longer than any request
      const double most = ratio(trace, "belady", size);
      for (const PolicyInfo& info : policies()) {
        CAPTURE(info.name, size, trace.unique());
        const double hits = ratio(trace, info.name, size);
        CHECK(hits <= most + 1e-12);
        if (size >= trace.unique()) CHECK(hits == most);
      }
    }
}

TEST_CASE("simulate: the same trace gives the same hits") {
  const Trace trace = chat_trace({.requests = 1500});
  for (const PolicyInfo& info : policies()) {
    CAPTURE(info.name);
    CHECK(simulate(trace, info.name, 300)->hits == simulate(trace, info.name, 300)->hits);
  }
}

TEST_CASE("simulate: what can't be simulated is refused") {
  const Trace trace = zipf_trace(10, 10, 1);
  CHECK(simulate(trace, "nonsense", 3).status().code() == Errc::invalid_argument);
  CHECK(simulate(trace, "belady", 0).status().code() == Errc::invalid_argument);
}
