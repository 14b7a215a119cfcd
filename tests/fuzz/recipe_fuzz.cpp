// Recipes from anybody: parsing and matching stay bounded, and what was accepted reads back the same from its
// own text.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "qf/quant/recipe.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto recipe = qf::quant::Recipe::parse(text, "recipe");
  if (!recipe.ok()) return 0;
  for (std::string_view name : {"", "lm_head.weight", "model.layers.10.self_attn.q_proj.weight"}) {
    auto found = recipe->find(name);
    if (found.ok() && *found >= static_cast<std::ptrdiff_t>(recipe->rules().size())) std::abort();
  }
  (void)qf::quant::check_available(*recipe).ok();
  const std::string canonical = recipe->to_json();
  auto again = qf::quant::Recipe::parse(canonical, "again");
  if (!again.ok() || again->to_json() != canonical) std::abort();
  return 0;
}
