// qf kv-sim: what a prefix cache would hit on a trace of requests, by policy and size.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "qf/cache/policies.hpp"
#include "qf/cache/simulate.hpp"
#include "qf/io/file_writer.hpp"
#include "src/cli/cli.hpp"
#include "src/cli/kv_chart.hpp"

namespace qf::cli {
namespace {

struct Options {
  std::string trace, chart;
  std::vector<std::string> policies{"lru", "lru2", "arc", "s3fifo", "sieve", "default", "belady"};
  std::vector<double> capacities{0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4};
  std::int64_t block_tokens = 512;
  bool as_json = false;
};

std::size_t pages_of(const cache::Trace& trace, double capacity) {
  return std::max<std::size_t>(1, static_cast<std::size_t>(capacity * static_cast<double>(trace.unique())));
}

std::string percent(double share) {
  return fmt::format("{:.4g} %", 100 * share);
}

// All runs, [policy][capacity], the last policy Belady's: what is attainable.
Result<std::vector<KvRun>> simulate_all(Session& session, const Options& o, const cache::Trace& trace) {
  std::vector<std::string> names = o.policies;
  names.emplace_back("belady");
  const std::size_t sizes = o.capacities.size();
  std::vector<KvRun> runs(names.size() * sizes);
  std::vector<Status> trouble(runs.size());
  const ParallelFor parallel = session.parallel();
  parallel_for(parallel, static_cast<std::int64_t>(runs.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    KvRun& run = runs[at];
    run.policy = names[at / sizes];
    run.capacity = o.capacities[at % sizes];
    run.pages = pages_of(trace, run.capacity);
    if (interrupted()) {
      trouble[at] = Status(Errc::cancelled, "interrupted");
      return;
    }
    const auto result = cache::simulate(trace, run.policy, run.pages);
    trouble[at] = result.status();
    if (!result.ok()) return;
    run.hit_ratio = result->hit_ratio();
    run.ns_per_access =
        1e9 * result->seconds / static_cast<double>(std::max<std::uint64_t>(1, result->accesses));
  });
  for (const Status& status : trouble) QF_TRY(status);
  for (std::size_t at = 0; at < runs.size(); ++at) {
    const double most = runs[(names.size() - 1) * sizes + at % sizes].hit_ratio;
    runs[at].attainable = most > 0 ? runs[at].hit_ratio / most : 1;
  }
  runs.resize(o.policies.size() * sizes);
  return runs;
}

OrderedJson to_json(const Options& o, const cache::Trace& trace, const std::vector<KvRun>& runs) {
  OrderedJson results = OrderedJson::array();
  for (const KvRun& run : runs)
    results.push_back({{"policy", run.policy},
                       {"capacity", run.capacity},
                       {"pages", run.pages},
                       {"hit_ratio", run.hit_ratio},
                       {"share_of_attainable", run.attainable},
                       {"ns_per_access", run.ns_per_access}});
  return {{"trace", o.trace},
          {"format", trace.format},
          {"requests", trace.requests()},
          {"blocks", trace.blocks.size()},
          {"unique_blocks", trace.unique()},
          {"results", std::move(results)}};
}

std::string to_text(const Options& o, const cache::Trace& trace, const std::vector<KvRun>& runs) {
  const std::size_t sizes = o.capacities.size();
  std::string text = fmt::format("{}: {} requests, {} blocks, {} of them different ({})\n\n", o.trace,
                                 trace.requests(), trace.blocks.size(), trace.unique(), trace.format);
  std::vector<std::vector<std::string>> rows{{"HIT RATIO AT"}, {"pages"}};
  std::vector<std::size_t> right;
  for (std::size_t c = 0; c < sizes; ++c) {
    rows[0].push_back(percent(o.capacities[c]));
    rows[1].push_back(num(pages_of(trace, o.capacities[c])));
    right.push_back(c + 1);
  }
  rows[0].insert(rows[0].end(), {"MEAN", "OF ATTAINABLE", "NS/ACCESS"});
  right.insert(right.end(), {sizes + 1, sizes + 2, sizes + 3});
  for (std::size_t p = 0; p < o.policies.size(); ++p) {
    std::vector<std::string> row{o.policies[p]};
    double ratio = 0, attainable = 0, ns = 0;
    for (std::size_t c = 0; c < sizes; ++c) {
      const KvRun& run = runs[p * sizes + c];
      row.push_back(fmt::format("{:.4f}", run.hit_ratio));
      ratio += run.hit_ratio, attainable += run.attainable;
      ns = std::max(ns, run.ns_per_access);
    }
    const auto n = static_cast<double>(sizes);
    row.insert(row.end(), {fmt::format("{:.4f}", ratio / n), fmt::format("{:.1f} %", 100 * attainable / n),
                           fmt::format("{:.0f}", ns)});
    rows.push_back(std::move(row));
  }
  return text + table(rows, right);
}

Status check(const Options& o) {
  const auto known = cache::policies();
  for (const std::string& name : o.policies)
    if (name != "belady" &&
        std::none_of(known.begin(), known.end(), [&](const auto& info) { return info.name == name; })) {
      std::string names;
      for (const auto& info : known) names += std::string(info.name) + ", ";
      return Status(Errc::invalid_argument,
                    cat({"--policy: no policy ", printable(name), "; there are ", names, "belady"}));
    }
  for (const double capacity : o.capacities)
    if (!(capacity > 0 && capacity <= 1))
      return Status(
          Errc::invalid_argument,
          fmt::format("--capacity: {} found, a share of the unique blocks above 0, at most 1, expected",
                      capacity));
  return {};
}

Result<Verdict> simulate(Session& session, const Options& o) {
  QF_TRY(check(o));
  QF_TRY_ASSIGN(const cache::Trace trace, cache::read_trace(o.trace, o.block_tokens));
  if (trace.blocks.size() == trace.unique())
    session.note("no block of this trace is used twice" +
                 std::string(trace.format == "azure" ? ": Azure's traces say how long prompts were, not what "
                                                       "stood in them"
                                                     : "") +
                 ", so no policy can hit anything");
  QF_TRY_ASSIGN(const auto runs, simulate_all(session, o, trace));
  if (!o.chart.empty()) QF_TRY(io::write_file(o.chart, kv_chart(o.trace, o.policies, o.capacities, runs)));
  QF_TRY(session.print(o.as_json ? json_text(to_json(o, trace, runs)) : to_text(o, trace, runs)));
  return Verdict::good;
}

}  // namespace

void add_kv_sim(Program& program) {
  auto o = std::make_shared<Options>();
  CLI::App* command =
      program.add("kv-sim", "Replay a trace of requests through a prefix cache: hits by policy and size",
                  {"qf kv-sim trace.jsonl",
                   "qf kv-sim trace.jsonl --policy lru,default,belady --capacity 0.05,0.1 --json",
                   "qf kv-sim trace.jsonl --svg hits.svg"},
                  [o](Session& session) { return simulate(session, *o); });
  command
      ->add_option("trace", o->trace,
                   "JSON lines with hash_ids (Mooncake), Azure's CSV, or block ids of a request a line")
      ->required()
      ->type_name("FILE");
  std::string names;
  for (const auto& info : cache::policies()) names += std::string(info.name) + ", ";
  command->add_option("--policy", o->policies, "Policies, with commas between: " + names + "belady")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("NAMES");
  command
      ->add_option("--capacity", o->capacities,
                   "Sizes of the cache, as shares of the trace's different blocks")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("SHARES");
  command->add_option("--block-tokens", o->block_tokens, "Tokens a block, for traces that tell only lengths")
      ->capture_default_str()
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  command->add_option("--svg", o->chart, "Also write a chart of hit ratio over size")->type_name("FILE");
  command->add_flag("--json", o->as_json, "One JSON object on stdout");
}

}  // namespace qf::cli
