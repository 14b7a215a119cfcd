// How llama.cpp and Hugging Face name the same tensors, and in which order they keep rotary rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "qf/model/config.hpp"

namespace qf::model::detail {

// As the key general.architecture spells it.
std::string_view gguf_architecture(Architecture architecture);

// "blk.3.attn_q.weight" <-> "model.layers.3.self_attn.q_proj.weight"; nullopt: not a weight of such a model.
std::optional<std::string> hf_tensor_name(Architecture architecture, std::string_view gguf_name);
std::optional<std::string> gguf_tensor_name(Architecture architecture, std::string_view hf_name);

// Rows of `hf_name` that belong to one rotating head and stand interleaved in GGUF; 0: in both the same
// order.
std::int64_t interleaved_rows(const ModelConfig& config, std::string_view hf_name);

// Where row `row` of Hugging Face's order stands in GGUF: halves [a0 a1 .. b0 b1 ..] against pairs [a0 b0 a1
// b1 ..].
constexpr std::int64_t interleaved_row(std::int64_t row, std::int64_t head_rows) {
  const std::int64_t within = row % head_rows, half = head_rows / 2;
  return row - within + 2 * (within % half) + within / half;
}
// The other way.
constexpr std::int64_t separated_row(std::int64_t row, std::int64_t head_rows) {
  const std::int64_t within = row % head_rows;
  return row - within + within % 2 * (head_rows / 2) + within / 2;
}

}  // namespace qf::model::detail
