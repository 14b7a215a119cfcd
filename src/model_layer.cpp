#include "src/model_layer.hpp"

#include <cmath>
#include <cstring>

#include "qf/kernel/small_ops.hpp"

namespace qf::model::detail {

Status LayerMath::reserve(std::int64_t rows) {
  if (rows <= rows_) return {};
  rows_ = 0;
  const auto take = [&](Array<float>& array, std::int64_t width) -> Status {
    array = {};
    QF_TRY_ASSIGN(array, Array<float>::make(static_cast<std::size_t>(rows * width)));
    return {};
  };
  const std::int64_t pairs = rotary_dims(config_) / 2;
  QF_TRY(take(q_, q_dim()));
  QF_TRY(take(k_, kv_dim()));
  QF_TRY(take(v_, kv_dim()));
  if (config_.fused_qkv) QF_TRY(take(qkv_, q_dim() + 2 * kv_dim()));
  QF_TRY(take(gate_up_, 2 * config_.ffn));
  QF_TRY(take(cosine_, pairs));
  QF_TRY(take(sine_, pairs));
  rows_ = rows;
  return {};
}

void LayerMath::add_and_norm(const Array<float>& weight, std::int64_t rows, float* hidden, const float* added,
                             float* normed) const {
  const std::int64_t n = config_.hidden;
  for_rows(rows, [&](std::int64_t r) {
    float* mine = hidden + r * n;
    if (added) kernel::add(mine, added + r * n, n);
    kernel::rms_norm(mine, weight.data(), n, config_.norm_eps, normed + r * n);
  });
}

void LayerMath::norm(const Array<float>& weight, std::int64_t rows, const float* x, float* normed) const {
  const std::int64_t n = config_.hidden;
  for_rows(rows, [&](std::int64_t r) {
    kernel::rms_norm(x + r * n, weight.data(), n, config_.norm_eps, normed + r * n);
  });
}

void LayerMath::add(std::int64_t rows, float* hidden, const float* added) const {
  const std::int64_t n = config_.hidden;
  for_rows(rows, [&](std::int64_t r) { kernel::add(hidden + r * n, added + r * n, n); });
}

void LayerMath::make_angles(std::int64_t position, std::int64_t rows, bool long_context) {
  const RopeFrequencies& rope = long_context ? long_rope_ : short_rope_;
  const auto pairs = static_cast<std::int64_t>(rope.per_token.size());
  for_rows(rows, [&](std::int64_t r) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(position + r) * rope.per_token[static_cast<std::size_t>(i)];
      cosine_.data()[r * pairs + i] = static_cast<float>(std::cos(angle) * rope.magnitude);
      sine_.data()[r * pairs + i] = static_cast<float>(std::sin(angle) * rope.magnitude);
    }
  });
}

// Normalizes (where the model does) and rotates all heads of one token.
void LayerMath::prepare_heads(float* x, std::int64_t heads, const Array<float>& norm,
                              std::int64_t row) const {
  const std::int64_t d = config_.head_dim, pairs = rotary_dims(config_) / 2;
  const float *cosine = cosine_.data() + row * pairs, *sine = sine_.data() + row * pairs;
  for (std::int64_t h = 0; h < heads; ++h, x += d) {
    if (!norm.empty()) kernel::rms_norm(x, norm.data(), d, config_.norm_eps, x);
    kernel::rope(x, cosine, sine, pairs);
  }
}

Status LayerMath::project_qkv(const Layer& l, MatrixView<const float> x) {
  const std::int64_t rows = x.shape[0], q = q_dim(), kv = kv_dim();
  if (config_.fused_qkv) {
    QF_TRY(l.qkv.apply(x, {qkv_.data(), {rows, q + 2 * kv}}, matmul_));
  } else {
    const MatrixView<float> to[] = {{q_.data(), {rows, q}}, {k_.data(), {rows, kv}}, {v_.data(), {rows, kv}}};
    const Linear* const of[] = {&l.q, &l.k, &l.v};
    if (l.q.is_packed && l.k.is_packed && l.v.is_packed) {  // threads meet once, x is prepared once
      kernel::Product products[3];
      for (int i = 0; i < 3; ++i) products[i] = {x, &of[i]->packed, to[i], of[i]->bias};
      QF_TRY(kernel::matmul(products, matmul_));
    } else {
      for (int i = 0; i < 3; ++i) QF_TRY(of[i]->apply(x, to[i], matmul_));
    }
  }
  for_rows(rows, [&](std::int64_t r) {
    if (config_.fused_qkv) {
      const float* from = qkv_.data() + r * (q + 2 * kv);
      std::memcpy(q_.data() + r * q, from, static_cast<std::size_t>(q) * sizeof(float));
      std::memcpy(k_.data() + r * kv, from + q, static_cast<std::size_t>(kv) * sizeof(float));
      std::memcpy(v_.data() + r * kv, from + q + kv, static_cast<std::size_t>(kv) * sizeof(float));
    }
    prepare_heads(q_.data() + r * q, config_.heads, l.q_norm, r);
    prepare_heads(k_.data() + r * kv, config_.kv_heads, l.k_norm, r);
  });
  return {};
}

Status LayerMath::attend(std::int64_t layer, std::int64_t rows, std::int64_t position,
                         kernel::AttentionArgs args) {
  args.tokens = rows, args.heads = config_.heads, args.kv_heads = config_.kv_heads;
  args.head_dim = config_.head_dim;
  args.position = position;
  const auto& windows = config_.layer_uses_window;
  args.window = windows.empty() || windows[static_cast<std::size_t>(layer)] ? config_.sliding_window : 0;
  args.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.head_dim)));
  args.q = {q_.data(), {rows, q_dim()}};
  return kernel::attention(args, attention_, matmul_.parallel);
}

Result<MatrixView<const float>> LayerMath::activate(const Layer& l, MatrixView<const float> x) {
  const std::int64_t rows = x.shape[0], ffn = config_.ffn;
  const bool fused = config_.fused_gate_up;
  const std::int64_t stride = fused ? 2 * ffn : ffn;
  const MatrixView<float> gate(gate_up_.data(), {rows, ffn}, {stride, 1}),
      up(gate_up_.data() + (fused ? ffn : rows * ffn), {rows, ffn}, {stride, 1});
  if (!fused && l.gate.is_packed && l.up.is_packed && l.gate.bias.empty() && l.up.bias.empty()) {
    QF_TRY(kernel::matmul_swiglu(x, l.gate.packed, l.up.packed, gate, matmul_));
  } else {
    if (fused) {
      QF_TRY(l.gate_up.apply(x, {gate_up_.data(), {rows, 2 * ffn}}, matmul_));
    } else {
      QF_TRY(l.gate.apply(x, gate, matmul_));
      QF_TRY(l.up.apply(x, up, matmul_));
    }
    for_rows(rows, [&](std::int64_t r) { kernel::silu_mul(gate.row(r), up.row(r), ffn); });
  }
  return MatrixView<const float>(gate);
}

}  // namespace qf::model::detail
