// Attention, and the small operations of a decoder.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "benchmarks/ops.hpp"
#include "kernels/cpu/dense_ops.hpp"
#include "qf/kernel/attention.hpp"
#include "qf/kernel/small_ops.hpp"

namespace qf::bench {
namespace {

using Shape = std::vector<std::int64_t>;

std::vector<float> random_floats(std::size_t count, std::uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& x : out) x = normal(rng);
  return out;
}

// "512x9x3": `count` numbers of 1 and more; empty if it isn't that.
Shape parse_numbers(const std::string& text, std::size_t count) {
  Shape numbers;
  const char *at = text.data(), *const end = at + text.size();
  while (numbers.size() < count) {
    if (!numbers.empty() && (at == end || *at++ != 'x')) return {};
    std::int64_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 1) return {};
    numbers.push_back(number);
    at = next;
  }
  return at == end ? numbers : Shape{};
}

struct Problem {
  DType type;
  Shape shape;
};

// The types and shapes of a request, each with each; empty after a message if one of them makes no sense.
std::vector<Problem> problems(const Request& request, std::size_t numbers, const char* meaning,
                              const std::vector<Shape>& usual) {
  std::vector<Problem> out;
  const auto types = request.weights.empty() ? std::vector<std::string>{"f32", "bf16"} : request.weights;
  std::vector<Shape> shapes = request.shapes.empty() ? usual : std::vector<Shape>();
  for (const std::string& text : request.shapes) {
    shapes.push_back(parse_numbers(text, numbers));
    if (shapes.back().empty()) {
      fmt::print(stderr, "qf-bench: shape '{}', expected {}\n", text, meaning);
      return {};
    }
  }
  for (const std::string& text : types) {
    const std::optional<DType> type = text == "f32"    ? std::optional(DType::f32)
                                      : text == "f16"  ? std::optional(DType::f16)
                                      : text == "bf16" ? std::optional(DType::bf16)
                                                       : std::nullopt;
    if (!type) {
      fmt::print(stderr, "qf-bench: weights '{}', expected f32, f16 or bf16\n", text);
      return {};
    }
    for (const Shape& shape : shapes) out.push_back({*type, shape});
  }
  return out;
}

std::string type_name(DType type) {
  return type == DType::f32 ? "f32" : type == DType::f16 ? "f16" : "bf16";
}

float rounded(float x, DType type) {
  return type == DType::f32 ? x : type == DType::f16 ? float(f16(x)) : float(bf16(x));
}

class Error2 {  // squares of errors and of what they are relative to
 public:
  void add(double got, double want) {
    error_ += (got - want) * (got - want);
    norm_ += want * want;
  }
  double relative_rms() const { return std::sqrt(error_ / norm_); }

 private:
  double error_ = 0, norm_ = 0;
};

void check(const Status& status) {
  if (!status.ok()) throw Error(status);
}

// How many copies of `bytes` no cache holds.
int copies_for(const Request& request, double bytes) {
  return request.warm ? 1 : 1 + static_cast<int>(4 * static_cast<double>(last_cache_bytes()) / bytes);
}

// Keys and values of one sequence in pages of 64 tokens, as many times as no cache holds.
class Sequences {
 public:
  Sequences(const Problem& p, int copies)
      : type_(p.type),
        tokens_(p.shape[0]),
        heads_(p.shape[1]),
        kv_heads_(p.shape[2]),
        d_(p.shape[3]),
        context_(p.shape[4]) {
    const std::int64_t width = heads_ * d_, pages = (context_ + kPage - 1) / kPage, size = kPage * d_;
    q_ = random_floats(static_cast<std::size_t>(tokens_ * width), 3);
    out_.resize(q_.size());
    stride_.assign(static_cast<std::size_t>(kv_heads_), d_);
    const std::int64_t element = dtype_bits(type_) / 8;
    for (int side = 0; side < 2; ++side) {
      values_[side] = random_floats(static_cast<std::size_t>(kv_heads_ * pages * size), side ? 5u : 4u);
      for (float& x : values_[side]) x = rounded(x, type_);
    }
    for (int copy = 0; copy < copies; ++copy)
      for (int side = 0; side < 2; ++side) {
        const std::vector<float>& from = values_[side];
        std::vector<std::byte> bytes(from.size() * static_cast<std::size_t>(element));
        for (std::size_t i = 0; i < from.size(); ++i) {
          const f16 half(from[i]);
          const bf16 brain(from[i]);
          const void* value = type_ == DType::f32   ? static_cast<const void*>(&from[i])
                              : type_ == DType::f16 ? static_cast<const void*>(&half)
                                                    : &brain;
          std::memcpy(bytes.data() + i * static_cast<std::size_t>(element), value,
                      static_cast<std::size_t>(element));
        }
        std::vector<std::vector<const void*>> tables(static_cast<std::size_t>(kv_heads_));
        std::vector<const void* const*> heads;
        for (std::int64_t h = 0; h < kv_heads_; ++h) {
          auto& table = tables[static_cast<std::size_t>(h)];
          for (std::int64_t i = 0; i < pages; ++i)
            table.push_back(bytes.data() + (h * pages + i) * size * element);
          heads.push_back(table.data());
        }
        memory_[side].push_back(std::move(bytes));
        tables_[side].push_back(std::move(tables));
        heads_of_[side].push_back(std::move(heads));
      }
  }

  void run(const ParallelFor& parallel) {
    const std::size_t copy = next_++ % memory_[0].size();
    kernel::AttentionArgs a;
    a.tokens = tokens_, a.heads = heads_, a.kv_heads = kv_heads_, a.head_dim = d_;
    a.position = context_ - tokens_;
    a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d_)));
    a.q = {q_.data(), {tokens_, heads_ * d_}};
    a.out = {out_.data(), {tokens_, heads_ * d_}};
    a.kv_type = type_, a.page_tokens = kPage;
    a.key_pages = heads_of_[0][copy], a.value_pages = heads_of_[1][copy];
    a.key_stride = stride_, a.value_stride = stride_;
    check(attention(a, scratch_, parallel));
  }

  double relative_rms() const {
    Error2 error;
    const std::int64_t rows = tokens_ * heads_, pages = (context_ + kPage - 1) / kPage;
    for (std::int64_t r = 0; r < rows; r += std::max<std::int64_t>(1, rows / 37)) {
      const std::int64_t h = r % heads_ / (heads_ / kv_heads_), seen = context_ - tokens_ + r / heads_ + 1;
      const float *q = q_.data() + r * d_, *k = values_[0].data() + h * pages * kPage * d_,
                  *v = values_[1].data() + h * pages * kPage * d_;
      std::vector<double> p, want(static_cast<std::size_t>(d_));
      double most = -1e300, sum = 0;
      for (std::int64_t j = 0; j < seen; ++j) {
        double score = 0;
        for (std::int64_t c = 0; c < d_; ++c)
          score += static_cast<double>(q[c]) * static_cast<double>(k[j * d_ + c]);
        p.push_back(score / std::sqrt(static_cast<double>(d_)));
        most = std::max(most, p.back());
      }
      for (double& x : p) sum += x = std::exp(x - most);
      for (std::int64_t c = 0; c < d_; ++c) {
        double o = 0;
        for (std::int64_t j = 0; j < seen; ++j)
          o += p[static_cast<std::size_t>(j)] / sum * static_cast<double>(v[j * d_ + c]);
        error.add(static_cast<double>(out_[static_cast<std::size_t>(r * d_ + c)]), o);
      }
    }
    return error.relative_rms();
  }

 private:
  static constexpr std::int64_t kPage = 64;
  DType type_;
  std::int64_t tokens_, heads_, kv_heads_, d_, context_;
  std::vector<float> q_, out_, values_[2];
  std::vector<std::vector<std::byte>> memory_[2];
  std::vector<std::vector<std::vector<const void*>>> tables_[2];
  std::vector<std::vector<const void* const*>> heads_of_[2];
  std::vector<std::int64_t> stride_;
  kernel::AttentionScratch scratch_;
  std::size_t next_ = 0;
};

Case attention_case(const Request& request, const Problem& p) {
  const std::int64_t tokens = p.shape[0], heads = p.shape[1], d = p.shape[3], context = p.shape[4];
  Case c;
  c.bytes = 2.0 * static_cast<double>(p.shape[2] * context * d * (dtype_bits(p.type) / 8));
  auto s = std::make_shared<Sequences>(p, copies_for(request, c.bytes));
  c.run = [s, parallel = request.parallel] { s->run(parallel); };
  c.run();
  c.kernel = fmt::format("attention_{}", kernel::detail::dense_ops().name);
  c.about = {{"problem", fmt::format("{} {} tokens, {}/{} heads of {}, {} keys", type_name(p.type), tokens,
                                     heads, p.shape[2], d, context)}};
  c.relative_rms = s->relative_rms();
  c.relative_rms_allowed = 1e-6;
  const double seen =
      static_cast<double>(tokens) * (static_cast<double>(context) - static_cast<double>(tokens - 1) / 2);
  c.operations = 4.0 * static_cast<double>(heads * d) * seen;
  c.cold = !request.warm;
  c.copies = copies_for(request, c.bytes);
  c.peak = peak_loop(Numbers::f32, kernel::cpu_isa());
  return c;
}

// One row of n floats in the first-level cache; bytes are what is read and written.
Case small_case(const char* name, std::int64_t n, double passes,
                const std::function<void(float*, const float*)>& run,
                const std::function<void(std::vector<double>&, const std::vector<float>&)>& reference) {
  struct State {
    std::vector<float> x, y, from;
  };
  auto s = std::make_shared<State>();
  s->from = random_floats(static_cast<std::size_t>(n), 1);
  s->y = random_floats(static_cast<std::size_t>(n), 2);
  s->x = s->from;
  run(s->x.data(), s->y.data());
  std::vector<double> want(s->from.begin(), s->from.end());
  reference(want, s->y);
  Error2 error;
  for (std::size_t i = 0; i < want.size(); ++i) error.add(static_cast<double>(s->x[i]), want[i]);
  Case c;
  c.kernel = fmt::format("{}_{}", name, kernel::detail::dense_ops().name);
  c.about = {{"problem", fmt::format("n {}", n)}};
  c.relative_rms = error.relative_rms();
  c.relative_rms_allowed = 1e-6;
  c.bytes = passes * 4 * static_cast<double>(n);
  c.cold = false;
  c.run = [s, run] {
    s->x = s->from;
    run(s->x.data(), s->y.data());
  };
  return c;
}

}  // namespace

int attention_cases(const Request& request, const Use& use) {
  const auto all = problems(request, 5, "TOKENSxHEADSxKV_HEADSxDIMxKEYS, such as 1x32x8x128x4096",
                            {{1, 9, 3, 64, 1024}, {1, 32, 8, 128, 4096}, {512, 32, 8, 128, 512}});
  if (all.empty()) return 2;
  for (const Problem& p : all) {
    if (p.shape[1] % p.shape[2] || p.shape[0] > p.shape[4]) {
      fmt::print(stderr, "qf-bench: HEADS is no multiple of KV_HEADS, or there are more TOKENS than KEYS\n");
      return 2;
    }
    std::vector<Case> cases{attention_case(request, p)};
    if (const int code = use(cases)) return code;
  }
  return 0;
}

int small_cases(const Request& request, const Use& use) {
  std::vector<std::int64_t> lengths;
  for (const std::string& text : request.shapes) {
    const Shape n = parse_numbers(text, 1);
    if (n.empty()) {
      fmt::print(stderr, "qf-bench: shape '{}', expected N, such as 4096\n", text);
      return 2;
    }
    lengths.push_back(n[0]);
  }
  if (lengths.empty()) lengths = {4096};
  for (const std::int64_t n : lengths) {
    const auto count = static_cast<std::size_t>(n);
    std::vector<Case> cases{
        small_case(
            "rms_norm", n, 4, [n](float* x, const float* y) { kernel::rms_norm(x, y, n, 1e-5, x); },
            [](std::vector<double>& x, const std::vector<float>& y) {
              double sum = 0;
              for (const double v : x) sum += v * v;
              const double inverse = 1 / std::sqrt(sum / static_cast<double>(x.size()) + 1e-5);
              for (std::size_t i = 0; i < x.size(); ++i) x[i] *= inverse * static_cast<double>(y[i]);
            }),
        small_case(
            "softmax", n, 6, [n](float* x, const float*) { kernel::softmax(x, n); },
            [](std::vector<double>& x, const std::vector<float>&) {
              double sum = 0;
              for (double& v : x) sum += v = std::exp(v);
              for (double& v : x) v /= sum;
            }),
        small_case(
            "silu_mul", n, 3, [n](float* x, const float* y) { kernel::silu_mul(x, y, n); },
            [](std::vector<double>& x, const std::vector<float>& y) {
              for (std::size_t i = 0; i < x.size(); ++i)
                x[i] = x[i] / (1 + std::exp(-x[i])) * static_cast<double>(y[i]);
            }),
        small_case(
            "rope", n, 3, [n](float* x, const float* y) { kernel::rope(x, y, y + n / 2, n / 2); },
            [count](std::vector<double>& x, const std::vector<float>& y) {
              const std::size_t pairs = count / 2;
              for (std::size_t i = 0; i < pairs; ++i) {
                const double a = x[i], b = x[pairs + i], c = static_cast<double>(y[i]),
                             s = static_cast<double>(y[pairs + i]);
                x[i] = a * c - b * s, x[pairs + i] = b * c + a * s;
              }
            })};
    if (const int code = use(cases)) return code;
  }
  return 0;
}

}  // namespace qf::bench
