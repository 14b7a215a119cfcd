// Needs: link qf. Which tensor gets which treatment: rules in JSON, the first that matches a tensor's name
// wins. The file's grammar stands in docs/quantize.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "qf/core/result.hpp"
#include "qf/format/scheme.hpp"

namespace qf::quant {

using OptionValue = std::variant<bool, double, std::string>;
using MethodOptions = std::vector<std::pair<std::string, OptionValue>>;  // sorted by name, names differ

enum class Action : std::uint8_t {
  keep,      // copied as it is
  convert,   // stored as another float type
  quantize,  // by a method, to a scheme
};

struct RecipeRule {
  std::vector<std::string>
      globs;          // any of them; '*' stands for any run of characters (dots too), '?' for one
  std::string regex;  // or this (PCRE2), matched against the whole name
  Action action = Action::keep;
  DType dtype = DType::f16;  // convert: f32, f16 or bf16
  std::string method;        // quantize
  Scheme scheme{};           // quantize
  MethodOptions options;     // quantize

  friend bool operator==(const RecipeRule&, const RecipeRule&) = default;
};

// Checked rules with their patterns made ready. Copies share them. Thread rule: const use from many threads.
class Recipe {
 public:
  Recipe() = default;  // no rules: every tensor is kept

  // Errors (invalid_argument) name the rule, counted from 1, and what was expected: an unknown method or
  // option, a value out of range, a broken pattern. `own_methods` are names of the caller's quantizers that
  // rules may use.
  static Result<Recipe> make(std::vector<RecipeRule> rules,
                             std::span<const std::string_view> own_methods = {});
  // From the text of a recipe file; `what` names it in errors. At most 1 MiB, 1000 rules, 1000 patterns a
  // rule. A method that this version knows but can't run is accepted here and refused by check_available().
  static Result<Recipe> parse(std::string_view json, std::string_view what,
                              std::span<const std::string_view> own_methods = {});

  std::span<const RecipeRule> rules() const;
  // The index (from 0) of the first rule that matches, or -1: keep. Error: a regular expression that takes
  // too long.
  Result<std::ptrdiff_t> find(std::string_view tensor) const;
  // The recipe as a file, always the same text for the same rules.
  std::string to_json() const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

// Quantizes the linears of the decoder's layers (attention and feed-forward, fused or not); embeddings, head
// and norms are kept. Errors as Recipe::make.
Result<Recipe> default_recipe(std::string_view method, const Scheme& scheme,
                              std::span<const std::string_view> own_methods = {});

// "rtn": the methods that this version can run.
std::vector<std::string_view> available_methods();

// Whether a method of the recipe looks at activations (PipelineOptions::calibration). The caller's own methods don't
// count. Precondition: check_available().
Result<bool> needs_calibration(const Recipe& recipe);

// ok, or the first rule with a method or option that this version can't run:
// "method 'kl' (rule 3) is not available in this version; available: rtn".
Status check_available(const Recipe& recipe, std::span<const std::string_view> own_methods = {});

}  // namespace qf::quant
