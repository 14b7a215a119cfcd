// What a policy of the prefix cache costs: a thousand accesses to a full cache, directory included, so that the
// microseconds of a call are the nanoseconds of an access.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <memory>

#include "benchmarks/ops.hpp"
#include "qf/cache/directory.hpp"
#include "qf/cache/policies.hpp"

namespace qf::bench {
namespace {

constexpr int kChain = 8, kAccesses = 1000;

// Requests of eight blocks, a few of which are popular; a cache that holds one in eight of all has about half of them.
class Load {
 public:
  Load(cache::Policy policy, std::size_t pages)
      : directory_(std::move(policy)), chains_(static_cast<double>(pages)) {
    for (std::size_t i = 0; i < 3 * pages; i += kChain) request();
  }
  void run() {
    for (int i = 0; i < kAccesses; i += kChain) request();
  }

 private:
  void request() {
    const double unit = static_cast<double>(cache::detail::mix(++count_) >> 11) * 0x1p-53;
    const auto chain = static_cast<std::uint64_t>(chains_ * unit * unit * unit * unit);
    directory_.begin();
    cache::BlockKey parent = cache::kNoBlock;
    for (std::uint64_t i = 0; i < kChain; ++i) {
      const cache::BlockKey key = cache::detail::mix(chain * kChain + i + 1);
      directory_.touch(key, parent);
      parent = key;
    }
    directory_.end();
  }
  cache::Directory directory_;
  double chains_;
  std::uint64_t count_ = 0;
};

}  // namespace

int cache_cases(const Request& request, const Use& use) {
  const auto sizes = request.shapes.empty() ? std::vector<std::string>{"1000000"} : request.shapes;
  for (const std::string& text : sizes) {
    std::size_t pages = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pages);
    if (error != std::errc() || *end || pages < 1) {
      fmt::print(stderr, "qf-bench: shape '{}', expected the pages of a cache\n", text);
      return 2;
    }
    for (const auto& info : cache::policies()) {
      if (!request.kernel.empty() && request.kernel != info.name) continue;
      auto policy = cache::make_policy(info.name, pages);
      if (!policy.ok()) {
        fmt::print(stderr, "qf-bench: {}\n", policy.status().text());
        return 2;
      }
      const auto load = std::make_shared<Load>(std::move(*policy), pages);
      Case c;
      c.kernel = info.name;
      c.about = {{"problem", fmt::format("{} pages, {} accesses", pages, kAccesses)}, {"pages", pages}};
      c.cold = false;
      c.run = [load] { load->run(); };
      std::vector<Case> cases{std::move(c)};
      if (const int code = use(cases)) return code;
    }
  }
  return 0;
}

}  // namespace qf::bench
