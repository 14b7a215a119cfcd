// qf-bench: checks kernels against an f64 oracle, then times them with cold weights, in rounds in which every
// kernel and the machine's limits take turns; figures are medians over the rounds, shares are of the same round.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "benchmarks/limits.hpp"
#include "benchmarks/shapes.hpp"
#include "qf/kernel/matmul.hpp"

namespace qf::bench {
namespace {

using kernel::Kernel;
using kernel::PackedWeight;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string op = "matmul", forced;
  std::vector<std::string> weights, shapes;
  int threads = 1, rounds = 15;
  double seconds = 3;
  bool json = false, list = false, models = false;
};

struct Problem {
  std::string weights;
  Scheme scheme;
  std::int64_t m, n, k;
};

struct Figures {
  const Kernel* kernel = nullptr;
  Problem problem;
  double rms = 0;
  bool memory_bound = true;
  std::vector<double> seconds, limit;  // one of each a round; the limit in GB/s or GOP/s
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A stopwatch for what is measured. On one thread it counts the time of the processor, so that other programs
// on a busy machine don't count; on several, the time of the wall.
class Stopwatch {
 public:
  explicit Stopwatch(int threads) : one_(threads == 1), start_(now()) {}
  double seconds() const { return now() - start_; }

 private:
  double now() const {
    timespec t{};
    clock_gettime(one_ ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  }
  bool one_;
  double start_;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// "w4g128", "w8", with a: an integer zero a group; s: none (the default).
std::optional<Scheme> parse_weights(const std::string& text) {
  Scheme s;
  s.zero = ZeroKind::symmetric;
  const char *p = text.data(), *end = p + text.size();
  const auto number = [&](auto& value) {
    const auto [next, error] = std::from_chars(p, end, value);
    if (error != std::errc()) return false;
    p = next;
    return true;
  };
  if (p == end || *p++ != 'w' || !number(s.bits)) return std::nullopt;
  if (p != end && *p == 'g' && (++p, !number(s.group))) return std::nullopt;
  if (p != end && *p == 'a') ++p, s.zero = ZeroKind::integer;
  if (p != end && *p == 's') ++p, s.zero = ZeroKind::symmetric;
  if (p != end || !check(s).ok()) return std::nullopt;
  return s;
}

std::optional<std::array<std::int64_t, 3>> parse_shape(const std::string& text) {
  std::array<std::int64_t, 3> shape{};
  const char *p = text.data(), *end = p + text.size();
  for (int i = 0; i < 3; ++i) {
    if (i && (p == end || *p++ != 'x')) return std::nullopt;
    const auto [next, error] = std::from_chars(p, end, shape[static_cast<std::size_t>(i)]);
    if (error != std::errc() || shape[static_cast<std::size_t>(i)] < 1) return std::nullopt;
    p = next;
  }
  if (p != end) return std::nullopt;
  return shape;
}

QuantizedMatrix random_weights(const Problem& p) {
  QuantizedMatrix w = QuantizedMatrix::make(p.scheme, p.n, p.k).value();
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  std::array<std::uint8_t, 4096> codes{};  // normal codes, whose order differs from row to row
  const float middle = p.scheme.symmetric_zero();
  for (std::uint8_t& code : codes)
    code = static_cast<std::uint8_t>(std::clamp(std::nearbyint(middle + normal(rng) * middle / 3), 0.0f,
                                                static_cast<float>(p.scheme.levels() - 1)));
  for (std::int64_t r = 0; r < p.n; ++r) {
    std::uint32_t at = rng();
    for (std::int64_t c = 0; c < p.k; ++c) w.codes().row(r)[c] = codes[(at += 2654435761u) >> 20];
    for (std::int64_t g = 0; g < w.groups(); ++g) {
      w.scales()(r, g) =
          round_to(p.scheme.scale, 0.01f + 0.01f * static_cast<float>(rng() >> 8) / 16777216.0f);
      if (w.zeros().data) w.zeros()(r, g) = std::nearbyint(middle + normal(rng));
    }
  }
  return w;
}

// The limits of all threads together.
class Limits {
 public:
  Limits(int threads, ParallelFor parallel) : threads_(threads), parallel_(parallel) {
    const std::size_t part =
        (4 * last_cache_bytes() / static_cast<std::size_t>(threads) + 4096) / 1024 * 1024;
    memory_ = Array<std::byte>::make(part * static_cast<std::size_t>(threads)).value();
    part_ = part;
  }
  double read_gb_s() {
    const Stopwatch watch(threads_);
    parallel_for(parallel_, threads_, [&](std::int64_t t) {
      sink_ =
          sink_ ^ read_all({memory_.data() + static_cast<std::size_t>(t) * part_, part_}, kernel::cpu_isa());
    });
    return static_cast<double>(memory_.size()) / watch.seconds() * 1e-9;
  }
  // In vectors of the kernel's own instruction set, limited to what this CPU has.
  double multiply_gop_s(const Kernel& kernel) {
    constexpr std::int64_t kRounds = 300000;
    std::vector<std::int64_t> operations(static_cast<std::size_t>(threads_));
    const Stopwatch watch(threads_);
    parallel_for(parallel_, threads_, [&](std::int64_t t) {
      operations[static_cast<std::size_t>(t)] = kernel.accuracy == kernel::Accuracy::exact
                                                    ? multiply_f32(kRounds, kernel.isa)
                                                    : multiply_i8(kRounds, kernel.isa);
    });
    double total = 0;
    for (std::int64_t each : operations) total += static_cast<double>(each);
    return total / watch.seconds() * 1e-9;
  }

 private:
  int threads_;
  ParallelFor parallel_;
  Array<std::byte> memory_;
  std::size_t part_ = 0;
  volatile std::uint64_t sink_ = 0;
};

// One problem: the matrix, enough copies of the packed weight that none is in a cache when its turn comes.
class Setting {
 public:
  Setting(const Problem& problem, int threads, ParallelFor parallel)
      : problem_(problem), threads_(threads), parallel_(parallel), matrix_(random_weights(problem)) {
    const std::size_t mk = static_cast<std::size_t>(problem.m * problem.k);
    x_ = Array<float>::make(mk).value();
    y_ = Array<float>::make(static_cast<std::size_t>(problem.m * problem.n)).value();
    std::mt19937 rng(11);
    std::normal_distribution<float> normal;
    for (float& value : x_) value = normal(rng);
  }

  std::vector<const Kernel*> kernels_that_fit(const std::string& forced) {
    std::vector<const Kernel*> found;
    for (const Kernel* kernel : kernel::kernels()) {
      if (!forced.empty() ? forced != kernel->name : kernel->layout == kernel::Layout::canonical) continue;
      if (kernel->op == kernel::Op::gemm && problem_.m == 1 && forced.empty()) continue;
      kernel::MatmulOptions options;
      options.kernel = kernel;
      if (choose_kernel(copies(kernel->layout).front(), problem_.m, options).ok()) found.push_back(kernel);
    }
    return found;
  }

  // Relative RMS against f64, over all rows of x that fit a small budget and outputs spread over the matrix.
  double check(const Kernel& kernel) {
    std::fill(y_.begin(), y_.end(), std::nanf(""));
    run(kernel);
    double error = 0, norm = 0;
    const std::int64_t rows = std::min<std::int64_t>(problem_.m, 16),
                       step = std::max<std::int64_t>(1, problem_.n / 61);
    std::vector<float> w(static_cast<std::size_t>(problem_.k));
    for (std::int64_t j = 0; j < problem_.n; j += step) {
      matrix_.dequantize_row(j, w.data());
      for (std::int64_t i = 0; i < rows; ++i) {
        double sum = 0;
        const float* x = x_.data() + i * problem_.k;
        for (std::int64_t c = 0; c < problem_.k; ++c)
          sum += static_cast<double>(w[static_cast<std::size_t>(c)]) * static_cast<double>(x[c]);
        const double off = sum - static_cast<double>(y_[static_cast<std::size_t>(i * problem_.n + j)]);
        error += off * off;
        norm += sum * sum;
      }
    }
    return std::sqrt(error / norm);
  }

  void run(const Kernel& kernel) {
    auto& weights = copies(kernel.layout);
    kernel::MatmulOptions options;
    options.kernel = &kernel;
    options.parallel = parallel_;
    const PackedWeight& w = weights[next_++ % weights.size()];
    const Status status =
        matmul({x_.data(), {problem_.m, problem_.k}}, w, {y_.data(), {problem_.m, problem_.n}}, {}, options);
    if (!status.ok()) throw Error(status);
  }

  // Seconds of one call, from as many calls as take a hundredth of a second or more.
  double time(const Kernel& kernel) {
    int calls = 0;
    const Stopwatch watch(threads_);
    double passed = 0;
    do {
      run(kernel);
      ++calls;
      passed = watch.seconds();
    } while (passed < 0.01);
    return passed / calls;
  }

  double weight_bytes(const Kernel& kernel) {
    return static_cast<double>(copies(kernel.layout).front().buffer().size() - sizeof(kernel::PackedHeader));
  }

 private:
  std::vector<PackedWeight>& copies(kernel::Layout layout) {
    std::vector<PackedWeight>& weights = copies_[layout];
    if (!weights.empty()) return weights;
    kernel::PackOptions options;
    options.layout = layout;
    options.parallel = parallel_;
    weights.push_back(prepack(matrix_, options).value());
    const std::span<const std::byte> first = weights.front().buffer();
    for (std::size_t total = first.size(); problem_.m == 1 && total < 4 * last_cache_bytes();
         total += first.size()) {
      auto copy = Array<std::byte>::make(first.size()).value();
      std::memcpy(copy.data(), first.data(), first.size());
      weights.push_back(PackedWeight::from_buffer(std::move(copy), "copy").value());
    }
    return weights;
  }

  Problem problem_;
  int threads_;
  ParallelFor parallel_;
  QuantizedMatrix matrix_;
  Array<float> x_, y_;
  std::map<kernel::Layout, std::vector<PackedWeight>> copies_;
  std::size_t next_ = 0;
};

nlohmann::json to_json(const Figures& f, double bytes, int threads) {
  const Problem& p = f.problem;
  const double seconds = median(f.seconds), limit = median(f.limit);
  const double operations =
      2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  std::vector<double> shares;
  for (std::size_t i = 0; i < f.seconds.size(); ++i)
    if (f.limit[i] > 0)
      shares.push_back((f.memory_bound ? bytes : operations) / f.seconds[i] * 1e-9 / f.limit[i]);
  nlohmann::json j{{"kernel", f.kernel->name},
                   {"weights", p.weights},
                   {"m", p.m},
                   {"n", p.n},
                   {"k", p.k},
                   {"threads", threads},
                   {"microseconds", seconds * 1e6},
                   {"gb_s", bytes / seconds * 1e-9},
                   {"gop_s", operations / seconds * 1e-9},
                   {"limit", f.memory_bound ? "memory" : "multiply"},
                   {"share_of_limit", median(shares)},
                   {"relative_rms", f.rms},
                   {"rounds", f.seconds.size()}};
  j[f.memory_bound ? "limit_gb_s" : "limit_gop_s"] = limit;
  return j;
}

int list_kernels(bool json) {
  nlohmann::json all = nlohmann::json::array();
  for (const Kernel* k : kernel::kernels()) {
    const bool runs = (k->isa & ~kernel::cpu_isa()) == 0;
    if (json)
      all.push_back({{"kernel", k->name}, {"isa", kernel::isa_name(k->isa)}, {"runs_here", runs}});
    else
      fmt::print("{:24} {:14} {}\n", k->name, kernel::isa_name(k->isa), runs ? "" : "not on this CPU");
  }
  if (json) fmt::print("{}\n", nlohmann::json{{"kernels", all}}.dump());
  return 0;
}

void print_row(const nlohmann::json& j) {
  const bool memory = j["limit"] == "memory";
  fmt::print("{:22} {:9} {:>17} {:9.1f} us {:7.2f} GB/s {:8.1f} GOP/s  {:3.0f} % of {:.1f} {}  rms {:.1e}\n",
             j["kernel"].get<std::string>(), j["weights"].get<std::string>(),
             fmt::format("{}x{}x{}", j["m"].get<int>(), j["n"].get<int>(), j["k"].get<int>()),
             j["microseconds"].get<double>(), j["gb_s"].get<double>(), j["gop_s"].get<double>(),
             100 * j["share_of_limit"].get<double>(), j[memory ? "limit_gb_s" : "limit_gop_s"].get<double>(),
             memory ? "GB/s" : "GOP/s", j["relative_rms"].get<double>());
  std::fflush(stdout);
}

int measure(const Options& o, const Problem& problem, ParallelFor parallel, Limits& limits,
            nlohmann::json& results) {
  Setting setting(problem, o.threads, parallel);
  std::vector<Figures> all;
  for (const Kernel* kernel : setting.kernels_that_fit(o.forced)) {
    Figures f{kernel, problem};
    f.rms = setting.check(*kernel);
    const double most = kernel->accuracy == kernel::Accuracy::exact ? 1e-6 : 1e-2;
    if (!(f.rms <= most)) {
      fmt::print(stderr, "qf-bench: {} is wrong: relative RMS {:.2e}, at most {:.0e} is right\n",
                 kernel->name, f.rms, most);
      return 1;
    }
    f.memory_bound = problem.m == 1;
    all.push_back(std::move(f));
  }
  if (all.empty()) {
    fmt::print(stderr, "qf-bench: no kernel {}fits {} {}x{}x{} on this CPU\n",
               o.forced.empty() ? "" : o.forced + " ", problem.weights, problem.m, problem.n, problem.k);
    return 2;
  }
  std::vector<double> spent(all.size(), 0.0);
  for (int round = 0; round < o.rounds; ++round)
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (spent[i] > o.seconds) continue;
      const auto start = Clock::now();
      all[i].limit.push_back(all[i].memory_bound ? limits.read_gb_s()
                                                 : limits.multiply_gop_s(*all[i].kernel));
      all[i].seconds.push_back(setting.time(*all[i].kernel));
      spent[i] += seconds_since(start);
    }
  for (const Figures& f : all) {
    results.push_back(to_json(f, setting.weight_bytes(*f.kernel), o.threads));
    if (!o.json) print_row(results.back());
  }
  return 0;
}

int run(const Options& o) {
  if (o.list) return list_kernels(o.json);
  if (!o.forced.empty() && !kernel::find_kernel(o.forced)) {
    fmt::print(stderr, "qf-bench: no kernel '{}'; --list shows all\n", o.forced);
    return 2;
  }
  std::vector<Problem> problems;
  const auto weights = o.weights.empty() ? std::vector<std::string>{"w4g128", "w8g128"} : o.weights;
  for (const std::string& text : weights) {
    const auto scheme = parse_weights(text);
    if (!scheme) {
      fmt::print(stderr, "qf-bench: weights '{}', expected w<bits>[g<group>][a|s], such as w4g128a\n", text);
      return 2;
    }
    for (const std::string& shape : o.shapes) {
      const auto mnk = parse_shape(shape);
      if (!mnk) {
        fmt::print(stderr, "qf-bench: shape '{}', expected MxNxK, such as 1x4096x4096\n", shape);
        return 2;
      }
      problems.push_back({text, *scheme, (*mnk)[0], (*mnk)[1], (*mnk)[2]});
    }
    if (o.models)
      for (const Shape& shape : kShapes)
        for (std::int64_t m : {1, 32}) problems.push_back({text, *scheme, m, shape.n, shape.k});
    if (o.shapes.empty() && !o.models)
      for (std::int64_t m : {1, 128}) problems.push_back({text, *scheme, m, 11008, 4096});
  }
  ThreadPool pool(o.threads);
  Limits limits(o.threads, pool.parallel_for());
  nlohmann::json results = nlohmann::json::array();
  for (const Problem& problem : problems)
    if (const int code = measure(o, problem, pool.parallel_for(), limits, results)) return code;
  if (o.json)
    fmt::print("{}\n",
               nlohmann::json{{"isa", kernel::isa_name(kernel::cpu_isa())}, {"results", results}}.dump());
  return 0;
}

}  // namespace
}  // namespace qf::bench

int main(int argc, char** argv) {
  qf::bench::Options o;
  CLI::App app{"Times the kernels of qf. Each is checked against f64 first; a wrong one isn't timed."};
  app.add_option("--op", o.op, "what to time")->check(CLI::IsMember({"matmul"}));
  app.add_option("--weights", o.weights, "w<bits>[g<group>][a|s]: a asymmetric, s symmetric (default)");
  app.add_option("--shape", o.shapes, "MxNxK: rows of x, outputs, inputs");
  app.add_flag("--models", o.models, "shapes of real models, M = 1 and 32");
  app.add_option("--threads", o.threads, "threads")->check(CLI::Range(1, 1024));
  app.add_option("--kernel", o.forced, "time this kernel only");
  app.add_option("--rounds", o.rounds, "rounds at most")->check(CLI::Range(1, 1000));
  app.add_option("--seconds", o.seconds, "per kernel and shape at most")->check(CLI::Range(0.01, 3600.0));
  app.add_flag("--json", o.json, "print JSON");
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
