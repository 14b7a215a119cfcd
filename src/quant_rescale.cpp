#include "src/quant_rescale.hpp"

#include <cmath>

#include "src/quant_awq.hpp"

namespace qf::quant::detail {
namespace {

using model::LayerInput;

std::string layer_prefix(std::int64_t layer) {
  return cat({"model.layers.", num(layer), "."});
}

std::vector<const Job*> jobs_of(const Work& work, std::int64_t layer, LayerInput input) {
  std::vector<const Job*> all;
  for (const Job& job : work.jobs)
    if (job.layer == layer && job.input == input) all.push_back(&job);
  return all;
}

std::size_t linears_of(const model::ModelConfig& config, LayerInput input) {
  switch (input) {
    case LayerInput::qkv:
      return config.fused_qkv ? 1 : 3;
    case LayerInput::gate_up:
      return config.fused_gate_up ? 1 : 2;
    default:
      return 1;
  }
}

bool all_scaled(const Work& work, std::int64_t layer, LayerInput input) {
  const auto jobs = jobs_of(work, layer, input);
  for (const Job* job : jobs)
    if (job->scale_grid == 0) return false;
  return jobs.size() == linears_of(work.decoder, input);
}

class Layer {
 public:
  Layer(const Work& work, std::int64_t layer, const LayerStatistics& statistics, const ParallelFor& parallel)
      : work_(work),
        config_(work.decoder),
        layer_(layer),
        prefix_(layer_prefix(layer)),
        statistics_(statistics),
        parallel_(parallel) {}

  Result<Floats> run() {
    QF_TRY(scale_norm(LayerInput::qkv, "input_layernorm.weight"));
    QF_TRY(scale_norm(LayerInput::gate_up, "post_attention_layernorm.weight"));
    QF_TRY(scale_values());
    QF_TRY(scale_up());
    return std::move(floats_);
  }

 private:
  Result<Array<float>*> load(const std::string& name) {
    const auto found = floats_.find(name);
    if (found != floats_.end()) return &found->second;
    const io::TensorInfo* info = work_.source->find(name);
    if (!info) return Status(Errc::internal, cat({"tensor ", printable(name), " is gone"}));
    QF_TRY_ASSIGN(auto values, Array<float>::make(static_cast<std::size_t>(info->elements)));
    QF_TRY(work_.source->read_f32(*info, 0, values));
    work_.source->release(*info);
    return &floats_.emplace(name, std::move(values)).first->second;
  }

  Result<Array<float>> search(LayerInput input, std::span<const std::int64_t> tied) {
    std::vector<ScaledLinear> linears;
    ScaleSearch search;
    for (const Job* job : jobs_of(work_, layer_, input)) {
      QF_TRY_ASSIGN(Array<float> * w, load(job->info->name));
      linears.push_back({{w->data(), {job->info->shape[0], job->info->shape[1]}}, job->plan.scheme});
      search.grid = job->scale_grid;
    }
    search.linears = linears;
    search.statistics = &statistics_[static_cast<std::size_t>(input)];
    search.tied = tied;
    auto scales = search_scales(search, parallel_);
    return scales.ok() ? std::move(scales)
                       : scales.status().at(cat({"layer ", num(layer_), ", search for scales"}));
  }

  Status scale_columns(LayerInput input, const Array<float>& scales) {
    for (const Job* job : jobs_of(work_, layer_, input)) {
      QF_TRY_ASSIGN(Array<float> * w, load(job->info->name));
      const std::int64_t n = job->info->shape[0], k = job->info->shape[1];
      for (std::int64_t r = 0; r < n; ++r)
        for (std::int64_t c = 0; c < k; ++c) w->data()[r * k + c] *= scales.data()[c];
    }
    return {};
  }

  Status scale_norm(LayerInput input, const char* name) {
    if (!scales_input(work_, layer_, input)) return {};
    QF_TRY_ASSIGN(Array<float> scales, search(input, {}));
    QF_TRY_ASSIGN(Array<float> * norm, load(prefix_ + name));
    const DType type = stored_type(prefix_ + name);
    for (std::size_t c = 0; c < scales.size(); ++c) {
      const float before = (*norm)[c], after = round_to(type, before / scales[c]);
      const float scale = before / after;
      const bool usable = std::isfinite(after) && after != 0 && std::isfinite(scale) && scale > 0;
      scales[c] = usable ? scale : 1;
      if (usable) (*norm)[c] = after;
    }
    return scale_columns(input, scales);
  }

  // v's rows [from, from + kv) / s before o. Query heads of a group read the same rows.
  Status scale_values() {
    if (!scales_input(work_, layer_, LayerInput::o)) return {};
    const std::int64_t d = config_.head_dim, share = config_.heads / config_.kv_heads;
    std::vector<std::int64_t> row_of;
    for (std::int64_t c = 0; c < config_.heads * d; ++c) row_of.push_back(c / d / share * d + c % d);
    QF_TRY_ASSIGN(const Array<float> scales, search(LayerInput::o, row_of));
    const std::int64_t kv = config_.kv_heads * d;
    std::vector<float> rows(static_cast<std::size_t>(kv));
    for (std::size_t c = 0; c < row_of.size(); ++c) rows[static_cast<std::size_t>(row_of[c])] = scales[c];
    QF_TRY(divide_rows(config_.fused_qkv ? "self_attn.qkv_proj" : "self_attn.v_proj",
                       config_.fused_qkv ? config_.heads * d + kv : 0, rows));
    return scale_columns(LayerInput::o, scales);
  }

  Status scale_up() {
    if (!scales_input(work_, layer_, LayerInput::down)) return {};
    QF_TRY_ASSIGN(const Array<float> scales, search(LayerInput::down, {}));
    QF_TRY(divide_rows(config_.fused_gate_up ? "mlp.gate_up_proj" : "mlp.up_proj",
                       config_.fused_gate_up ? config_.ffn : 0, scales));
    return scale_columns(LayerInput::down, scales);
  }

  // Rows from `first` on of a linear, with their biases where there are some.
  Status divide_rows(const char* module, std::int64_t first, std::span<const float> by) {
    const std::string weight = cat({prefix_, module, ".weight"}), bias = cat({prefix_, module, ".bias"});
    QF_TRY_ASSIGN(Array<float> * w, load(weight));
    const std::int64_t k = config_.hidden;
    for (std::size_t i = 0; i < by.size(); ++i)
      for (std::int64_t c = 0; c < k; ++c) w->data()[(first + static_cast<std::int64_t>(i)) * k + c] /= by[i];
    if (!work_.source->find(bias)) return {};
    QF_TRY_ASSIGN(Array<float> * b, load(bias));
    for (std::size_t i = 0; i < by.size(); ++i) b->data()[first + static_cast<std::int64_t>(i)] /= by[i];
    return {};
  }

  DType stored_type(const std::string& name) const {
    for (const Job& job : work_.jobs)
      if (job.info->name == name)
        return job.plan.action == Action::convert ? job.plan.dtype
                                                  : dtype_from_name(job.info->type).value_or(DType::f32);
    return DType::f32;
  }

  const Work& work_;
  const model::ModelConfig& config_;
  std::int64_t layer_;
  std::string prefix_;
  const LayerStatistics& statistics_;
  ParallelFor parallel_;
  Floats floats_;
};

}  // namespace

bool scales_input(const Work& work, std::int64_t layer, LayerInput input) {
  if (!all_scaled(work, layer, input)) return false;
  if (input == LayerInput::o) return all_scaled(work, layer, LayerInput::qkv);
  if (input == LayerInput::down) return all_scaled(work, layer, LayerInput::gate_up);
  return true;
}

Result<Floats> rescale_layer(const Work& work, std::int64_t layer, const LayerStatistics& statistics,
                             const ParallelFor& parallel) {
  return Layer(work, layer, statistics, parallel).run();
}

std::vector<std::string> rescaled_vectors(std::int64_t layer) {
  std::vector<std::string> names;
  for (const char* name :
       {"input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.v_proj.bias",
        "self_attn.qkv_proj.bias", "mlp.up_proj.bias", "mlp.gate_up_proj.bias"})
    names.push_back(layer_prefix(layer) + name);
  return names;
}

}  // namespace qf::quant::detail
