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
void judge(const Trace& trace, std::initializer_list<double> shares, double slack = 0.98,
           double slack_of_mean = 1) {
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
  if (best_mean > 0) CHECK(mean > slack_of_mean * best_mean);
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

TEST_CASE("default: close to the best classic policy on every kind of load, even short ones") {
  // These are so short that it learns most of the time; the table of longer ones is in docs/kv.md.
  judge(zipf_trace(3000, 30000, 0.7), {0.02, 0.05, 0.1, 0.2, 0.4}, 0.95, 0.99);
  judge(zipf_trace(3000, 30000, 1.1), {0.02, 0.05, 0.1, 0.2, 0.4}, 0.95, 0.99);
  judge(loop_trace(60, 6, 3000), {0.05, 0.1, 0.2, 0.4}, 0.95, 0.99);
  judge(scan_trace(500, 8000, 0.9), {0.01, 0.02, 0.05, 0.1, 0.2}, 0.95, 0.99);
  judge(shifting_trace(300, 6000, 1500), {0.02, 0.05, 0.1, 0.2, 0.4}, 0.95, 0.99);
  judge(chat_trace({.requests = 4000}), {0.02, 0.05, 0.1, 0.2, 0.4}, 0.95, 0.99);
  judge(chat_trace({.requests = 4000, .systems = 200, .pause = 30}), {0.02, 0.05, 0.1, 0.2, 0.4}, 0.95, 0.99);
  judge(agent_trace(4000, 100), {0.02, 0.05, 0.1, 0.2, 0.4}, 0.95, 0.99);
  judge(batch_trace(4000), {0.02, 0.05, 0.1, 0.2, 0.4}, 0.95, 0.99);
}

TEST_CASE("hazard: a loop that doesn't fit is kept in part, which recency can't do") {
  const Trace trace = loop_trace(100, 5, 4000, 0);
  const std::size_t pages = pages_of(trace, 0.5);
  CHECK(ratio(trace, "lru", pages) == 0);
  CHECK(ratio(trace, "hazard", pages) > 0.8 * ratio(trace, "belady", pages));
}

TEST_CASE("adaptive: follows frequency where it pays and recency where that pays") {
  const Trace stable = zipf_trace(3000, 30000, 0.8);
  const std::size_t few = pages_of(stable, 0.05);
  CHECK(ratio(stable, "ewma-adaptive", few) > 1.2 * ratio(stable, "lru", few));
  const Trace chat = chat_trace({.requests = 4000, .systems = 200, .pause = 30});
  const std::size_t some = pages_of(chat, 0.05);
  CHECK(ratio(chat, "ewma-adaptive", some) > 0.97 * ratio(chat, "lru", some));
  CHECK(ratio(chat, "ewma-adaptive", some) > 1.1 * ratio(chat, "lru2", some));
}

TEST_CASE("default: as good as the best classic policy on recorded traces") {
  const char* names = std::getenv("QF_TRACES");
  if (!names || !*names) {
    std::printf("SKIPPED default on recorded traces: QF_TRACES (files, with colons between) isn't set\n");
    return;
  }
  std::string list = names;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(':', at), list.size());
    const auto trace = read_trace(list.substr(at, end - at));
    INFO(trace.status().text());
    REQUIRE(trace.ok());
    judge(*trace, {0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4});
    at = end + 1;
  }
}

TEST_CASE("simulate: what can't be simulated is refused") {
  const Trace trace = zipf_trace(10, 10, 1);
  CHECK(simulate(trace, "nonsense", 3).status().code() == Errc::invalid_argument);
  CHECK(simulate(trace, "belady", 0).status().code() == Errc::invalid_argument);
}

// For docs/kv.md: cache_simulate_test "[table]".
TEST_CASE("the table of made traces", "[.table]") {
  Chat slow, quick;
  slow.pause = 2000, slow.turns = 8, slow.requests = 15000;
  quick.pause = 30, quick.turns = 3, quick.systems = 200, quick.requests = 15000;
  const std::pair<const char*, Trace> traces[] = {
      {"Zipf .7", zipf_trace(30000, 200000, 0.7)},
      {"Zipf 1.2", zipf_trace(50000, 300000, 1.2)},
      {"loop", loop_trace(300, 10, 20000)},
      {"popular and scans", scan_trace(4000, 60000, 0.9)},
      {"shifting documents", shifting_trace(2000, 30000, 4000)},
      {"chat", chat_trace({})},
      {"slow chat", chat_trace(slow)},
      {"quick chat", chat_trace(quick, 9)},
      {"agents, 100 tools", agent_trace(20000, 100)},
      {"agents, 1500 tools", agent_trace(20000, 1500, 8)},
      {"batch jobs", batch_trace(20000)},
      {"five in turn",
       in_turn({loop_trace(300, 10, 6000), chat_trace({.requests = 4000}), scan_trace(1000, 10000, 0.9),
                loop_trace(800, 4, 8000), chat_trace({.requests = 4000, .pause = 60}, 11)})},
  };
  for (const auto& [name, trace] : traces) {
    std::printf("| %s |", name);
    double worst = 2, means[std::size(kClassic) + 2] = {};
    const double shares[] = {0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4};
    for (const double share : shares) {
      const std::size_t pages = pages_of(trace, share);
      double best = 0;
      for (std::size_t i = 0; i < std::size(kClassic); ++i) {
        const double hits = ratio(trace, kClassic[i], pages);
        best = std::max(best, hits);
        means[i] += hits / std::size(shares);
      }
      const double ours = ratio(trace, "default", pages);
      means[5] += ours / std::size(shares);
      means[6] += ratio(trace, "belady", pages) / std::size(shares);
      if (best > 0) worst = std::min(worst, ours / best);
    }
    for (const double mean : means) std::printf(" %.4f |", mean);
    std::printf(" %.3f |\n", worst);
    std::fflush(stdout);
  }
}
