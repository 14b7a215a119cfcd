#include "qf/model/decoder.hpp"

#include <algorithm>
#include <new>

#include "qf/model/kv_flat.hpp"
#include "src/model_folder.hpp"
#include "src/model_layer.hpp"
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

// What forward() keeps of up to `rows` tokens between the parts of a layer; kept between calls.
struct Scratch {
  std::int64_t rows = 0;
  Array<float> hidden, normed, added, attended;
};

class LlamaDecoder final : public Decoder {
 public:
  LlamaDecoder(ModelConfig config, detail::Weights weights, LoadOptions options)
      : config_(std::move(config)), weights_(std::move(weights)), options_(options) {
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
  Status reserve(std::int64_t rows) {
    QF_TRY(math_.reserve(rows));
    if (rows <= scratch_.rows) return {};
    Scratch s;
    const auto take = [&](Array<float>& array, std::int64_t width) -> Status {
      QF_TRY_ASSIGN(array, Array<float>::make(static_cast<std::size_t>(rows * width)));
      return {};
    };
    QF_TRY(take(s.hidden, config_.hidden));
    QF_TRY(take(s.normed, config_.hidden));
    QF_TRY(take(s.added, config_.hidden));
    QF_TRY(take(s.attended, math_.q_dim()));
    s.rows = rows;
    scratch_ = std::move(s);
    return {};
  }

  Status attend(std::int64_t layer, std::int64_t rows, KvStore& kv) {
    QF_TRY(kv.append(layer, rows, math_.keys(), math_.values()));
    for (std::int64_t h = 0; h < config_.kv_heads; ++h) {
      const auto i = static_cast<std::size_t>(h);
      keys_[i] = kv.keys(layer, h, &key_stride_[i]);
      values_[i] = kv.values(layer, h, &value_stride_[i]);
    }
    kernel::AttentionArgs a;
    a.kv_type = kv.dtype();
    a.key_pages = key_pages_, a.value_pages = value_pages_;
    a.key_stride = key_stride_, a.value_stride = value_stride_;
    a.out = {scratch_.attended.data(), {rows, math_.q_dim()}};
    return math_.attend(layer, rows, kv.length(), a);
  }

  // One block of tokens through all layers. On an error nothing of it is committed.
  Status block(std::span<const std::int32_t> tokens, KvStore& kv) {
    Scratch& s = scratch_;
    const auto rows = static_cast<std::int64_t>(tokens.size());
    const std::int64_t hidden = config_.hidden;
    const MatrixView<const float> normed(s.normed.data(), {rows, hidden});
    const MatrixView<float> added(s.added.data(), {rows, hidden});
    math_.make_angles(kv.length(), rows, kv.capacity() > config_.rope.original_context);
    math_.for_rows(rows, [&](std::int64_t r) {
      weights_.embedding.copy_row(tokens[static_cast<std::size_t>(r)], s.hidden.data() + r * hidden);
    });
    for (std::int64_t i = 0; i < config_.layers; ++i) {
      const Layer& l = weights_.layers[static_cast<std::size_t>(i)];
      math_.add_and_norm(l.attention_norm, rows, s.hidden.data(), i > 0 ? s.added.data() : nullptr,
                         s.normed.data());
      QF_TRY(math_.project_qkv(l, normed));
      QF_TRY(attend(i, rows, kv));
      QF_TRY(l.o.apply(MatrixView<const float>(s.attended.data(), {rows, math_.q_dim()}), added, matmul_));
      math_.add_and_norm(l.ffn_norm, rows, s.hidden.data(), s.added.data(), s.normed.data());
      QF_TRY_ASSIGN(const MatrixView<const float> activated, math_.activate(l, normed));
      QF_TRY(l.down.apply(activated, added, matmul_));
    }
    kv.commit(rows);
    return {};
  }

  // Logits of rows [first, end) of the block into `logits` from row `to` on.
  Status head(std::int64_t first, std::int64_t end, MatrixView<float> logits, std::int64_t to) {
    const std::int64_t at = first * config_.hidden;
    math_.add_and_norm(weights_.final_norm, end - first, scratch_.hidden.data() + at,
                       config_.layers > 0 ? scratch_.added.data() + at : nullptr,
                       scratch_.normed.data() + at);
    const MatrixView<const float> x(scratch_.normed.data() + at, {end - first, config_.hidden});
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
  detail::LayerMath math_{config_, matmul_};
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
