#include "src/model_weights.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "qf/io/compressed_tensors.hpp"

namespace qf::model::detail {
namespace {

constexpr std::int64_t kRowsAtOnce = 64;  // a multiple of the 16 rows of a panel

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + num(shape[i]);
  return text + "]";
}

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
        options_(options) {}

  Result<Weights> run() {
    const ModelConfig& c = config_;
    Weights w;
    QF_TRY(matrix("model.embed_tokens.weight", c.vocab, c.hidden, w.embedding));
    w.layers.resize(static_cast<std::size_t>(c.layers));
    for (std::int64_t i = 0; i < c.layers; ++i)
      QF_TRY(layer("model.layers." + num(i) + ".", w.layers[static_cast<std::size_t>(i)]));
    QF_TRY(vector("model.norm.weight", c.hidden, w.final_norm));
    if (c.tied_head) {
      QF_TRY(check_tied_head(w.embedding));
    } else {
      QF_TRY(linear("lm_head", c.vocab, c.hidden, false, w.head));
    }
    QF_TRY(check_unused());
    return w;
  }

 private:
  Status layer(const std::string& prefix, Layer& l) {
    const ModelConfig& c = config_;
    const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
    const std::string attn = prefix + "self_attn.", mlp = prefix + "mlp.";
    QF_TRY(vector(prefix + "input_layernorm.weight", c.hidden, l.attention_norm));
    QF_TRY(vector(prefix + "post_attention_layernorm.weight", c.hidden, l.ffn_norm));
    if (c.fused_qkv) {
      QF_TRY(linear(attn + "qkv_proj", q + 2 * kv, c.hidden, c.qkv_bias, l.qkv));
    } else {
      QF_TRY(linear(attn + "q_proj", q, c.hidden, c.qkv_bias, l.q));
      QF_TRY(linear(attn + "k_proj", kv, c.hidden, c.qkv_bias, l.k));
      QF_TRY(linear(attn + "v_proj", kv, c.hidden, c.qkv_bias, l.v));
    }
    if (c.qk_norm) {
      QF_TRY(vector(attn + "q_norm.weight", c.head_dim, l.q_norm));
      QF_TRY(vector(attn + "k_norm.weight", c.head_dim, l.k_norm));
    }
    QF_TRY(linear(attn + "o_proj", c.hidden, q, c.o_bias, l.o));
    if (c.fused_gate_up) {
      QF_TRY(linear(mlp + "gate_up_proj", 2 * c.ffn, c.hidden, c.mlp_bias, l.gate_up));
    } else {
      QF_TRY(linear(mlp + "gate_proj", c.ffn, c.hidden, c.mlp_bias, l.gate));
      QF_TRY(linear(mlp + "up_proj", c.ffn, c.hidden, c.mlp_bias, l.up));
    }
    return linear(mlp + "down_proj", c.hidden, c.ffn, c.mlp_bias, l.down);
  }

  Status linear(const std::string& name, std::int64_t n, std::int64_t k, bool bias, Linear& out) {
    out.name = name;
    if (io::is_quantized(file_, name)) {
      QF_TRY(low_bit(name, n, k, out));
    } else {
      QF_TRY(matrix(name + ".weight", n, k, out.dense));
    }
    if (bias) QF_TRY(vector(name + ".bias", n, out.bias));
    return {};
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

  Status matrix(const std::string& name, std::int64_t n, std::int64_t k, kernel::DenseWeight& out) {
    const std::int64_t shape[] = {n, k};
    QF_TRY_ASSIGN(const io::TensorInfo* info, find(name, shape));
    QF_TRY_ASSIGN(out, kernel::DenseWeight::make(n, k));
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

  Status low_bit(const std::string& name, std::int64_t n, std::int64_t k, Linear& out) {
    if (!quantization_)
      return Status(Errc::bad_format,
                    cat({file_.path(), ": module '", name,
                         "' is stored in few bits, but config.json has no 'quantization_config'"}));
    QF_TRY(options_.progress.report({"load", name, done_, file_.tensors().size(), "tensors"}));
    QF_TRY_ASSIGN(QuantizedMatrix w, io::read_quantized(file_, name, *quantization_));
    if (w.n() != n || w.k() != k)
      return Status(Errc::bad_format,
                    cat({file_.path(), ": module '", name, "' has shape [", num(w.n()), ", ", num(w.k()),
                         "], expected [", num(n), ", ", num(k), "] from the configuration"}));
    for (const char* part :
         {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_shape", ".weight_g_idx"})
      if (const io::TensorInfo* info = file_.find(name + part)) {
        used_.insert(info->name);
        file_.release(*info);
        ++done_;
      }
    if (options_.compute == Compute::packed) {
      QF_TRY_ASSIGN(out.packed, kernel::prepack(w, {.parallel = options_.parallel}));
      out.is_packed = true;
      return {};
    }
    QF_TRY_ASSIGN(out.dense, kernel::DenseWeight::make(n, k));
    QF_TRY_ASSIGN(Array<float> rows, Array<float>::make(static_cast<std::size_t>(kRowsAtOnce * k)));
    for (std::int64_t first = 0; first < n; first += kRowsAtOnce) {
      const std::int64_t count = std::min(kRowsAtOnce, n - first);
      for (std::int64_t r = 0; r < count; ++r) w.dequantize_row(first + r, rows.data() + r * k);
      out.dense.fill(first, {rows.data(), {count, k}});
    }
    return {};
  }

  // A tied checkpoint may carry a copy of the embedding as its head. A copy that differs is an edited or
  // quantized file whose meaning depends on the reader, so it is refused.
  Status check_tied_head(const kernel::DenseWeight& embedding) {
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
  std::unordered_set<std::string> used_;
  std::uint64_t done_ = 0;
};

}  // namespace

Result<Weights> load_weights(const ModelFiles& files, const LoadOptions& options) {
  return Loader(files, options).run();
}

}  // namespace qf::model::detail
