// Needs: nlohmann-json. JSON that comes from files: bounded depth, no duplicate keys, errors as Status.
// Include it in .cpp files only; headers of the library don't expose it.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "qf/core/result.hpp"

namespace qf {

using Json = nlohmann::json;

struct JsonLimits {
  std::size_t bytes = std::size_t{256} << 20;
  int depth = 64;
};

// Needs: link qf. Parses one whole document. `what` names it in errors ("model/config.json"). Refuses
// duplicate keys, depth beyond the limit, bytes after the end and invalid UTF-8. Never throws.
Result<Json> parse_json(std::string_view text, std::string_view what, JsonLimits limits = {});

}  // namespace qf
