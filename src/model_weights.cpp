#include "src/model_weights.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "qf/io/compressed_tensors.hpp"
#include "src/model_tensors.hpp"

namespace qf::model::detail {
namespace {

constexpr std::int64_t kRowsAtOnce = 64;  // a multiple of the 16 rows of a panel

// Whether every bit pattern is a finite number: the sum of |x| * 0 is 0 exactly then.
bool all_finite(const float* x, std::int64_t n) {
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i] * 0.0f;
  return sum == 0;
}

class Loader {
 public:
  Loader(const ModelFiles& files, const LoadOptions& options)
      : file_(*files.checkpoint),
        config_(files.config),
        quantization_(files.quantization ? &*files.quantization : nullptr),
        options_(options) {
    for (WeightShape& w : weights_of(config_)) {
      const std::string name = w.name;
      shapes_.emplace(name, std::move(w));
    }
  }

  // Whether every tensor is there with its shape and a type to compute with, and no other; reads none.
  Status check() {
    for (const WeightShape& w : weights_of(config_)) {
      const std::int64_t matrix[] = {w.rows, w.columns}, vector[] = {w.columns}, bias[] = {w.rows};
      QF_TRY(find(w.name, w.rows ? std::span<const std::int64_t>(matrix) : vector));
      const std::string module = w.name.substr(0, w.name.size() - std::string_view(".weight").size());
      if (has_bias(module)) QF_TRY(find(module + ".bias", bias));
    }
    if (config_.tied_head) used_.insert("lm_head.weight");
    return check_unused();
  }

  Result<Weights> run() {
    const ModelConfig& c = config_;
    Weights w;
    QF_TRY(embedding(w));
    w.layers.resize(static_cast<std::size_t>(c.layers));
    for (std::int64_t i = 0; i < c.layers; ++i)
      QF_TRY(layer("model.layers." + num(i) + ".", w.layers[static_cast<std::size_t>(i)]));
    QF_TRY(norm("model.norm", w.final_norm));
    if (c.tied_head) {
      QF_TRY(check_tied_head(w.embedding));
    } else {
      QF_TRY(linear("lm_head", w.head));
    }
    QF_TRY(check_unused());
    return w;
  }

  Status layer(const std::string& prefix, Layer& l) {
    const ModelConfig& c = config_;
    const std::string attn = prefix + "self_attn.", mlp = prefix + "mlp.";
    QF_TRY(norm(prefix + "input_layernorm", l.attention_norm));
    QF_TRY(norm(prefix + "post_attention_layernorm", l.ffn_norm));
    if (c.fused_qkv) {
      QF_TRY(linear(attn + "qkv_proj", l.qkv));
    } else {
      QF_TRY(linear(attn + "q_proj", l.q));
      QF_TRY(linear(attn + "k_proj", l.k));
      QF_TRY(linear(attn + "v_proj", l.v));
    }
    if (c.qk_norm) {
      QF_TRY(norm(attn + "q_norm", l.q_norm));
      QF_TRY(norm(attn + "k_norm", l.k_norm));
    }
    QF_TRY(linear(attn + "o_proj", l.o));
    if (c.fused_gate_up) {
      QF_TRY(linear(mlp + "gate_up_proj", l.gate_up));
    } else {
      QF_TRY(linear(mlp + "gate_proj", l.gate));
      QF_TRY(linear(mlp + "up_proj", l.up));
    }
    return linear(mlp + "down_proj", l.down);
  }

  Status norm(const std::string& module, Array<float>& out) {
    return vector(module + ".weight", shape_of(module).columns, out);
  }

 private:
  // Of a module that weights_of() names.
  const WeightShape& shape_of(const std::string& module) const { return shapes_.at(module + ".weight"); }

  // Rows of a low-bit embedding are looked up in its codes; as the head of a tied model it is packed.
  Status embedding(Weights& w) {
    const std::string module = "model.embed_tokens";
    if (!io::is_quantized(file_, module)) return matrix(module, w.embedding.dense);
    QF_TRY_ASSIGN(QuantizedMatrix stored, low_bit(module));
    if (options_.compute == Compute::f32) return expand(stored, w.embedding.dense);
    if (config_.tied_head) {
      QF_TRY_ASSIGN(w.head.packed, kernel::prepack(stored, {.parallel = options_.parallel}));
      w.head.name = module, w.head.is_packed = true;
    }
    w.embedding.low_bit = std::move(stored);
    return {};
  }

  Status linear(const std::string& module, Linear& out) {
    out.name = module;
    if (!io::is_quantized(file_, module)) {
      QF_TRY(matrix(module, out.dense));
    } else {
      QF_TRY_ASSIGN(const QuantizedMatrix w, low_bit(module));
      if (options_.compute == Compute::packed) {
        QF_TRY_ASSIGN(out.packed, kernel::prepack(w, {.parallel = options_.parallel}));
        out.is_packed = true;
      } else {
        QF_TRY(expand(w, out.dense));
      }
    }
    if (has_bias(module)) QF_TRY(vector(module + ".bias", shape_of(module).rows, out.bias));
    return {};
  }

  bool has_bias(std::string_view module) const {
    const auto is = [&](std::string_view end) { return module.ends_with(end); };
    if (is(".q_proj") || is(".k_proj") || is(".v_proj") || is(".qkv_proj")) return config_.qkv_bias;
    if (is(".o_proj")) return config_.o_bias;
    return is("_proj") && config_.mlp_bias;
  }

  Result<const io::TensorInfo*> find(const std::string& name, std::span<const std::int64_t> shape) {
    const io::TensorInfo* info = file_.find(name);
    if (!info)
      return Status(Errc::not_found,
                    cat({file_.path(), ": tensor '", name, "' is missing, expected ", shape_text(shape)}));
    if (!std::ranges::equal(info->shape, shape))
      return Status(Errc::bad_format,
                    cat({file_.path(), ": tensor '", name, "' has shape ", shape_text(info->shape),
                         ", expected ", shape_text(shape), " from the configuration"}));
    if (file_.format() == "safetensors" && info->type != "F32" && info->type != "F16" &&
        info->type != "BF16" && info->type != "F64")
      return Status(Errc::unsupported, cat({file_.path(), ": tensor '", name, "' has type ",
                                            printable(info->type), ", expected F32, F16, BF16 or F64"}));
    used_.insert(name);
    QF_TRY(options_.progress.report({"load", name, done_, file_.tensors().size(), "tensors"}));
    ++done_;
    return info;
  }

  Status not_finite(const std::string& name) const {
    return Status(Errc::bad_format, cat({file_.path(), ": tensor '", name, "' holds NaN or infinity"}));
  }

  Status vector(const std::string& name, std::int64_t n, Array<float>& out) {
    const std::int64_t shape[] = {n};
    QF_TRY_ASSIGN(const io::TensorInfo* info, find(name, shape));
    QF_TRY_ASSIGN(out, Array<float>::make(static_cast<std::size_t>(n)));
    QF_TRY(file_.read_f32(*info, 0, out));
    if (!all_finite(out.data(), n)) return not_finite(name);
    return {};
  }

  Status matrix(const std::string& module, kernel::DenseWeight& out) {
    const std::string name = module + ".weight";
    const std::int64_t n = shape_of(module).rows, k = shape_of(module).columns, shape[] = {n, k};
    QF_TRY_ASSIGN(const io::TensorInfo* info, find(name, shape));
    const DType type = info->type == "BF16" ? DType::bf16 : info->type == "F16" ? DType::f16 : DType::f32;
    QF_TRY_ASSIGN(out, kernel::DenseWeight::make(n, k, type));
    const std::int64_t blocks = (n + kRowsAtOnce - 1) / kRowsAtOnce;
    const std::int64_t lanes = std::min<std::int64_t>(blocks, std::max(1, options_.parallel.threads));
    QF_TRY_ASSIGN(Array<float> rows, Array<float>::make(static_cast<std::size_t>(lanes * kRowsAtOnce * k)));
    std::vector<Status> result(static_cast<std::size_t>(lanes));
    parallel_for(options_.parallel, lanes, [&](std::int64_t lane) {
      float* mine = rows.data() + lane * kRowsAtOnce * k;
      for (std::int64_t b = lane; b < blocks; b += lanes) {
        const std::int64_t first = b * kRowsAtOnce, count = std::min(kRowsAtOnce, n - first);
        Status& status = result[static_cast<std::size_t>(lane)];
        status = file_.read_f32(*info, static_cast<std::uint64_t>(first * k),
                                {mine, static_cast<std::size_t>(count * k)});
        if (status.ok() && !all_finite(mine, count * k)) status = not_finite(name);
        if (!status.ok()) return;
        out.fill(first, {mine, {count, k}});
      }
    });
    for (const Status& status : result) QF_TRY(status);
    file_.release(*info);
    return {};
  }

  Result<QuantizedMatrix> low_bit(const std::string& module) {
    if (!quantization_)
      return Status(Errc::bad_format,
                    cat({file_.path(), ": module '", module,
                         "' is stored in few bits, but config.json has no 'quantization_config'"}));
    QF_TRY(options_.progress.report({"load", module, done_, file_.tensors().size(), "tensors"}));
    QF_TRY_ASSIGN(QuantizedMatrix w, io::read_quantized(file_, module, *quantization_));
    const std::int64_t n = shape_of(module).rows, k = shape_of(module).columns;
    if (w.n() != n || w.k() != k)
      return Status(Errc::bad_format,
                    cat({file_.path(), ": module '", module, "' has shape [", num(w.n()), ", ", num(w.k()),
                         "], expected [", num(n), ", ", num(k), "] from the configuration"}));
    for (const char* part :
         {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_shape", ".weight_g_idx"})
      if (const io::TensorInfo* info = file_.find(module + part)) {
        used_.insert(info->name);
        file_.release(*info);
        ++done_;
      }
    return w;
  }

  // A tied checkpoint may carry a copy of the embedding as its head. A copy that differs is an edited or
  // quantized file whose meaning depends on the reader, so it is refused.
  Status check_tied_head(const Embedding& embedding) {
    const std::string name = "lm_head.weight";
    if (!file_.find(name)) return {};
    const std::int64_t n = config_.vocab, k = config_.hidden, shape[] = {n, k};
    QF_TRY_ASSIGN(const io::TensorInfo* info, find(name, shape));
    QF_TRY_ASSIGN(Array<float> mine, Array<float>::make(static_cast<std::size_t>(2 * k)));
    for (std::int64_t r = 0; r < n; ++r) {
      QF_TRY(file_.read_f32(*info, static_cast<std::uint64_t>(r * k),
                            {mine.data(), static_cast<std::size_t>(k)}));
      embedding.copy_row(r, mine.data() + k);
      if (std::memcmp(mine.data(), mine.data() + k, static_cast<std::size_t>(k) * sizeof(float)) != 0)
        return Status(
            Errc::bad_format,
            cat({file_.path(), ": tensor 'lm_head.weight' differs from 'model.embed_tokens.weight' in row ",
                 num(r), ", but 'tie_word_embeddings' says they are one"}));
    }
    file_.release(*info);
    return {};
  }

  Status check_unused() const {
    for (const io::TensorInfo& info : file_.tensors()) {
      if (used_.contains(info.name) || info.name.ends_with("rotary_emb.inv_freq")) continue;
      return Status(Errc::unsupported,
                    cat({file_.path(), ": tensor ", printable(info.name),
                         " belongs to no part of the model that the configuration describes"}));
    }
    return {};
  }

  const io::Checkpoint& file_;
  const ModelConfig& config_;
  const io::QuantizationConfig* quantization_;  // null: the model isn't quantized
  const LoadOptions& options_;
  std::unordered_map<std::string, WeightShape> shapes_;  // by the tensor's name
  std::unordered_set<std::string> used_;
  std::uint64_t done_ = 0;
};

}  // namespace

Status expand(const QuantizedMatrix& w, kernel::DenseWeight& out) {
  const std::int64_t n = w.n(), k = w.k();
  QF_TRY_ASSIGN(out, kernel::DenseWeight::make(n, k));
  QF_TRY_ASSIGN(Array<float> rows, Array<float>::make(static_cast<std::size_t>(kRowsAtOnce * k)));
  for (std::int64_t first = 0; first < n; first += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, n - first);
    for (std::int64_t r = 0; r < count; ++r) w.dequantize_row(first + r, rows.data() + r * k);
    out.fill(first, {rows.data(), {count, k}});
  }
  return {};
}

Status check_weights(const ModelFiles& files) {
  return Loader(files, {}).check();
}

Result<Layer> load_layer(const ModelFiles& files, const LoadOptions& options, std::int64_t index) {
  Layer l;
  QF_TRY(Loader(files, options).layer("model.layers." + num(index) + ".", l));
  return l;
}

Result<Array<float>> load_final_norm(const ModelFiles& files, const LoadOptions& options) {
  Array<float> norm;
  QF_TRY(Loader(files, options).norm("model.norm", norm));
  return norm;
}

// Gives back what reading tokenizers and unpacking took and freed: glibc keeps tens of MiB of it, and packed weights
// have memory of their own.
static void trim_heap() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

Result<Weights> load_weights(const ModelFiles& files, const LoadOptions& options) {
  trim_heap();
  auto weights = Loader(files, options).run();
  trim_heap();
  return weights;
}

}  // namespace qf::model::detail
