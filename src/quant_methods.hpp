// The methods that a recipe may name: what they are called, which options they take, and whether this version
// runs them.
#pragma once

#include <span>
#include <string_view>

#include "qf/format/scheme.hpp"

namespace qf::quant::detail {

enum class OptionKind : std::uint8_t { flag, number, word };

struct OptionEntry {
  std::string_view name;
  OptionKind kind;
  double least = 0, most = 0;  // number
  bool available = false;
};

struct MethodEntry {
  std::string_view name;
  bool available;
  CodebookKind codebook;
  std::span<const OptionEntry> options;
};

std::span<const MethodEntry> methods();
const MethodEntry* find_method(std::string_view name);

}  // namespace qf::quant::detail
