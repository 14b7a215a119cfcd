#include "qf/model/layer_runner.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "src/model_folder.hpp"
#include "src/model_layer.hpp"
#include "src/model_weights.hpp"

namespace qf::model {
namespace {

using detail::Layer;
using detail::Linear;

class Runner final : public LayerRunner {
 public:
  Runner(detail::ModelFiles files, const ParallelFor& parallel)
      : files_(std::move(files)), parallel_(parallel) {
    for (std::int64_t h = 0; h < files_.config.kv_heads; ++h) {
      keys_.push_back(nullptr), values_.push_back(nullptr);
      strides_.push_back(math_.kv_dim());
    }
    for (const void*& keys : keys_) key_pages_.push_back(&keys);
    for (const void*& values : values_) value_pages_.push_back(&values);
  }

  const ModelConfig& config() const override { return files_.config; }

  Result<LayerWeights> load(std::int64_t layer) const override {
    if (layer < 0 || layer >= config().layers)
      return Status(Errc::invalid_argument,
                    cat({"layer ", num(layer), " of a model with ", num(config().layers)}));
    QF_TRY_ASSIGN(Layer weights, detail::load_layer(files_, options(), layer));
    LayerWeights out(new (std::nothrow) Layer(std::move(weights)));
    if (!out) return Status(Errc::out_of_memory, "no memory for a layer");
    return out;
  }

  Status set(LayerWeights& weights, std::string_view module, const QuantizedMatrix& w) const override {
    Linear* linear = find(*weights, module);
    if (!linear) return Status(Errc::invalid_argument, cat({printable(module), ": no linear of the layer"}));
    if (linear->dense.n() != w.n() || linear->dense.k() != w.k())
      return Status(Errc::invalid_argument,
                    cat({"a matrix of ", num(w.n()), " x ", num(w.k()), " for ", module, ", expected ",
                         num(linear->dense.n()), " x ", num(linear->dense.k())}));
    return detail::expand(w, linear->dense);
  }

  Status set_values(LayerWeights& weights, std::string_view tensor,
                    std::span<const float> values) const override {
    Layer& l = *weights;
    Array<float>* to = nullptr;
    Linear* linear = find(l, tensor.substr(0, tensor.rfind('.')));
    if (linear && tensor.ends_with(".weight")) {
      const std::int64_t n = linear->dense.n(), k = linear->dense.k();
      if (values.size() == static_cast<std::size_t>(n * k)) {
        QF_TRY_ASSIGN(linear->dense, kernel::DenseWeight::make(n, k));
        linear->dense.fill(0, {values.data(), {n, k}});
        return {};
      }
    } else if (linear && tensor.ends_with(".bias")) {
      to = &linear->bias;
    } else if (tensor.ends_with(".input_layernorm.weight")) {
      to = &l.attention_norm;
    } else if (tensor.ends_with(".post_attention_layernorm.weight")) {
      to = &l.ffn_norm;
    }
    if (!to || to->size() != values.size())
      return Status(Errc::invalid_argument, cat({printable(tensor), " with ", num(values.size()),
                                                 " values: no such tensor in the layer"}));
    std::copy(values.begin(), values.end(), to->begin());
    return {};
  }

  Status embed(std::span<const std::int32_t> ids, MatrixView<float> x) const override {
    QF_TRY(expect(x, config().hidden, static_cast<std::int64_t>(ids.size())));
    const io::Checkpoint& file = *files_.checkpoint;
    const io::TensorInfo* table = file.find("model.embed_tokens.weight");
    if (!table) return Status(Errc::internal, "an embedding that was there is gone");
    const std::int64_t hidden = config().hidden;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= config().vocab)
        return Status(Errc::invalid_argument, cat({"token ", num(i), " has id ", num(ids[i]),
                                                   ", expected 0 to ", num(config().vocab - 1)}));
      QF_TRY(file.read_f32(*table, static_cast<std::uint64_t>(ids[i] * hidden),
                           {x.row(static_cast<std::int64_t>(i)), static_cast<std::size_t>(hidden)}));
    }
    file.release(*table);
    return {};
  }

  Status norm(const LayerWeights& weights, LayerInput which, MatrixView<const float> x,
              MatrixView<float> out) const override {
    QF_TRY(expect(x, config().hidden, x.shape[0]));
    QF_TRY(expect(out, config().hidden, x.shape[0]));
    const Array<float>& weight = which == LayerInput::gate_up ? weights->ffn_norm : weights->attention_norm;
    math_.norm(weight, x.shape[0], x.data, out.data);
    return {};
  }

  Status attend(const LayerWeights& weights, std::int64_t layer, MatrixView<const float> normed,
                MatrixView<float> out) override {
    const std::int64_t rows = normed.shape[0], d = config().head_dim;
    QF_TRY(expect(normed, config().hidden, rows));
    QF_TRY(expect(out, math_.q_dim(), rows));
    QF_TRY(reserve(rows));
    if (rows != angles_) {  // their number chooses between LongRoPE's factors
      math_.make_angles(0, rows, rows > config().rope.original_context);
      angles_ = rows;
    }
    QF_TRY(math_.project_qkv(*weights, normed));
    for (std::size_t h = 0; h < keys_.size(); ++h) {
      keys_[h] = math_.keys() + static_cast<std::int64_t>(h) * d;
      values_[h] = math_.values() + static_cast<std::int64_t>(h) * d;
    }
    kernel::AttentionArgs a;
    a.key_pages = key_pages_, a.value_pages = value_pages_;
    a.key_stride = strides_, a.value_stride = strides_;
    a.out = out;
    return math_.attend(layer, rows, 0, a);
  }

  Status activate(const LayerWeights& weights, MatrixView<const float> normed,
                  MatrixView<float> out) override {
    const std::int64_t rows = normed.shape[0], ffn = config().ffn;
    QF_TRY(expect(normed, config().hidden, rows));
    QF_TRY(expect(out, ffn, rows));
    QF_TRY(reserve(rows));
    QF_TRY_ASSIGN(const MatrixView<const float> activated, math_.activate(*weights, normed));
    math_.for_rows(rows, [&](std::int64_t r) {
      std::memcpy(out.row(r), activated.row(r), static_cast<std::size_t>(ffn) * sizeof(float));
    });
    return {};
  }

  Status add(const LayerWeights& weights, LayerInput which, MatrixView<const float> input,
             MatrixView<float> x) override {
    const std::int64_t rows = input.shape[0], hidden = config().hidden;
    QF_TRY(expect(input, input_width(config(), which), rows));
    QF_TRY(expect(x, hidden, rows));
    if (added_.size() < static_cast<std::size_t>(rows * hidden)) {
      added_ = {};
      QF_TRY_ASSIGN(added_, Array<float>::make(static_cast<std::size_t>(rows * hidden)));
    }
    const Linear& linear = which == LayerInput::down ? weights->down : weights->o;
    QF_TRY(linear.apply(input, {added_.data(), {rows, hidden}}, math_.matmul()));
    math_.add(rows, x.data, added_.data());
    return {};
  }

  Status final_norm(MatrixView<const float> x, MatrixView<float> out) override {
    QF_TRY(expect(x, config().hidden, x.shape[0]));
    QF_TRY(expect(out, config().hidden, x.shape[0]));
    if (final_norm_.empty()) {
      QF_TRY_ASSIGN(final_norm_, detail::load_final_norm(files_, options()));
    }
    math_.norm(final_norm_, x.shape[0], x.data, out.data);
    return {};
  }

 private:
  static Linear* find(Layer& l, std::string_view module) {
    for (Linear* linear : {&l.q, &l.k, &l.v, &l.qkv, &l.o, &l.gate, &l.up, &l.gate_up, &l.down})
      if (!module.empty() && linear->name == module) return linear;
    return nullptr;
  }

  LoadOptions options() const {
    LoadOptions options;
    options.compute = Compute::f32;
    options.parallel = parallel_;
    return options;
  }

  // Contiguous [rows, columns].
  static Status expect(MatrixView<const float> m, std::int64_t columns, std::int64_t rows) {
    if (m.shape[0] == rows && m.shape[1] == columns && m.stride[0] == columns && m.stride[1] == 1) return {};
    return Status(Errc::invalid_argument,
                  cat({"activations of shape ", shape_text(m.shape), ", expected contiguous [", num(rows),
                       ", ", num(columns), "]"}));
  }

  // Larger buffers have lost the angles that were in them.
  Status reserve(std::int64_t rows) {
    if (rows > reserved_) angles_ = 0;
    QF_TRY(math_.reserve(rows));
    reserved_ = std::max(reserved_, rows);
    return {};
  }

  detail::ModelFiles files_;
  ParallelFor parallel_;
  detail::LayerMath math_{files_.config, {.accuracy = kernel::Accuracy::exact, .parallel = parallel_}};
  Array<float> added_, final_norm_;
  std::int64_t reserved_ = 0, angles_ = 0;  // rows; how many positions the angles at hand were made for
  std::vector<const void*> keys_, values_;  // [kv_heads]
  std::vector<const void*const*> key_pages_, value_pages_;
  std::vector<std::int64_t> strides_;
};

}  // namespace

void detail::LayerDeleter::operator()(Layer* layer) const {
  delete layer;
}

std::vector<LayerLinear> layer_linears(const ModelConfig& config, std::int64_t layer) {
  std::vector<LayerLinear> all;
  const auto add = [&](const char* name, LayerInput input) {
    all.push_back({cat({"model.layers.", num(layer), ".", name}), input});
  };
  if (config.fused_qkv) {
    add("self_attn.qkv_proj", LayerInput::qkv);
  } else {
    for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
      add(name, LayerInput::qkv);
  }
  add("self_attn.o_proj", LayerInput::o);
  if (config.fused_gate_up) {
    add("mlp.gate_up_proj", LayerInput::gate_up);
  } else {
    add("mlp.gate_proj", LayerInput::gate_up);
    add("mlp.up_proj", LayerInput::gate_up);
  }
  add("mlp.down_proj", LayerInput::down);
  return all;
}

std::int64_t input_width(const ModelConfig& config, LayerInput input) {
  switch (input) {
    case LayerInput::o:
      return config.heads * config.head_dim;
    case LayerInput::down:
      return config.ffn;
    default:
      return config.hidden;
  }
}

Result<std::unique_ptr<LayerRunner>> LayerRunner::open(const std::string& path, const ParallelFor& parallel) {
  try {
    QF_TRY_ASSIGN(detail::ModelFiles files, detail::open_model(path));
    QF_TRY(detail::check_weights(files));
    return std::unique_ptr<LayerRunner>(new Runner(std::move(files), parallel));
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({path, ": no memory for the model"}));
  }
}

}  // namespace qf::model
