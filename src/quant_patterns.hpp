// Matching tensor names: globs and bounded regular expressions.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "qf/core/result.hpp"

namespace qf::quant::detail {

// '*' stands for any run of characters, '?' for one; everything else for itself. Time is at most the product
// of the lengths.
bool glob_matches(std::string_view glob, std::string_view name);

// A regular expression that has to match the whole name. Thread rule: const use from many threads.
class Regex {
 public:
  static Result<Regex> compile(const std::string& pattern);
  // Fails when the search takes more steps than a sane pattern needs for a name.
  Result<bool> matches(std::string_view name) const;

 private:
  std::shared_ptr<const void> code_;
};

}  // namespace qf::quant::detail
