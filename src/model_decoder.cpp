#include "qf/model/decoder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "qf/kernel/attention.hpp"
#include "qf/kernel/small_ops.hpp"
#include "qf/model/kv_flat.hpp"
#include "src/model_folder.hpp"
#include "src/model_rope.hpp"
#include "src/model_weights.hpp"

namespace qf::model {
namespace {

using detail::Layer;
using detail::Linear;

constexpr std::int64_t kBlock = 512;  // tokens that go through a layer together

// Scratch memory of products: one block that is lent again and again, so that running on allocates nothing. More
// than one block at a time comes from the system.
class KeptMemory {
 public:
  KeptMemory() = default;
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
  ~KeptMemory() { system().release(system().user, block_, size_); }
  Allocator allocator() { return {take, give, this}; }

 private:
  static const Allocator& system() { return default_allocator(); }
  static void* take(void* user, std::size_t bytes, std::size_t alignment) {
    KeptMemory& me = *static_cast<KeptMemory*>(user);
    if (me.lent_) return system().allocate(system().user, bytes, alignment);
    if (bytes > me.size_) {
      system().release(system().user, me.block_, me.size_);
      me.size_ = 0;
      me.block_ = system().allocate(system().user, bytes, alignment);
      if (me.block_) me.size_ = bytes;
    }
    me.lent_ = me.block_ != nullptr;
    return me.block_;
  }
  static void give(void* user, void* pointer, std::size_t bytes) {
    KeptMemory& me = *static_cast<KeptMemory*>(user);
    if (pointer == me.block_)
      me.lent_ = false;
    else
      system().release(system().user, pointer, bytes);
  }

  void* block_ = nullptr;
  std::size_t size_ = 0;
  bool lent_ = false;
};

// Every buffer that forward() needs for up to `rows` tokens; kept between calls.
struct Scratch {
  std::int64_t rows = 0;
  Array<float> hidden, normed, added, q, k, v, qkv, attended, gate_up, cosine, sine;
  kernel::AttentionScratch attention;
};

class LlamaDecoder final : public Decoder {
 public:
  LlamaDecoder(ModelConfig config, detail::Weights weights, LoadOptions options)
      : config_(std::move(config)), weights_(std::move(weights)), options_(options) {
    short_rope_ = detail::rope_frequencies(config_, false);
    long_rope_ = detail::rope_frequencies(config_, true);
    for (std::int64_t h = 0; h < config_.kv_heads; ++h) {
      keys_.push_back(nullptr), values_.push_back(nullptr);
      key_stride_.push_back(0), value_stride_.push_back(0);
    }
    for (const void*& keys : keys_) key_pages_.push_back(&keys);
    for (const void*& values : values_) value_pages_.push_back(&values);
  }

  const ModelConfig& config() const override { return config_; }

  Result<std::unique_ptr<KvStore>> make_kv(std::int64_t capacity) const override {
    if (options_.accuracy == kernel::Accuracy::fast) {
      QF_TRY_ASSIGN(auto kv, KvF16::make(config_.layers, config_.kv_heads, config_.head_dim, capacity));
      return std::unique_ptr<KvStore>(std::move(kv));
    }
    QF_TRY_ASSIGN(auto kv, KvF32::make(config_.layers, config_.kv_heads, config_.head_dim, capacity));
    return std::unique_ptr<KvStore>(std::move(kv));
  }

  Status forward(std::span<const std::int32_t> tokens, KvStore& kv, MatrixView<float> logits) override {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const std::int64_t wanted = logits.shape[0], start = kv.length();
    if (wanted < 0 || wanted > count || (wanted > 0 && logits.shape[1] != config_.vocab))
      return Status(Errc::invalid_argument,
                    cat({"logits of shape [", num(wanted), ", ", num(logits.shape[1]), "] for ", num(count),
                         " tokens and a vocabulary of ", num(config_.vocab)}));
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (tokens[i] < 0 || tokens[i] >= config_.vocab)
        return Status(Errc::invalid_argument, cat({"token ", num(i), " has id ", num(tokens[i]),
                                                   ", expected 0 to ", num(config_.vocab - 1)}));
    if (count > kv.capacity() - start)
      return Status(Errc::invalid_argument,
                    cat({"the cache is full: ", num(start), " of ", num(kv.capacity()), " tokens held, ",
                         num(count), " more don't fit"}));
    QF_TRY(reserve(std::min(count, kBlock)));
    for (std::int64_t done = 0; done < count; done += kBlock) {
      const std::int64_t n = std::min(kBlock, count - done);
      const std::int64_t first_wanted = std::max<std::int64_t>(0, count - wanted - done);
      Status status = block(tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(n)), kv);
      if (status.ok() && first_wanted < n)
        status = head(first_wanted, n, logits, done + first_wanted - (count - wanted));
      if (!status.ok()) {
        if (kv.length() > start) QF_TRY(kv.truncate(start));
        return status;
      }
    }
    return {};
  }

  std::uint64_t weight_bytes() const override {
    std::uint64_t sum =
        weights_.embedding.bytes() + weights_.final_norm.size() * sizeof(float) + weights_.head.bytes();
    for (const Layer& l : weights_.layers) {
      for (const Linear* linear : {&l.q, &l.k, &l.v, &l.qkv, &l.o, &l.gate, &l.up, &l.gate_up, &l.down})
        sum += linear->bytes();
      for (const Array<float>* norm : {&l.attention_norm, &l.ffn_norm, &l.q_norm, &l.k_norm})
        sum += norm->size() * sizeof(float);
    }
    return sum;
  }

 private:
  std::int64_t q_dim() const { return config_.heads * config_.head_dim; }
  std::int64_t kv_dim() const { return config_.kv_heads * config_.head_dim; }

  Status reserve(std::int64_t rows) {
    if (rows <= scratch_.rows) return {};
    Scratch s;
    const auto take = [&](Array<float>& array, std::int64_t width) -> Status {
      QF_TRY_ASSIGN(array, Array<float>::make(static_cast<std::size_t>(rows * width)));
      return {};
    };
    const std::int64_t pairs = detail::rotary_dims(config_) / 2;
    QF_TRY(take(s.hidden, config_.hidden));
    QF_TRY(take(s.normed, config_.hidden));
    QF_TRY(take(s.added, config_.hidden));
    QF_TRY(take(s.q, q_dim()));
    QF_TRY(take(s.k, kv_dim()));
    QF_TRY(take(s.v, kv_dim()));
    if (config_.fused_qkv) QF_TRY(take(s.qkv, q_dim() + 2 * kv_dim()));
    QF_TRY(take(s.attended, q_dim()));
    QF_TRY(take(s.gate_up, 2 * config_.ffn));
    QF_TRY(take(s.cosine, pairs));
    QF_TRY(take(s.sine, pairs));
    s.rows = rows;
    scratch_ = std::move(s);
    return {};
  }

  // f(row) for every row of a block, several rows a task.
  template <class F>
  void for_rows(std::int64_t rows, F&& f) const {
    constexpr std::int64_t kStep = 16;
    parallel_for(options_.parallel, (rows + kStep - 1) / kStep, [&](std::int64_t task) {
      for (std::int64_t r = task * kStep; r < std::min(rows, (task + 1) * kStep); ++r) f(r);
    });
  }

  // Rows [first, end): what a layer has added joins the hidden state, which is then normalized. One pass over
  // memory and one meeting of the threads.
  void add_and_norm(const Array<float>& weight, std::int64_t first, std::int64_t end, bool add) {
    const std::int64_t n = config_.hidden;
    for_rows(end - first, [&](std::int64_t r) {
      float* hidden = scratch_.hidden.data() + (first + r) * n;
      if (add) kernel::add(hidden, scratch_.added.data() + (first + r) * n, n);
      kernel::rms_norm(hidden, weight.data(), n, config_.norm_eps, scratch_.normed.data() + (first + r) * n);
    });
  }

  // Sines and cosines of positions [position, position + rows), shared by all layers.
  void make_angles(std::int64_t position, std::int64_t rows, bool long_context) {
    const detail::RopeFrequencies& rope = long_context ? long_rope_ : short_rope_;
    const auto pairs = static_cast<std::int64_t>(rope.per_token.size());
    for_rows(rows, [&](std::int64_t r) {
      for (std::int64_t i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(position + r) * rope.per_token[static_cast<std::size_t>(i)];
        scratch_.cosine.data()[r * pairs + i] = static_cast<float>(std::cos(angle) * rope.magnitude);
        scratch_.sine.data()[r * pairs + i] = static_cast<float>(std::sin(angle) * rope.magnitude);
      }
    });
  }

  // Normalizes (where the model does) and rotates all heads of one token.
  void prepare_heads(float* x, std::int64_t heads, const Array<float>& norm, std::int64_t row) const {
    const std::int64_t d = config_.head_dim, pairs = detail::rotary_dims(config_) / 2;
    const float *cosine = scratch_.cosine.data() + row * pairs, *sine = scratch_.sine.data() + row * pairs;
    for (std::int64_t h = 0; h < heads; ++h, x += d) {
      if (!norm.empty()) kernel::rms_norm(x, norm.data(), d, config_.norm_eps, x);
      kernel::rope(x, cosine, sine, pairs);
    }
  }

  Status project_qkv(const Layer& l, std::int64_t rows) {
    Scratch& s = scratch_;
    const std::int64_t q = q_dim(), kv = kv_dim();
    const MatrixView<const float> x(s.normed.data(), {rows, config_.hidden});
    if (config_.fused_qkv) {
      QF_TRY(l.qkv.apply(x, {s.qkv.data(), {rows, q + 2 * kv}}, matmul_));
    } else {
      const MatrixView<float> to[] = {
          {s.q.data(), {rows, q}}, {s.k.data(), {rows, kv}}, {s.v.data(), {rows, kv}}};
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
        const float* from = s.qkv.data() + r * (q + 2 * kv);
        std::memcpy(s.q.data() + r * q, from, static_cast<std::size_t>(q) * sizeof(float));
        std::memcpy(s.k.data() + r * kv, from + q, static_cast<std::size_t>(kv) * sizeof(float));
        std::memcpy(s.v.data() + r * kv, from + q + kv, static_cast<std::size_t>(kv) * sizeof(float));
      }
      prepare_heads(s.q.data() + r * q, config_.heads, l.q_norm, r);
      prepare_heads(s.k.data() + r * kv, config_.kv_heads, l.k_norm, r);
    });
    return {};
  }

  Status attend(std::int64_t layer, std::int64_t rows, KvStore& kv) {
    Scratch& s = scratch_;
    QF_TRY(kv.append(layer, rows, s.k.data(), s.v.data()));
    for (std::int64_t h = 0; h < config_.kv_heads; ++h) {
      const auto i = static_cast<std::size_t>(h);
      keys_[i] = kv.keys(layer, h, &key_stride_[i]);
      values_[i] = kv.values(layer, h, &value_stride_[i]);
    }
    kernel::AttentionArgs a;
    a.tokens = rows, a.heads = config_.heads, a.kv_heads = config_.kv_heads, a.head_dim = config_.head_dim;
    a.position = kv.length();
    const auto& windows = config_.layer_uses_window;
    a.window = windows.empty() || windows[static_cast<std::size_t>(layer)] ? config_.sliding_window : 0;
    a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.head_dim)));
    a.q = {s.q.data(), {rows, q_dim()}};
    a.kv_type = kv.dtype();
    a.key_pages = key_pages_, a.value_pages = value_pages_;
    a.key_stride = key_stride_, a.value_stride = value_stride_;
    a.out = {s.attended.data(), {rows, q_dim()}};
    return kernel::attention(a, s.attention, options_.parallel);
  }

  Status feed_forward(const Layer& l, std::int64_t rows) {
    Scratch& s = scratch_;
    const std::int64_t ffn = config_.ffn;
    const MatrixView<const float> x(s.normed.data(), {rows, config_.hidden});
    const bool fused = config_.fused_gate_up;
    const std::int64_t stride = fused ? 2 * ffn : ffn;
    const MatrixView<float> gate(s.gate_up.data(), {rows, ffn}, {stride, 1}),
        up(s.gate_up.data() + (fused ? ffn : rows * ffn), {rows, ffn}, {stride, 1});
    if (!fused && l.gate.is_packed && l.up.is_packed && l.gate.bias.empty() && l.up.bias.empty()) {
      QF_TRY(kernel::matmul_swiglu(x, l.gate.packed, l.up.packed, gate, matmul_));
    } else {
      if (fused) {
        QF_TRY(l.gate_up.apply(x, {s.gate_up.data(), {rows, 2 * ffn}}, matmul_));
      } else {
        QF_TRY(l.gate.apply(x, gate, matmul_));
        QF_TRY(l.up.apply(x, up, matmul_));
      }
      for_rows(rows, [&](std::int64_t r) { kernel::silu_mul(gate.row(r), up.row(r), ffn); });
    }
    return l.down.apply(gate, {s.added.data(), {rows, config_.hidden}}, matmul_);
  }

  // One block of tokens through all layers. On an error nothing of it is committed.
  Status block(std::span<const std::int32_t> tokens, KvStore& kv) {
    Scratch& s = scratch_;
    const auto rows = static_cast<std::int64_t>(tokens.size());
    const std::int64_t hidden = config_.hidden;
    make_angles(kv.length(), rows, kv.capacity() > config_.rope.original_context);
    for_rows(rows, [&](std::int64_t r) {
      weights_.embedding.copy_row(tokens[static_cast<std::size_t>(r)], s.hidden.data() + r * hidden);
    });
    for (std::int64_t i = 0; i < config_.layers; ++i) {
      const Layer& l = weights_.layers[static_cast<std::size_t>(i)];
      add_and_norm(l.attention_norm, 0, rows, i > 0);
      QF_TRY(project_qkv(l, rows));
      QF_TRY(attend(i, rows, kv));
      QF_TRY(l.o.apply(MatrixView<const float>(s.attended.data(), {rows, q_dim()}),
                       {s.added.data(), {rows, hidden}}, matmul_));
      add_and_norm(l.ffn_norm, 0, rows, true);
      QF_TRY(feed_forward(l, rows));
    }
    kv.commit(rows);
    return {};
  }

  // Logits of rows [first, end) of the block into `logits` from row `to` on.
  Status head(std::int64_t first, std::int64_t end, MatrixView<float> logits, std::int64_t to) {
    add_and_norm(weights_.final_norm, first, end, config_.layers > 0);
    const MatrixView<const float> x(scratch_.normed.data() + first * config_.hidden,
                                    {end - first, config_.hidden});
    const MatrixView<float> y(logits.row(to), {end - first, config_.vocab}, logits.stride);
    if (!weights_.has_head())
      return kernel::dense_matmul(x, weights_.embedding.dense, y, {}, options_.parallel);
    return weights_.head.apply(x, y, matmul_);
  }

  ModelConfig config_;
  detail::Weights weights_;
  LoadOptions options_;
  KeptMemory memory_;
  const Allocator allocator_ = memory_.allocator();
  const kernel::MatmulOptions matmul_{
      .accuracy = options_.accuracy, .parallel = options_.parallel, .allocator = &allocator_};
  detail::RopeFrequencies short_rope_, long_rope_;
  Scratch scratch_;
  std::vector<const void*> keys_, values_;  // [kv_heads], of the layer at hand
  std::vector<const void*const*> key_pages_, value_pages_;
  std::vector<std::int64_t> key_stride_, value_stride_;
};

}  // namespace

Result<std::unique_ptr<Decoder>> Decoder::load(const std::string& path, const LoadOptions& options) {
  try {
    QF_TRY_ASSIGN(detail::ModelFiles files, detail::open_model(path));
    QF_TRY_ASSIGN(detail::Weights weights, detail::load_weights(files, options));
    return std::unique_ptr<Decoder>(new LlamaDecoder(std::move(files.config), std::move(weights), options));
  } catch (const std::bad_alloc&) {
    return Status(Errc::out_of_memory, cat({path, ": no memory for the model"}));
  }
}

}  // namespace qf::model
