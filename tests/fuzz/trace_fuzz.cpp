// Request traces: every text is refused with its name and line, or gives requests whose blocks stand on their parents.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "qf/cache/simulate.hpp"
#include "qf/cache/trace.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Prompts of Azure's traces are expanded to blocks: large ones keep that short.
  const auto trace =
      qf::cache::parse_trace({reinterpret_cast<const char*>(data), size}, "fuzz", std::int64_t{1} << 26);
  if (!trace.ok()) {
    if (!trace.status().text().starts_with("fuzz:")) std::abort();
    return 0;
  }
  for (std::size_t r = 0; r < trace->requests(); ++r) {
    std::uint32_t parent = qf::cache::Trace::kNone;
    for (const std::uint32_t block : trace->request(r)) {
      if (block >= trace->unique() || trace->parents[block] != parent) std::abort();
      parent = block;
    }
  }
  const auto all = qf::cache::simulate(*trace, "default", trace->unique());
  if (!all.ok() || all->hits != trace->blocks.size() - trace->unique()) std::abort();
  const auto few = qf::cache::simulate(*trace, "default", 3);
  if (!few.ok() || few->hits > all->hits) std::abort();
  return 0;
}
