// The methods that a recipe may name: what they are called, which options they take, and whether this version
// runs them.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "qf/core/result.hpp"
#include "qf/format/scheme.hpp"
#include "qf/quant/quantizer.hpp"
#include "qf/quant/recipe.hpp"

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

// A method with the options of a rule, ready to use.
struct Method {
  std::shared_ptr<const void> owner;
  QuantizerRef quantizer;
  int scale_grid =
      0;  // how many scales of channels are tried before the linear is quantized; 0: it isn't rescaled
};
// Precondition: the rule was checked and its method and options are available.
Result<Method> make_method(const RecipeRule& rule);

}  // namespace qf::quant::detail
