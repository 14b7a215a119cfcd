// One block of a decoder from qf's kernels: norm, q, k and v in one call, rotary embedding, attention over paged keys and values,
// gated feed-forward. Link qf::qf. A prompt at once and tokens one by one must give the same.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "qf/kernel/attention.hpp"
#include "qf/kernel/matmul.hpp"
#include "qf/kernel/small_ops.hpp"
#include "qf/quant/rtn.hpp"

namespace kernel = qf::kernel;
using qf::MatrixView;
using std::int64_t;

constexpr int64_t kHidden = 128, kHeads = 4, kKvHeads = 2, kDim = 32, kKv = kKvHeads * kDim, kFfn = 320,
                  kPage = 16;

struct Rows : std::vector<float> {
  Rows(int64_t rows, int64_t columns)
      : std::vector<float>(static_cast<std::size_t>(rows * columns)), view(data(), {rows, columns}) {}
  MatrixView<float> view;
};

qf::Result<kernel::PackedWeight> make_weight(int64_t n, int64_t columns, int seed) {
  Rows w(n, columns);
  for (std::size_t i = 0; i < w.size(); ++i)
    w[i] = 0.1f * std::sin(0.37f * static_cast<float>(i) +
                           static_cast<float>(seed + static_cast<int>(i % 251 * (i % 13))));
  qf::quant::QuantizerInput in;
  in.w = w.view;
  in.scheme = {.bits = 4, .group = 64};
  in.name = "example";
  QF_TRY_ASSIGN(const qf::QuantizedMatrix quantized, qf::quant::Rtn().quantize(in));
  return kernel::prepack(quantized);
}

// Keys and values of one text; a page holds kPage tokens of one KV head.
struct Cache {
  int64_t tokens = 0;
  std::vector<std::vector<float>> pages[2][kKvHeads];
  std::vector<const void*> table[2][kKvHeads];
  const void* const* heads[2][kKvHeads] = {};

  void append(int side, const float* row) {
    for (int64_t h = 0; h < kKvHeads; ++h, row += kDim) {
      if (tokens % kPage == 0) {
        pages[side][h].emplace_back(static_cast<std::size_t>(kPage * kDim));
        table[side][h].push_back(pages[side][h].back().data());
        heads[side][h] = table[side][h].data();
      }
      std::copy_n(row, kDim, pages[side][h].back().data() + tokens % kPage * kDim);
    }
  }
};

struct Block {
  kernel::PackedWeight q, k, v, o, gate, up, down;
  std::vector<float> attention_norm, ffn_norm;

  static qf::Result<Block> make() {
    Block b;
    QF_TRY_ASSIGN(b.q, make_weight(kHeads * kDim, kHidden, 1));
    QF_TRY_ASSIGN(b.k, make_weight(kKv, kHidden, 2));
    QF_TRY_ASSIGN(b.v, make_weight(kKv, kHidden, 3));
    QF_TRY_ASSIGN(b.o, make_weight(kHidden, kHeads * kDim, 4));
    QF_TRY_ASSIGN(b.gate, make_weight(kFfn, kHidden, 5));
    QF_TRY_ASSIGN(b.up, make_weight(kFfn, kHidden, 6));
    QF_TRY_ASSIGN(b.down, make_weight(kHidden, kFfn, 7));
    b.attention_norm.assign(kHidden, 1.0f);
    b.ffn_norm.assign(kHidden, 0.5f);
    return b;
  }

  // x [rows, kHidden]: the next tokens of the text go through the block, in place.
  qf::Status forward(MatrixView<float> x, Cache& kv, const qf::ParallelFor& parallel) const {
    const int64_t rows = x.shape[0];
    Rows normed(rows, kHidden), query(rows, kHeads * kDim), key(rows, kKv), value(rows, kKv),
        attended(rows, kHeads * kDim), wide(rows, kFfn), added(rows, kHidden);
    const kernel::MatmulOptions options{.parallel = parallel};
    for (int64_t r = 0; r < rows; ++r)
      kernel::rms_norm(x.row(r), attention_norm.data(), kHidden, 1e-5, normed.view.row(r));
    const kernel::Product products[] = {
        {normed.view, &q, query.view}, {normed.view, &k, key.view}, {normed.view, &v, value.view}};
    QF_TRY(kernel::matmul(products, options));
    const int64_t position = kv.tokens;
    for (int64_t r = 0; r < rows; ++r, ++kv.tokens) {
      float cosine[kDim / 2], sine[kDim / 2];
      for (int i = 0; i < kDim / 2; ++i) {
        const double angle = static_cast<double>(position + r) * std::pow(1e4, -2.0 * i / kDim);
        cosine[i] = static_cast<float>(std::cos(angle)), sine[i] = static_cast<float>(std::sin(angle));
      }
      for (int64_t h = 0; h < kHeads; ++h) kernel::rope(query.view.row(r) + h * kDim, cosine, sine, kDim / 2);
      for (int64_t h = 0; h < kKvHeads; ++h) kernel::rope(key.view.row(r) + h * kDim, cosine, sine, kDim / 2);
      kv.append(0, key.view.row(r));
      kv.append(1, value.view.row(r));
    }
    constexpr int64_t kStride[kKvHeads] = {kDim, kDim};
    kernel::AttentionArgs a;
    a.tokens = rows, a.heads = kHeads, a.kv_heads = kKvHeads, a.head_dim = kDim, a.position = position;
    a.scale = 1 / std::sqrt(static_cast<float>(kDim));
    a.q = query.view, a.out = attended.view, a.page_tokens = kPage;
    a.key_pages = kv.heads[0], a.value_pages = kv.heads[1], a.key_stride = kStride, a.value_stride = kStride;
    kernel::AttentionScratch scratch;
    QF_TRY(kernel::attention(a, scratch, parallel));
    QF_TRY(kernel::matmul(MatrixView<const float>(attended.view), o, added.view, {}, options));
    for (int64_t r = 0; r < rows; ++r) {
      kernel::add(x.row(r), added.view.row(r), kHidden);
      kernel::rms_norm(x.row(r), ffn_norm.data(), kHidden, 1e-5, normed.view.row(r));
    }
    QF_TRY(kernel::matmul_swiglu(normed.view, gate, up, wide.view, options));
    QF_TRY(kernel::matmul(MatrixView<const float>(wide.view), down, added.view, {}, options));
    for (int64_t r = 0; r < rows; ++r) kernel::add(x.row(r), added.view.row(r), kHidden);
    return {};
  }
};

qf::Result<double> difference() {
  constexpr int64_t kTokens = 45, kPrompt = 37;
  QF_TRY_ASSIGN(const Block block, Block::make());
  qf::ThreadPool pool(2);
  Rows whole(kTokens, kHidden), parts(kTokens, kHidden);
  for (std::size_t i = 0; i < whole.size(); ++i)
    whole[i] = parts[i] = std::cos(0.11f * static_cast<float>(i));
  Cache first, second;
  QF_TRY(block.forward(whole.view, first, pool.parallel_for()));
  QF_TRY(block.forward({parts.data(), {kPrompt, kHidden}}, second, pool.parallel_for()));
  for (int64_t t = kPrompt; t < kTokens; ++t)
    QF_TRY(block.forward({parts.view.row(t), {1, kHidden}}, second, pool.parallel_for()));
  double off = 0, size = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    off += std::pow(static_cast<double>(whole[i]) - static_cast<double>(parts[i]), 2);
    size += std::pow(static_cast<double>(whole[i]), 2);
  }
  return std::sqrt(off / size);
}

int main() {
  const auto found = difference();
  if (!found.ok()) return std::fprintf(stderr, "%s\n", found.status().text().c_str()), 1;
  std::printf("a prompt at once and tokens one by one differ by %.1e\n", *found);
  return *found < 1e-5 ? 0 : 1;
}
