// qf-bench: checks kernels against an f64 oracle, then times them with cold weights, in rounds in which every
// kernel and the machine's limits take turns.
//
// A time is the median over the rounds of the mean of as many calls as take 10 ms. A share of a limit is the
// median over the rounds of the share in that round: what slows the machine for a while slows both. One thread
// is timed by the processor's clock, several by the wall's (timing.hpp).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <iostream>

#include "benchmarks/ops.hpp"
#include "benchmarks/timing.hpp"
#include "benchmarks/weights.hpp"

namespace qf::bench {
namespace {

using kernel::Kernel;
using nlohmann::json;

struct Options {
  std::string op = "matmul", compare, accuracy = "fast";
  Request request;
  std::vector<int> threads{1};
  int rounds = 15;
  double seconds = 3, tolerance = 0.1;
  bool as_json = false, list = false, limits = false, serve = false;
};

struct Rounds {
  std::vector<double> seconds, read_gb_s, peak_gop_s;  // one of each a round
};

// read_share: the best read of all to the best from such pages as the weights lie in.
json to_json(const Case& c, const Rounds& r, int threads, double read_share) {
  const double seconds = median(r.seconds);
  std::vector<double> of_memory, of_multiply;
  for (std::size_t i = 0; i < r.seconds.size(); ++i) {
    of_memory.push_back(c.bytes / r.seconds[i] * 1e-9 / r.read_gb_s[i]);
    if (c.peak) of_multiply.push_back(c.operations / r.seconds[i] * 1e-9 / r.peak_gop_s[i]);
  }
  const double memory = median(of_memory), multiply = median(of_multiply);
  // The limit is the one that needs more time at best.
  const bool by_memory = c.cold && memory >= multiply;
  json j = c.about;
  j.update({{"kernel", c.kernel},
            {"threads", threads},
            {"microseconds", seconds * 1e6},
            {"microseconds_best", quantile(r.seconds, 0) * 1e6},
            {"spread", spread(r.seconds)},
            {"gb_s", c.bytes / seconds * 1e-9},
            {"gop_s", c.operations / seconds * 1e-9},
            {"limit", by_memory ? "memory"
                      : c.peak  ? "multiply"
                                : "none"},
            {"share_of_limit", by_memory ? memory : multiply},
            {"share_of_memory", memory},
            {"share_of_read_from_such_pages", memory * read_share},
            {"limit_gb_s", median(r.read_gb_s)},
            {"relative_rms", c.relative_rms},
            {"cold", c.cold},
            {"rounds", r.seconds.size()}});
  if (c.peak) {
    j["share_of_multiply"] = multiply;
    j["limit_gop_s"] = median(r.peak_gop_s);
    j["peak"] = c.peak->name;
  }
  return j;
}

std::string problem_name(const json& j) {
  if (!j.contains("m")) return j.value("problem", "");
  return fmt::format("{} {}x{}x{}", j.value("weights", ""), j["m"].get<std::int64_t>(),
                     j["n"].get<std::int64_t>(), j["k"].get<std::int64_t>());
}

void print_row(const json& j) {
  const bool memory = j["limit"] == "memory";
  fmt::print(
      "{:26} {:24} {:2}t {:9.1f} us +-{:3.0f} % {:7.2f} GB/s {:8.1f} GOP/s  {:3.0f} % of {:.1f} {}  rms "
      "{:.1e}\n",
      j["kernel"].get<std::string>(), problem_name(j), j["threads"].get<int>(),
      j["microseconds"].get<double>(), 50 * j["spread"].get<double>(), j["gb_s"].get<double>(),
      j["gop_s"].get<double>(), 100 * j["share_of_limit"].get<double>(),
      j.value(memory ? "limit_gb_s" : "limit_gop_s", 0.0), memory ? "GB/s" : "GOP/s",
      j["relative_rms"].get<double>());
  std::fflush(stdout);
}

// 1 after a message if a case is wrong.
int check(const std::vector<Case>& cases) {
  for (const Case& c : cases)
    if (!(c.relative_rms <= c.relative_rms_allowed)) {
      fmt::print(stderr, "qf-bench: {} is wrong: relative RMS {:.2e}, at most {:.0e} is right\n", c.kernel,
                 c.relative_rms, c.relative_rms_allowed);
      return 1;
    }
  return 0;
}

int measure(const Options& o, std::vector<Case>& cases, Limits& limits, json& results) {
  if (const int code = check(cases)) return code;
  std::vector<Rounds> all(cases.size());
  std::vector<double> spent(cases.size(), 0.0);
  for (int round = 0; round < o.rounds; ++round)
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if (spent[i] > o.seconds) continue;
      const double start = clock_seconds(CLOCK_MONOTONIC);
      if (cases[i].peak) all[i].peak_gop_s.push_back(limits.peak_gop_s(*cases[i].peak));
      all[i].read_gb_s.push_back(limits.read_gb_s());
      if (!cases[i].cold) cases[i].run();
      int calls = 0;
      double passed = 0;
      const Stopwatch watch(limits.threads());
      do {
        cases[i].run();
        ++calls;
        passed = watch.seconds();
      } while (passed < 0.01);
      all[i].seconds.push_back(passed / calls);
      // A read that something else slowed down would flatter the kernel: the better one of before and after.
      all[i].read_gb_s.back() = std::max(all[i].read_gb_s.back(), limits.read_gb_s());
      spent[i] += clock_seconds(CLOCK_MONOTONIC) - start;
    }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    results.push_back(to_json(cases[i], all[i], limits.threads(),
                              limits.best_read().gb_s / limits.best_read(!o.request.small_pages).gb_s));
    if (!o.as_json) print_row(results.back());
  }
  return 0;
}

// For programs that let several of their kind take turns: one JSON line that describes the case, then for each
// line on stdin one round of it, that is once through all copies, and a JSON line with the seconds of a call.
int serve(const std::vector<Case>& cases) {
  if (const int code = check(cases)) return code;
  const Case& c = cases.front();
  json about = c.about;
  about.update(
      {{"kernel", c.kernel}, {"relative_rms", c.relative_rms}, {"copies", c.copies}, {"bytes", c.bytes}});
  std::cout << about.dump() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const double wall = clock_seconds(CLOCK_MONOTONIC), cpu = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < c.copies; ++i) c.run();
    std::cout << json{{"seconds", (clock_seconds(CLOCK_MONOTONIC) - wall) / c.copies},
                      {"cpu_seconds", (clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) / c.copies}}
                     .dump()
              << std::endl;
  }
  return 0;
}

json limits_json(Limits& limits) {
  json reads = json::array(), peaks = json::array();
  for (const Limits::Read& read : limits.reads())
    reads.push_back({{"name", read.name}, {"gb_s", read.gb_s}, {"wall_gb_s", read.wall_gb_s}});
  for (const PeakLoop& loop : peak_loops()) {
    if (loop.isa & ~kernel::cpu_isa()) continue;
    std::vector<double> values;
    for (int round = 0; round < 7; ++round) values.push_back(limits.peak_gop_s(loop));
    peaks.push_back({{"name", loop.name}, {"gop_s", median(values)}});
  }
  return {
      {"threads", limits.threads()}, {"read", limits.best_read().name}, {"reads", reads}, {"peaks", peaks}};
}

int print_limits(Limits& limits, bool as_json) {
  const json j = limits_json(limits);
  if (as_json) return fmt::print("{}\n", j.dump()), 0;
  fmt::print("{} threads; medians of 7 rounds\n", limits.threads());
  for (const json& read : j["reads"])
    fmt::print("read, 4 streams, {:44} {:6.1f} GB/s, by the wall {:6.1f}\n", read["name"].get<std::string>(),
               read["gb_s"].get<double>(), read["wall_gb_s"].get<double>());
  for (const json& peak : j["peaks"])
    fmt::print("{:26} {:7.1f} GOP/s\n", peak["name"].get<std::string>(), peak["gop_s"].get<double>());
  return 0;
}

int list_kernels(bool as_json) {
  json all = json::array();
  for (const Kernel* k : kernel::kernels()) {
    const bool runs = (k->isa & ~kernel::cpu_isa()) == 0;
    if (as_json)
      all.push_back({{"kernel", k->name}, {"isa", kernel::isa_name(k->isa)}, {"runs_here", runs}});
    else
      fmt::print("{:28} {:18} {}\n", k->name, kernel::isa_name(k->isa), runs ? "" : "not on this CPU");
  }
  if (as_json) fmt::print("{}\n", json{{"kernels", all}}.dump());
  return 0;
}

// How much faster `now` is than `before`, a row a kernel and problem that both have. Shares of the limit are
// compared, so that a machine that is slower today doesn't look like a slower kernel. 1 if any is slower than
// 1 - tolerance.
int compare(const json& now, const std::string& path, double tolerance, bool as_json, json& rows) {
  std::ifstream file(path);
  const json before = json::parse(file, nullptr, false);
  if (!before.is_object() || !before.contains("results")) {
    fmt::print(stderr, "qf-bench: {}: not what --json prints\n", path);
    return 2;
  }
  int code = 0;
  for (const json& n : now)
    for (const json& b : before["results"]) {
      if (b.value("kernel", "") != n["kernel"] || problem_name(b) != problem_name(n) ||
          b.value("threads", 1) != n["threads"] || b.value("limit", "") != n["limit"])
        continue;
      const double ratio = n["share_of_limit"].get<double>() / b["share_of_limit"].get<double>();
      const double of_times = b["microseconds"].get<double>() / n["microseconds"].get<double>();
      const bool slower = !(ratio >= 1 - tolerance);
      if (slower) code = 1;
      rows.push_back({{"kernel", n["kernel"]},
                      {"problem", problem_name(n)},
                      {"threads", n["threads"]},
                      {"ratio", ratio},
                      {"ratio_of_times", of_times},
                      {"slower", slower}});
      if (!as_json)
        fmt::print("{:26} {:24} {:2}t {:5.2f}x of the share before, {:5.2f}x the speed{}\n",
                   n["kernel"].get<std::string>(), problem_name(n), n["threads"].get<int>(), ratio, of_times,
                   slower ? "  SLOWER" : "");
    }
  if (rows.empty()) {
    fmt::print(stderr, "qf-bench: {}: nothing in it is timed here too\n", path);
    return 2;
  }
  return code;
}

int run(Options& o) {
  if (o.list) return list_kernels(o.as_json);
  o.request.accuracy = o.accuracy == "exact"   ? kernel::Accuracy::exact
                       : o.accuracy == "int16" ? kernel::Accuracy::int16
                                               : kernel::Accuracy::fast;
  const auto* op =
      std::find_if(std::begin(kOps), std::end(kOps), [&](const Op& each) { return each.name == o.op; });
  json results = json::array(), limits_of = json::array();
  for (const int threads : o.threads) {
    ThreadPool pool(threads);
    o.request.threads = threads;
    o.request.parallel = pool.parallel_for();
    if (o.serve) {
      o.request.chosen_only = o.request.kernel.empty();
      return op->cases(o.request, serve);
    }
    Limits limits(threads, pool.parallel_for());
    if (o.limits) {
      print_limits(limits, o.as_json);
      continue;
    }
    limits_of.push_back(limits_json(limits));
    if (const int code = op->cases(
            o.request, [&](std::vector<Case>& cases) { return measure(o, cases, limits, results); }))
      return code;
  }
  if (o.limits) return 0;
  json all{{"isa", kernel::isa_name(kernel::cpu_isa())}, {"limits", limits_of}, {"results", results}};
  int code = 0;
  if (!o.compare.empty()) {
    json rows = json::array();
    code = compare(results, o.compare, o.tolerance, o.as_json, rows);
    all["compared"] = rows;
  }
  if (o.as_json) fmt::print("{}\n", all.dump());
  return code;
}

}  // namespace
}  // namespace qf::bench

int main(int argc, char** argv) {
  qf::bench::Options o;
  std::set<std::string> ops;
  for (const auto& op : qf::bench::kOps) ops.insert(op.name);
  CLI::App app{"Times the kernels of qf. Each is checked against f64 first; a wrong one isn't timed."};
  app.add_option("--op", o.op, "what to time")->check(CLI::IsMember(ops));
  app.add_option("--weights", o.request.weights, qf::bench::kWeightNames)->delimiter(',');
  app.add_option("--shape", o.request.shapes, "MxNxK: rows of x, outputs, inputs")->delimiter(',');
  app.add_flag("--models", o.request.models, "shapes of real models, M = 1 and 32");
  app.add_flag("--warm", o.request.warm, "weights stay in the cache; shares are of the multiply peak then");
  app.add_flag("--small-pages", o.request.small_pages,
               "weights lie in pages of 4 KiB, not where the library puts them");
  app.add_option("--threads", o.threads, "threads; several numbers, several tables")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  app.add_option("--kernel", o.request.kernel, "time this kernel only");
  app.add_option("--accuracy", o.accuracy, "whose choice of kernel stands first")
      ->check(CLI::IsMember({"exact", "int16", "fast"}));
  app.add_option("--rounds", o.rounds, "rounds at most")->check(CLI::Range(1, 1000));
  app.add_option("--seconds", o.seconds, "per kernel and shape at most")->check(CLI::Range(0.01, 3600.0));
  app.add_option("--compare", o.compare, "what --json printed before: show how much faster each kernel is");
  app.add_option("--tolerance", o.tolerance, "--compare fails if a kernel is slower by more than this share")
      ->check(CLI::Range(0.0, 1.0));
  app.add_flag("--limits", o.limits, "only measure what the machine can do");
  app.add_flag("--serve", o.serve, "one round of the first problem for each line on stdin");
  app.add_flag("--json", o.as_json, "print JSON");
  app.add_flag("--list", o.list, "list the kernels");
  app.set_version_flag("--version", QF_VERSION_STRING);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  try {
    return qf::bench::run(o);
  } catch (const std::exception& error) {
    fmt::print(stderr, "qf-bench: {}\n", error.what());
    return 1;
  }
}
