#include "qf/kernel/attention.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "qf/core/align.hpp"
#include "src/kernel_stored.hpp"

namespace qf::kernel {
namespace {

using detail::dense_ops;
using detail::DenseOps;
using detail::kPanel;
using detail::kTileRows;
using detail::Stored;
using detail::Sum;
using detail::TileArgs;

constexpr std::int64_t kStretch = 256;   // keys with one largest score and one sum
constexpr std::int64_t kMostPanels = 4;  // of 16 keys, that are transposed together
constexpr std::int64_t kFewRows = 12;    // that don't take longer to compute than to read
constexpr std::int64_t kAhead = 16;      // keys
constexpr std::int64_t kRowsAtOnce =
    96;  // enough to pay for transposing keys; their scores stay in the cache

// Rows of keys or values of one KV head.
struct Rows {
  const void* const* pages;
  std::int64_t page_tokens, stride_bytes;  // page_tokens 0: one page
  const void* at(std::int64_t token) const {
    const std::int64_t page = page_tokens ? token / page_tokens : 0;
    return static_cast<const std::byte*>(pages[page]) + (token - page * page_tokens) * stride_bytes;
  }
  // kPanel tokens from `token` on; those outside [first, last) are stood in for by the nearest that isn't.
  void find(std::int64_t token, std::int64_t first, std::int64_t last, const void** rows) const {
    const bool plain = token >= first && token + kPanel <= last && run(token, token + kPanel) == kPanel;
    const auto* begin = static_cast<const std::byte*>(plain ? at(token) : nullptr);
    for (int i = 0; i < kPanel; ++i)
      rows[i] = plain ? begin + i * stride_bytes : at(std::clamp(token + i, first, last - 1));
  }
  // Tokens from `token` on, up to `end`, that lie in one page.
  std::int64_t run(std::int64_t token, std::int64_t end) const {
    return page_tokens ? std::min(end - token, page_tokens - token % page_tokens) : end - token;
  }
};

struct Range {
  std::int64_t begin, end;
  bool empty() const { return begin >= end; }
};

// What a task needs: the query heads of one KV head for a run of tokens. Its rows go by token, then head.
struct Scratch {
  float *q, *panels, *scores, *out, *most,
      *sum;  // [rows][d], [4][d][16], [rows][256], [rows][d], [rows] twice
  static std::size_t size(std::int64_t rows, std::int64_t d) {
    return static_cast<std::size_t>(
        round_up(2 * rows * d + kMostPanels * kPanel * d + rows * kStretch + 2 * rows, kPanel));
  }
  Scratch(float* memory, std::int64_t rows, std::int64_t d)
      : q(memory),
        panels(q + rows * d),
        scores(panels + kMostPanels * kPanel * d),
        out(scores + rows * kStretch),
        most(out + rows * d),
        sum(most + rows) {}
};

// What stretches add up to: out [rows][d] with the sum and the largest score of each row; sum 0: nothing yet.
struct Total {
  float *out, *most, *sum;
  static std::int64_t size(std::int64_t rows, std::int64_t d) { return rows * d + 2 * rows; }
  Total(float* memory, std::int64_t rows, std::int64_t d)
      : out(memory), most(memory + rows * d), sum(most + rows) {}
};

class Attention {
 public:
  Attention(const AttentionArgs& a, Stored stored)
      : a_(a),
        op_(dense_ops()),
        stored_(stored),
        bytes_(dtype_bits(a.kv_type) / 8),
        group_(a.heads / a.kv_heads) {}

  Status run(AttentionScratch& memory, const ParallelFor& parallel) const {
    const std::int64_t d = a_.head_dim;
    const std::int64_t count = std::min(a_.tokens, std::max<std::int64_t>(1, kRowsAtOnce / group_));
    const std::int64_t rows = count * group_, blocks = (a_.tokens + count - 1) / count;
    const std::int64_t threads = std::max(1, parallel.threads), tasks = blocks * a_.kv_heads;
    const Range stretches = stretches_of(0, a_.tokens);
    const std::int64_t reach =
        std::min((stretches.end - stretches.begin) * kStretch, a_.position + a_.tokens);
    // A call costs some microseconds on another thread: below that much work it stays here.
    constexpr double kWorkOfTask = 1 << 17;  // multiplications
    const double work = 2.0 * static_cast<double>(a_.tokens * a_.heads) * static_cast<double>(reach * d);
    const std::int64_t useful =
        std::clamp<std::int64_t>(static_cast<std::int64_t>(work / kWorkOfTask), 1, threads);
    if (tasks < 2 * useful && stretches.end - stretches.begin > 1 && useful > 1)
      return split(memory, parallel, useful, count, stretches);

    const std::int64_t lanes = std::min(tasks, useful);
    const auto total_size = static_cast<std::size_t>(round_up(Total::size(rows, d), kPanel));
    const std::size_t each = Scratch::size(rows, d) + total_size;
    QF_TRY(memory.reserve(each * static_cast<std::size_t>(lanes)));
    std::atomic<std::int64_t> next{0};
    parallel_for(parallel, lanes, [&](std::int64_t lane) {
      float* mine = memory.data() + static_cast<std::size_t>(lane) * each;
      const Scratch s(mine + total_size, rows, d);
      // Late tokens see more keys: the long tasks first.
      for (std::int64_t t; (t = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
        const std::int64_t block = blocks - 1 - t / a_.kv_heads, head = t % a_.kv_heads,
                           first = block * count;
        const std::int64_t tokens = std::min(count, a_.tokens - first);
        const Total total(mine, tokens * group_, d);
        prepare(s, head, first, tokens);
        for (std::int64_t r = 0; r < tokens * group_; ++r) total.sum[r] = 0;
        const Range mine_too = stretches_of(first, tokens);
        for (std::int64_t i = mine_too.begin; i < mine_too.end; ++i) {
          stretch(s, head, first, tokens, i);
          for (std::int64_t r = 0; r < tokens * group_; ++r)
            merge(total, r, s.out + r * d, s.most[r], s.sum[r]);
        }
        finish(total, head, first, tokens);
      }
    });
    return {};
  }

 private:
  // Few tokens and many keys: each stretch is a task, and its part is kept until all are there.
  Status split(AttentionScratch& memory, const ParallelFor& parallel, std::int64_t lanes, std::int64_t count,
               Range stretches) const {
    const std::int64_t d = a_.head_dim, rows = count * group_, many = stretches.end - stretches.begin;
    const std::int64_t part = round_up(Total::size(rows, d), kPanel);
    const std::int64_t blocks = (a_.tokens + count - 1) / count, tasks = blocks * a_.kv_heads * many;
    const std::size_t parts = static_cast<std::size_t>(tasks * part), each = Scratch::size(rows, d);
    QF_TRY(memory.reserve(parts + each * static_cast<std::size_t>(lanes)));
    std::atomic<std::int64_t> next{0};
    parallel_for(parallel, lanes, [&](std::int64_t lane) {
      const Scratch s(memory.data() + parts + static_cast<std::size_t>(lane) * each, rows, d);
      for (std::int64_t t; (t = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
        const std::int64_t first = t / many / a_.kv_heads * count, head = t / many % a_.kv_heads;
        const std::int64_t tokens = std::min(count, a_.tokens - first);
        const Total total(memory.data() + t * part, tokens * group_, d);
        prepare(s, head, first, tokens);
        stretch(s, head, first, tokens, stretches.begin + t % many);
        for (std::int64_t r = 0; r < tokens * group_; ++r) {
          total.most[r] = s.most[r], total.sum[r] = s.sum[r];
          std::copy_n(s.out + r * d, s.sum[r] == 0 ? 0 : d, total.out + r * d);
        }
      }
    });
    for (std::int64_t t = 0; t < tasks; t += many) {
      const std::int64_t first = t / many / a_.kv_heads * count, head = t / many % a_.kv_heads;
      const std::int64_t tokens = std::min(count, a_.tokens - first);
      const Total total(memory.data() + t * part, tokens * group_, d);
      for (std::int64_t i = 1; i < many; ++i) {
        const Total more(memory.data() + (t + i) * part, tokens * group_, d);
        for (std::int64_t r = 0; r < tokens * group_; ++r)
          merge(total, r, more.out + r * d, more.most[r], more.sum[r]);
      }
      finish(total, head, first, tokens);
    }
    return {};
  }

  // Keys that a token sees.
  Range visible(std::int64_t token) const {
    const std::int64_t last = a_.position + token;
    return {a_.window ? std::max<std::int64_t>(0, last - a_.window + 1) : 0, last + 1};
  }
  Range stretches_of(std::int64_t first, std::int64_t tokens) const {
    return {visible(first).begin / kStretch, (visible(first + tokens - 1).end - 1) / kStretch + 1};
  }
  Rows rows_of(std::span<const void* const* const> pages, std::span<const std::int64_t> stride,
               std::int64_t head) const {
    const auto h = static_cast<std::size_t>(head);
    return {pages[h], a_.page_tokens, stride[h] * bytes_};
  }

  void prepare(const Scratch& s, std::int64_t head, std::int64_t first, std::int64_t tokens) const {
    const std::int64_t d = a_.head_dim;
    for (std::int64_t r = 0; r < tokens * group_; ++r) {
      const float* from = a_.q.row(first + r / group_) + (head * group_ + r % group_) * d;
      for (std::int64_t c = 0; c < d; ++c) s.q[r * d + c] = from[c] * a_.scale;
    }
  }

  // Scores, their exponentials and the values that they weigh, of one stretch. A row that sees none of it gets
  // sum 0, and its `out` isn't touched.
  void stretch(const Scratch& s, std::int64_t head, std::int64_t first, std::int64_t tokens,
               std::int64_t index) const {
    const std::int64_t base = index * kStretch, rows = tokens * group_;
    // Keys of the stretch that a row sees, counted from its beginning.
    const auto sees = [&](std::int64_t token) {
      const Range v = visible(first + token);
      return Range{std::max<std::int64_t>(0, v.begin - base), std::min(kStretch, v.end - base)};
    };
    const Range all{sees(0).begin, sees(tokens - 1).end};
    const Rows values = rows_of(a_.value_pages, a_.value_stride, head);
    score(s, rows_of(a_.key_pages, a_.key_stride, head), values, base, all, visible(first + tokens - 1).end,
          rows, sees);
    for (std::int64_t r0 = 0; r0 < rows; r0 += kTileRows) {
      const std::int64_t n = std::min<std::int64_t>(kTileRows, rows - r0);
      const Range some{sees(r0 / group_).begin, sees((r0 + n - 1) / group_).end};
      const std::int64_t lo = some.begin / kPanel * kPanel;
      for (std::int64_t r = r0; r < r0 + n; ++r) {
        const Range mine = sees(r / group_);
        s.sum[r] = 0;
        if (mine.empty()) {
          std::fill(s.scores + r * kStretch + lo, s.scores + r * kStretch + std::max(lo, some.end), 0.0f);
          continue;
        }
        s.sum[r] = op_.softmax(s.scores + r * kStretch + lo, round_up(some.end - lo, kPanel), mine.begin - lo,
                               mine.end - lo, &s.most[r]);
      }
      if (!some.empty()) weigh(s, values, base, some, r0, n);
    }
  }

  template <class Sees>
  void score(const Scratch& s, const Rows& keys, const Rows& values, std::int64_t base, Range all,
             std::int64_t end, std::int64_t rows, const Sees& sees) const {
    const std::int64_t d = a_.head_dim, wide = std::min<std::int64_t>(kMostPanels, op_.panels) * kPanel;
    for (std::int64_t j = all.begin / kPanel * kPanel; j < all.end; j += wide) {
      const int panels = static_cast<int>((std::min(wide, all.end - j) + kPanel - 1) / kPanel);
      for (int p = 0; p < panels; ++p) {
        const void *row[kPanel], *soon[2 * kPanel];
        const std::int64_t key = base + j + p * kPanel;
        keys.find(key, base + all.begin, base + all.end, row);
        if (rows <= kFewRows) {  // memory is what takes the time: it works on while this panel is computed
          keys.find(key + kAhead, base + all.begin, end, soon);
          values.find(key, base + all.begin, base + all.end, soon + kPanel);
        }
        op_.pack[stored_](row, d, s.panels + p * kPanel * d, rows <= kFewRows ? soon : nullptr);
      }
      TileArgs t{0,          panels,  d,        nullptr, d,      s.panels, kPanel,
                 kPanel * d, nullptr, kStretch, kPanel,  kPanel, Sum::set};
      for (std::int64_t r = 0; r < rows; r += kTileRows) {
        t.rows = static_cast<int>(std::min<std::int64_t>(kTileRows, rows - r));
        const std::int64_t last = sees((r + t.rows - 1) / group_).end;
        if (j >= last || j + wide <= sees(r / group_).begin) continue;
        t.panels = static_cast<int>(std::min<std::int64_t>(panels, (last - j + kPanel - 1) / kPanel));
        t.x = s.q + r * d;
        t.y = s.scores + r * kStretch + j;
        op_.tile[detail::kF32](t);
      }
    }
  }

  void weigh(const Scratch& s, const Rows& values, std::int64_t base, Range some, std::int64_t row,
             std::int64_t n) const {
    const std::int64_t d = a_.head_dim;
    const int panels = static_cast<int>((d + kPanel - 1) / kPanel);
    TileArgs t{static_cast<int>(n),
               panels,
               0,
               nullptr,
               kStretch,
               nullptr,
               values.stride_bytes / bytes_,
               kPanel,
               s.out + row * d,
               d,
               kPanel,
               static_cast<int>(d - (panels - 1) * kPanel),
               Sum::set};
    for (std::int64_t j = some.begin; j < some.end; j += t.k) {
      t.k = values.run(base + j, base + some.end);
      t.x = s.scores + row * kStretch + j;
      t.w = values.at(base + j);
      op_.tile[stored_](t);
      t.sum = Sum::go_on;
    }
  }

  void merge(const Total& total, std::int64_t r, const float* out, float most, float sum) const {
    const std::int64_t d = a_.head_dim;
    if (sum == 0) return;
    if (total.sum[r] == 0) {
      std::copy_n(out, d, total.out + r * d);
      total.most[r] = most, total.sum[r] = sum;
      return;
    }
    const float top = std::max(total.most[r], most);
    const float before = std::exp(total.most[r] - top), now = std::exp(most - top);
    op_.mix(total.out + r * d, before, out, now, d);
    total.sum[r] = total.sum[r] * before + sum * now;
    total.most[r] = top;
  }

  void finish(const Total& total, std::int64_t head, std::int64_t first, std::int64_t tokens) const {
    const std::int64_t d = a_.head_dim;
    for (std::int64_t r = 0; r < tokens * group_; ++r) {
      float* to = a_.out.row(first + r / group_) + (head * group_ + r % group_) * d;
      const float inverse = 1.0f / total.sum[r];
      for (std::int64_t c = 0; c < d; ++c) to[c] = total.out[r * d + c] * inverse;
    }
  }

  const AttentionArgs& a_;
  const DenseOps& op_;
  Stored stored_;
  std::int64_t bytes_, group_;
};

}  // namespace

Status attention(const AttentionArgs& a, AttentionScratch& scratch, const ParallelFor& parallel) {
  const auto wrong = [](std::string_view what, std::int64_t found, std::string_view expected) {
    return Status(Errc::invalid_argument,
                  cat({"attention: ", what, " ", num(found), ", expected ", expected}));
  };
  if (a.tokens < 0) return wrong("tokens", a.tokens, "0 or more");
  if (a.kv_heads < 1) return wrong("kv_heads", a.kv_heads, "1 or more");
  if (a.heads < 1 || a.heads % a.kv_heads)
    return wrong("heads", a.heads, cat({"a multiple of ", num(a.kv_heads)}));
  if (a.head_dim < 1) return wrong("head_dim", a.head_dim, "1 or more");
  if (a.position < 0) return wrong("position", a.position, "0 or more");
  if (a.window < 0) return wrong("window", a.window, "0 or more");
  if (a.page_tokens < 0) return wrong("page_tokens", a.page_tokens, "0 or more");
  const auto stored = detail::stored_as(a.kv_type);
  if (!stored)
    return Status(Errc::unsupported, cat({"attention: keys and values of ", dtype_name(a.kv_type),
                                          ", expected F32, F16 or BF16"}));
  const auto kv_heads = static_cast<std::size_t>(a.kv_heads);
  for (const std::size_t size :
       {a.key_pages.size(), a.value_pages.size(), a.key_stride.size(), a.value_stride.size()})
    if (size != kv_heads)
      return wrong("pages or strides for", static_cast<std::int64_t>(size),
                   cat({num(a.kv_heads), " KV heads"}));
  const std::int64_t width = a.heads * a.head_dim;
  if (a.q.shape[0] != a.tokens || a.q.shape[1] != width || a.out.shape[0] != a.tokens ||
      a.out.shape[1] != width)
    return Status(Errc::invalid_argument, cat({"attention: q [", num(a.q.shape[0]), ", ", num(a.q.shape[1]),
                                               "] and out [", num(a.out.shape[0]), ", ", num(a.out.shape[1]),
                                               "], expected [", num(a.tokens), ", ", num(width), "]"}));
  if (a.tokens == 0) return {};
  return Attention(a, *stored).run(scratch, parallel);
}

}  // namespace qf::kernel
