// Needs: link qf. A decoder one layer after the other and in steps, for whoever looks at activations between its linears
// or changes weights on the way. What it computes is what Decoder computes, from the same code.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qf/core/buffer.hpp"
#include "qf/core/parallel.hpp"
#include "qf/core/result.hpp"
#include "qf/core/tensor.hpp"
#include "qf/format/quantized_matrix.hpp"
#include "qf/model/config.hpp"

namespace qf::model {

namespace detail {
struct Layer;
struct LayerDeleter {
  void operator()(Layer* layer) const;
};
}  // namespace detail

// The weights of one layer in memory, in float.
using LayerWeights = std::unique_ptr<detail::Layer, detail::LayerDeleter>;

// What a linear of a layer reads; linears of one kind see the same input.
enum class LayerInput : std::uint8_t { qkv, o, gate_up, down };
inline constexpr LayerInput kLayerInputs[] = {LayerInput::qkv, LayerInput::o, LayerInput::gate_up,
                                              LayerInput::down};

struct LayerLinear {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  LayerInput input = LayerInput::qkv;
};

// The linears of a layer, in the order in which they are computed.
std::vector<LayerLinear> layer_linears(const ModelConfig& config, std::int64_t layer);
// How many channels the input has.
std::int64_t input_width(const ModelConfig& config, LayerInput input);

// The steps of a layer for one sequence x [tokens, hidden] from its first token on; all outputs are the caller's:
//   norm(qkv) -> inputs of q, k and v;  attend -> input of o;  add(o) joins x
//   norm(gate_up) -> inputs of gate and up;  activate -> input of down;  add(down) joins x
// Thread rule: one call at a time (it owns scratch memory).
class LayerRunner {
 public:
  // `path`: a folder or GGUF file with float weights, as for Decoder::load; all names, shapes and types are checked
  // now, values when they are read. `parallel` outlives the runner.
  static Result<std::unique_ptr<LayerRunner>> open(const std::string& path, const ParallelFor& parallel = {});
  virtual ~LayerRunner() = default;

  virtual const ModelConfig& config() const = 0;
  // Reads a layer's weights; the pages that this touched are given back. Errors: NaN or infinity in a weight.
  virtual Result<LayerWeights> load(std::int64_t layer) const = 0;
  // Puts another matrix of the same shape in the place of a linear's.
  virtual Status set(LayerWeights& weights, std::string_view module, const QuantizedMatrix& w) const = 0;
  // Puts other values in the place of a tensor's: of a linear's weight or bias or a norm before one, by its full name.
  virtual Status set_values(LayerWeights& weights, std::string_view tensor,
                            std::span<const float> values) const = 0;

  // Rows of the embedding. Errors: an id outside the vocabulary.
  virtual Status embed(std::span<const std::int32_t> ids, MatrixView<float> x) const = 0;
  // `which` is qkv or gate_up. out [tokens, hidden].
  virtual Status norm(const LayerWeights& weights, LayerInput which, MatrixView<const float> x,
                      MatrixView<float> out) const = 0;
  // normed: of norm(qkv). out [tokens, input_width(o)].
  virtual Status attend(const LayerWeights& weights, std::int64_t layer, MatrixView<const float> normed,
                        MatrixView<float> out) = 0;
  // normed: of norm(gate_up). out [tokens, input_width(down)].
  virtual Status activate(const LayerWeights& weights, MatrixView<const float> normed,
                          MatrixView<float> out) = 0;
  // x += the linear `which` (o or down) of `input`.
  virtual Status add(const LayerWeights& weights, LayerInput which, MatrixView<const float> input,
                     MatrixView<float> x) = 0;
  // After the last layer: the input of the head. out [tokens, hidden].
  virtual Status final_norm(MatrixView<const float> x, MatrixView<float> out) = 0;
};

}  // namespace qf::model
