// A model's config.json: every text is refused with a message, or gives sizes that the decoder can rely on.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "qf/model/config.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto config = qf::model::parse_config({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!config.ok()) {
    if (!config.status().text().starts_with("fuzz: ")) std::abort();
    return 0;
  }
  const qf::model::ModelConfig& c = *config;
  for (std::int64_t n : {c.hidden, c.ffn, c.layers, c.heads, c.kv_heads, c.head_dim, c.vocab, c.context})
    if (n < 1) std::abort();
  if (c.heads % c.kv_heads || c.head_dim % 2 || c.bos >= c.vocab || !(c.norm_eps >= 0) ||
      c.sliding_window < 0)
    std::abort();
  if (!c.layer_uses_window.empty() && static_cast<std::int64_t>(c.layer_uses_window.size()) != c.layers)
    std::abort();
  for (std::int32_t id : c.eos)
    if (id < 0 || id >= c.vocab) std::abort();
  if (c.rope.scaling == qf::model::RopeScaling::longrope &&
      c.rope.long_factor.size() != c.rope.short_factor.size())
    std::abort();
  return 0;
}
