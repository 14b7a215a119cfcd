// Shapes of the linear layers of real decoders, as n x k (outputs x inputs).
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>

namespace qf::bench {

struct Shape {
  const char* model;
  const char* layer;
  std::int64_t n, k;
};

inline constexpr Shape kShapes[] = {
    {"SmolLM2-135M", "q_proj", 576, 576},      {"SmolLM2-135M", "gate_proj", 1536, 576},
    {"SmolLM2-135M", "lm_head", 49152, 576},   {"Llama-3.2-1B", "q_proj", 2048, 2048},
    {"Llama-3.2-1B", "down_proj", 2048, 8192}, {"Llama-2-7B", "q_proj", 4096, 4096},
    {"Llama-2-7B", "gate_proj", 11008, 4096},  {"Llama-3-8B", "gate_proj", 14336, 4096},
    {"Llama-3-8B", "down_proj", 4096, 14336},  {"Qwen2.5-7B", "k_proj", 512, 3584},
};

// "MxNxK": rows of x, outputs, inputs.
inline std::optional<std::array<std::int64_t, 3>> parse_shape(const std::string& text) {
  std::array<std::int64_t, 3> shape{};
  const char *p = text.data(), *end = p + text.size();
  for (std::size_t i = 0; i < 3; ++i) {
    if (i && (p == end || *p++ != 'x')) return std::nullopt;
    const auto [next, error] = std::from_chars(p, end, shape[i]);
    if (error != std::errc() || shape[i] < 1) return std::nullopt;
    p = next;
  }
  if (p != end) return std::nullopt;
  return shape;
}

}  // namespace qf::bench
