// JSON from files: every document is accepted or refused with a text, and what is accepted survives writing
// and reading.
#include <cstdint>
#include <cstdlib>

#include "qf/core/json.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = qf::parse_json(text, "fuzz");
  if (!json.ok()) {
    if (json.status().text().empty()) std::abort();
    return 0;
  }
  const std::string written = json->dump();
  const auto again = qf::parse_json(written, "fuzz");
  if (!again.ok() || again->dump() != written) std::abort();
  return 0;
}
