#include "qf/kernel/attention.hpp"

#include "tests/dense_tools.hpp"
#include "tests/kernel_tools.hpp"

using namespace qf::kernel;
using namespace qf::kernel::test;
using qf::bf16;
using qf::DType;
using qf::f16;

namespace {

struct Shape {
  std::int64_t tokens, heads, kv_heads, d, position, window;
};

// Keys and values of one type, in pages that end where a sanitizer sees it.
class Problem {
 public:
  Problem(const Shape& shape, DType type, std::int64_t page_tokens, std::uint32_t seed = 1)
      : shape_(shape), type_(type), page_(page_tokens) {
    Random random(seed);
    q_ = random.many(shape.tokens * shape.heads * shape.d);
    const std::int64_t reach = shape.position + shape.tokens, stride = shape.d + 1;
    stride_.assign(static_cast<std::size_t>(shape.kv_heads), stride);
    for (int side = 0; side < 2; ++side) {
      std::vector<std::vector<const void*>>& tables = tables_[side];
      tables.resize(static_cast<std::size_t>(shape.kv_heads));
      for (std::int64_t h = 0; h < shape.kv_heads; ++h) {
        values_[side].push_back(random.many(reach * shape.d));
        for (float& x : values_[side].back())
          x = type == DType::f16 ? float(f16(x)) : type == DType::bf16 ? float(bf16(x)) : x;
        const std::int64_t each = page_tokens ? page_tokens : reach;
        for (std::int64_t first = 0; first < reach; first += each) {
          // A page holds no rows that nobody will see; one that holds none is missing.
          const std::int64_t oldest =
              shape.window ? std::max<std::int64_t>(0, shape.position - shape.window + 1) : 0;
          const std::int64_t last = std::min(reach, first + each);
          tables[static_cast<std::size_t>(h)].push_back(
              page_tokens && last <= oldest ? nullptr : keep(values_[side].back(), first, last, stride));
        }
      }
    }
    for (int side = 0; side < 2; ++side)
      for (const auto& table : tables_[side]) pages_[side].push_back(table.data());
  }

  AttentionArgs args(std::vector<float>& out) const {
    AttentionArgs a;
    a.tokens = shape_.tokens, a.heads = shape_.heads, a.kv_heads = shape_.kv_heads, a.head_dim = shape_.d;
    a.position = shape_.position, a.window = shape_.window, a.scale = .3f;
    const std::int64_t width = shape_.heads * shape_.d;
    out.assign(static_cast<std::size_t>(shape_.tokens * width), NAN);
    a.q = {q_.data(), {shape_.tokens, width}};
    a.out = {out.data(), {shape_.tokens, width}};
    a.kv_type = type_, a.page_tokens = page_;
    a.key_pages = pages_[0], a.value_pages = pages_[1], a.key_stride = stride_, a.value_stride = stride_;
    return a;
  }

  std::vector<float> run(const qf::ParallelFor& parallel = {}) const {
    std::vector<float> out;
    AttentionScratch scratch;
    const qf::Status status = attention(args(out), scratch, parallel);
    INFO(status.text());
    REQUIRE(status.ok());
    return out;
  }

  std::vector<double> want() const {
    const std::int64_t d = shape_.d, heads = shape_.heads;
    std::vector<double> out(q_.size());
    for (std::int64_t t = 0; t < shape_.tokens; ++t)
      for (std::int64_t h = 0; h < heads; ++h) {
        const auto kv = static_cast<std::size_t>(h / (heads / shape_.kv_heads));
        const float *keys = values_[0][kv].data(), *values = values_[1][kv].data(),
                    *q = q_.data() + (t * heads + h) * d;
        const std::int64_t last = shape_.position + t,
                           first = shape_.window ? std::max<std::int64_t>(0, last - shape_.window + 1) : 0;
        std::vector<double> p;
        double sum = 0, most = -1e300;
        for (std::int64_t j = first; j <= last; ++j) {
          double s = 0;
          for (std::int64_t c = 0; c < d; ++c) s += static_cast<double>(q[c]) * keys[j * d + c];
          p.push_back(s * static_cast<double>(.3f));
          most = std::max(most, p.back());
        }
        for (double& x : p) sum += x = std::exp(x - most);
        for (std::int64_t c = 0; c < d; ++c) {
          double o = 0;
          for (std::int64_t j = first; j <= last; ++j)
            o += p[static_cast<std::size_t>(j - first)] / sum * values[j * d + c];
          out[static_cast<std::size_t>((t * heads + h) * d + c)] = o;
        }
      }
    return out;
  }

 private:
  template <class T>
  const void* keep(std::vector<std::vector<T>>& pool, const std::vector<float>& from, std::int64_t first,
                   std::int64_t last, std::int64_t stride) {
    std::vector<T> page(static_cast<std::size_t>((last - first - 1) * stride + shape_.d), T(NAN));
    for (std::int64_t j = first; j < last; ++j)
      for (std::int64_t c = 0; c < shape_.d; ++c)
        page[static_cast<std::size_t>((j - first) * stride + c)] =
            T(from[static_cast<std::size_t>(j * shape_.d + c)]);
    pool.push_back(std::move(page));
    return pool.back().data();
  }
  const void* keep(const std::vector<float>& from, std::int64_t first, std::int64_t last,
                   std::int64_t stride) {
    if (type_ == DType::f16) return keep(f16_, from, first, last, stride);
    if (type_ == DType::bf16) return keep(bf16_, from, first, last, stride);
    return keep(f32_, from, first, last, stride);
  }

  Shape shape_;
  DType type_;
  std::int64_t page_;
  std::vector<float> q_;
  std::vector<std::vector<float>> values_[2];  // of keys and values, [kv_heads][reach, d]
  std::vector<std::vector<float>> f32_;
  std::vector<std::vector<f16>> f16_;
  std::vector<std::vector<bf16>> bf16_;
  std::vector<std::vector<const void*>> tables_[2];
  std::vector<const void* const*> pages_[2];
  std::vector<std::int64_t> stride_;
};

}  // namespace

TEST_CASE("attention equals its definition") {
  for (const DType type : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t d : {1, 10, 16, 64, 80})
      for (const std::int64_t position : {0, 37, 250, 600})
        for (const std::int64_t window : {0, 1, 18, 300})
          for (const std::int64_t tokens : {1, 23}) {
            const Shape shape{tokens, 6, 2, d, position, window};
            const std::vector<float> out = Problem(shape, type, 0).run();
            const std::vector<double> want = Problem(shape, type, 0).want();
            CAPTURE(static_cast<int>(type), d, position, window, tokens);
            CHECK(relative_rms(out, want) < 1e-6);
            // The same bits from pages, be they smaller or larger than a window, a tile or a stretch.
            for (const std::int64_t page : {1, 48, 500}) CHECK(Problem(shape, type, page).run() == out);
          }
}

TEST_CASE("attention with other groups of heads") {
  for (const std::int64_t heads : {1, 4, 7, 9, 64})
    for (const std::int64_t kv_heads : {std::int64_t{1}, heads}) {
      const Shape shape{5, heads, kv_heads, 16, 270, 0};
      const Problem problem(shape, DType::f32, 32);
      CAPTURE(heads, kv_heads);
      CHECK(relative_rms(problem.run(), problem.want()) < 1e-6);
    }
  const Problem wide({3, 2, 1, 256, 20, 0}, DType::f16, 16);
  CHECK(relative_rms(wide.run(), wide.want()) < 1e-6);
}

TEST_CASE("attention is the same bits for any threads and any split of the tokens") {
  for (const std::int64_t window : {0, 200}) {
    const Shape shape{150, 6, 2, 64, 700, window};
    const Problem problem(shape, DType::f32, 16);
    const std::vector<float> want = problem.run();
    CHECK(relative_rms(want, problem.want()) < 1e-6);
    for (int threads : {2, 7, 100}) CHECK(problem.run(threads_of(threads)) == want);
    // Token by token: with many threads each stretch of keys is a task of its own.
    std::vector<float> all;
    AttentionScratch scratch;
    AttentionArgs a = problem.args(all);
    for (int threads : {1, 2, 7, 100})
      for (std::int64_t t = 0; t < shape.tokens; t += 37) {
        AttentionArgs one = a;
        std::vector<float> out(static_cast<std::size_t>(shape.heads * shape.d), NAN);
        one.tokens = 1, one.position = shape.position + t;
        one.q = {a.q.row(t), {1, shape.heads * shape.d}};
        one.out = {out.data(), {1, shape.heads * shape.d}};
        REQUIRE(attention(one, scratch, threads_of(threads)).ok());
        CHECK(std::equal(out.begin(), out.end(), want.begin() + t * shape.heads * shape.d));
      }
  }
}

TEST_CASE("scores far apart don't overflow") {
  Problem problem({2, 2, 1, 16, 520, 0}, DType::f32, 0);
  std::vector<float> out;
  AttentionArgs a = problem.args(out);
  a.scale = 1e4f;  // one key takes all
  AttentionScratch scratch;
  REQUIRE(attention(a, scratch).ok());
  for (const float x : out) REQUIRE(std::abs(x) < 10);
}

TEST_CASE("arguments of attention are checked") {
  const Problem problem({2, 6, 2, 8, 3, 0}, DType::f32, 0);
  std::vector<float> out;
  AttentionScratch scratch;
  const auto text = [&](auto&& change) {
    AttentionArgs a = problem.args(out);
    change(a);
    return attention(a, scratch).text();
  };
  CHECK(text([](AttentionArgs&) {}).empty());
  CHECK(text([](AttentionArgs& a) { a.tokens = -1; }) == "attention: tokens -1, expected 0 or more");
  CHECK(text([](AttentionArgs& a) { a.heads = 5; }) == "attention: heads 5, expected a multiple of 2");
  CHECK(text([](AttentionArgs& a) { a.kv_heads = 0; }) == "attention: kv_heads 0, expected 1 or more");
  CHECK(text([](AttentionArgs& a) { a.head_dim = 7; }) ==
        "attention: q [2, 48] and out [2, 48], expected [2, 42]");
  CHECK(text([](AttentionArgs& a) { a.kv_type = DType::i8; }) ==
        "attention: keys and values of I8, expected F32, F16 or BF16");
  CHECK(text([](AttentionArgs& a) { a.key_pages = a.key_pages.first(1); }) ==
        "attention: pages or strides for 1, expected 2 KV heads");
  CHECK(text([](AttentionArgs& a) { a.window = -2; }) == "attention: window -2, expected 0 or more");
}
