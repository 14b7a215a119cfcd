#include "qf/quant/kmeans.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "qf/quant/grid.hpp"
#include "src/quant_hessian.hpp"

namespace qf::quant {
namespace {

using namespace detail;

// Sums over stretches of ascending points, from sums over what comes before.
class Stretches {
 public:
  Status allocate(std::int64_t most) {
    QF_TRY_ASSIGN(sums_, Array<double>::make(static_cast<std::size_t>(3 * (most + 1))));
    return {};
  }
  void fill(std::span<const float> points, std::span<const float> weights) {
    double *at = sums_.data(), w = 0, wx = 0, wxx = 0;
    for (std::size_t i = 0; i < points.size(); ++i, at += 3) {
      const auto x = static_cast<double>(points[i]), by = static_cast<double>(weights[i]);
      w += by, wx += by * x, wxx += by * x * x;
      at[3] = w, at[4] = wx, at[5] = wxx;
    }
  }
  double weight(std::int64_t i, std::int64_t j) const { return at(j)[0] - at(i)[0]; }
  double mean(std::int64_t i, std::int64_t j) const { return (at(j)[1] - at(i)[1]) / weight(i, j); }
  // The least sum of squares of points [i, j) about one value.
  double cost(std::int64_t i, std::int64_t j) const {
    const double w = at(j)[0] - at(i)[0], wx = at(j)[1] - at(i)[1], wxx = at(j)[2] - at(i)[2];
    const double cost = w > 0 ? wxx - wx * wx / w : 0;
    return cost > 0 ? cost : 0;
  }

 private:
  const double* at(std::int64_t i) const { return sums_.data() + 3 * i; }
  Array<double> sums_;
};

// least_[i] is the least cost of points [0, i) in the clusters so far. Where the last cluster best begins never falls
// with i, so halves can be searched apart.
class Programme {
 public:
  Status allocate(std::int64_t most, std::int64_t clusters) {
    stride_ = most + 1;
    QF_TRY_ASSIGN(least_, Array<double>::make(static_cast<std::size_t>(2 * stride_)));
    QF_TRY_ASSIGN(begins_, Array<std::int32_t>::make(static_cast<std::size_t>(stride_ * clusters)));
    return {};
  }
  void run(const Stretches& s, std::int64_t count, std::span<std::int32_t> ends) {
    const auto clusters = static_cast<std::int64_t>(ends.size());
    double *before = least_.data(), *now = before + stride_;
    for (std::int64_t i = 0; i <= count; ++i) before[i] = s.cost(0, i);
    for (std::int64_t q = 1; q < clusters; ++q) {
      divide(s, before, now, begins_.data() + q * stride_, 0, count, 0, count);
      std::swap(before, now);
    }
    std::int64_t end = count;
    for (std::int64_t q = clusters - 1; q >= 0; --q) {
      ends[static_cast<std::size_t>(q)] = static_cast<std::int32_t>(end);
      if (q > 0) end = begins_.data()[q * stride_ + end];
    }
  }

 private:
  static void divide(const Stretches& s, const double* before, double* now, std::int32_t* begins,
                     std::int64_t first, std::int64_t last, std::int64_t low, std::int64_t high) {
    if (first > last) return;
    const std::int64_t i = first + (last - first) / 2;
    double least = HUGE_VAL;
    std::int64_t begin = low;
    for (std::int64_t j = low; j <= std::min(i, high); ++j)
      if (const double cost = before[j] + s.cost(j, i); cost < least) least = cost, begin = j;
    now[i] = least, begins[i] = static_cast<std::int32_t>(begin);
    divide(s, before, now, begins, first, i - 1, low, begin);
    divide(s, before, now, begins, i + 1, last, begin, high);
  }

  Array<double> least_;
  Array<std::int32_t> begins_;
  std::int64_t stride_ = 0;
};

// Ascending order of finite floats, by four passes over bytes.
class Sorter {
 public:
  Status allocate(std::int64_t most) {
    QF_TRY_ASSIGN(a_, Array<std::uint64_t>::make(static_cast<std::size_t>(most)));
    QF_TRY_ASSIGN(b_, Array<std::uint64_t>::make(static_cast<std::size_t>(most)));
    return {};
  }
  void run(std::span<const float> x, const float* weights, float* points, float* sorted_weights) {
    std::uint32_t count[4][256] = {};
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(x[i]);
      const std::uint32_t key = bits >> 31 ? ~bits : bits | 0x80000000u;
      a_[i] = static_cast<std::uint64_t>(key) << 32 | i;
      for (int pass = 0; pass < 4; ++pass) ++count[pass][key >> 8 * pass & 255];
    }
    std::uint64_t *from = a_.data(), *to = b_.data();
    for (int pass = 0; pass < 4; ++pass) {
      std::uint32_t next = 0;
      for (std::uint32_t& c : count[pass]) next += c, c = next - c;
      for (std::size_t i = 0; i < x.size(); ++i)
        to[count[pass][from[i] >> (32 + 8 * pass) & 255]++] = from[i];
      std::swap(from, to);
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto at = static_cast<std::uint32_t>(from[i]);
      points[i] = x[at], sorted_weights[i] = weights[at];
    }
  }

 private:
  Array<std::uint64_t> a_, b_;
};

class RowClusters {
 public:
  Status allocate(const KmeansOptions& options, std::int64_t k, int levels) {
    options_ = options, levels_ = levels, buckets_ = std::min<std::int64_t>(k, 4 * levels);
    const std::int64_t most = options.exact ? k : buckets_;
    QF_TRY(sorter_.allocate(k));
    QF_TRY(stretches_.allocate(k));
    QF_TRY(coarse_.allocate(buckets_));
    QF_TRY(programme_.allocate(most, levels));
    QF_TRY_ASSIGN(floats_, Array<float>::make(static_cast<std::size_t>(2 * k + 2 * buckets_)));
    ends_.resize(static_cast<std::size_t>(levels));
    starts_.resize(static_cast<std::size_t>(buckets_));
    return {};
  }

  // book [levels], ascending.
  void run(std::span<const float> x, const float* weights, float* book) {
    const std::size_t k = x.size();
    float *points = floats_.data(), *by = points + k;
    sorter_.run(x, weights, points, by);
    stretches_.fill({points, k}, {by, k});
    if (options_.exact)
      programme_.run(stretches_, static_cast<std::int64_t>(k), ends_);
    else
      start(points, static_cast<std::int64_t>(k));
    means(points, book);
    for (int i = 0; i < (options_.exact ? 0 : options_.iterations); ++i) {
      bool moved = false;
      std::int64_t at = 0;
      for (int q = 0; q + 1 < levels_; ++q) {
        const float border = book[q] + (book[q + 1] - book[q]) / 2;
        at = std::upper_bound(points + at, points + k, border) - points;
        std::int32_t& end = ends_[static_cast<std::size_t>(q)];
        moved = moved || end != at;
        end = static_cast<std::int32_t>(at);
      }
      if (!moved) break;
      means(points, book);
    }
  }

 private:
  // Buckets whose means are what the programme sees: narrower where points are dense, but not so that the tails of
  // the distribution, which cost most, share a few. Equal steps of the summed roots of gaps do that.
  void start(const float* points, std::int64_t k) {
    float *middle = floats_.data() + 2 * k, *by = middle + buckets_;
    double whole = 0;
    for (std::int64_t i = 1; i < k; ++i) whole += std::sqrt(static_cast<double>(points[i] - points[i - 1]));
    const double step = whole / static_cast<double>(buckets_);
    double passed = 0;
    std::int64_t i = 0, b = 0;
    while (i < k) {
      std::int64_t j = i + 1;
      for (; j < k; ++j) {
        passed += std::sqrt(static_cast<double>(points[j] - points[j - 1]));
        if (b + 1 < buckets_ && passed >= step * static_cast<double>(b + 1)) break;
      }
      const double weight = stretches_.weight(i, j);
      middle[b] = weight > 0 ? static_cast<float>(stretches_.mean(i, j)) : points[i];
      by[b] = static_cast<float>(std::max(weight, 0.0));
      starts_[static_cast<std::size_t>(b)] = static_cast<std::int32_t>(i);
      i = j, ++b;
    }
    const auto count = static_cast<std::size_t>(b);
    coarse_.fill({middle, count}, {by, count});
    programme_.run(coarse_, b, ends_);
    for (std::int32_t& end : ends_)
      end = end == b ? static_cast<std::int32_t>(k) : starts_[static_cast<std::size_t>(end)];
  }

  // An empty or weightless cluster takes its first point, or its neighbour's value.
  void means(const float* points, float* book) const {
    std::int64_t begin = 0;
    for (int q = 0; q < levels_; ++q) {
      const std::int64_t end = ends_[static_cast<std::size_t>(q)];
      if (end > begin)
        book[q] =
            stretches_.weight(begin, end) > 0
                ? std::clamp(static_cast<float>(stretches_.mean(begin, end)), points[begin], points[end - 1])
                : points[begin];
      else
        book[q] = q > 0 ? book[q - 1] : points[0];
      begin = end;
    }
  }

  KmeansOptions options_;
  int levels_ = 0;
  std::int64_t buckets_ = 0;
  Sorter sorter_;
  Stretches stretches_, coarse_;
  Programme programme_;
  Array<float> floats_;
  std::vector<std::int32_t> ends_, starts_;
};

// Scales of a row, its weights divided by them and the weights of their squares. Returns the group that has no
// scale, or -1.
std::int64_t normalize(const Scheme& scheme, std::span<const float> w, const float* importance, float* scales,
                       float* x, float* by) {
  const auto k = static_cast<std::int64_t>(w.size());
  const std::int64_t group = scheme.group_size(k), groups = scheme.groups(k);
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t first = g * group, end = std::min(k, first + group);
    float largest = 0;
    bool finite = true;
    for (std::int64_t c = first; c < end; ++c) {
      const float size = std::fabs(w[static_cast<std::size_t>(c)]);
      finite = finite && std::isfinite(size);
      largest = std::max(largest, size);
    }
    if (!finite) return g;
    float scale = largest == 0 ? 0 : round_scale_up(scheme.scale, static_cast<double>(largest));
    if (groups == 1 && largest > 0) {
      const int least = scheme.scale == DType::f16 ? -24 : -126, most = scheme.scale == DType::f16 ? 15 : 127;
      scale = std::ldexp(1.0f, std::clamp(std::ilogb(largest), least, most));
    }
    if (!std::isfinite(scale)) return g;
    scales[g] = scale;
    const float over = scale == 0 ? 0 : 1 / scale;
    for (std::int64_t c = first; c < end; ++c) {
      x[c] = w[static_cast<std::size_t>(c)] * over;
      by[c] = importance[c] * (groups == 1 ? 1 : scale * scale);
    }
  }
  // Sums of weights shouldn't depend on their unit.
  float most = 0;
  for (std::int64_t c = 0; c < k; ++c) most = std::max(most, by[c]);
  const bool usable = most > 0 && std::isfinite(most);
  const double unit = usable ? 1 / static_cast<double>(most) : 0;
  for (std::int64_t c = 0; c < k; ++c)
    by[c] = usable ? static_cast<float>(static_cast<double>(by[c]) * unit) : 1;
  return -1;
}

}  // namespace

Status kmeans_exact(std::span<const float> points, std::span<const float> weights,
                    std::span<std::int32_t> ends) {
  Stretches stretches;
  Programme programme;
  const auto count = static_cast<std::int64_t>(points.size());
  QF_TRY(stretches.allocate(count));
  QF_TRY(programme.allocate(count, static_cast<std::int64_t>(ends.size())));
  stretches.fill(points, weights);
  if (!ends.empty()) programme.run(stretches, count, ends);
  return {};
}

Result<QuantizedMatrix> Kmeans::quantize(const QuantizerInput& in) const {
  const Scheme& scheme = in.scheme;
  const std::string tensor = "tensor " + printable(in.name);
  if (options_.iterations < 0 || options_.iterations > 1000)
    return Status(Errc::invalid_argument,
                  cat({tensor, ": ", num(options_.iterations), " iterations, expected 0 to 1000"}));
  Scheme plain = scheme;
  plain.codebook = CodebookKind::none;
  QuantizerInput checked = in;
  checked.scheme = plain;
  QF_TRY(check_input(checked, name()));
  if (scheme.codebook != CodebookKind::per_row)
    return Status(Errc::unsupported, tensor + ": method 'kmeans' makes a codebook for each row");
  const std::int64_t n = in.w.shape[0], k = in.w.shape[1];
  QF_TRY_ASSIGN(QuantizedMatrix matrix, QuantizedMatrix::make(scheme, n, k));
  if (n == 0 || k == 0) return matrix;
  QF_TRY_ASSIGN(const HessianUse hessian,
                use_hessian(in, name(), options_.weighted ? ClipKind::hessian_diagonal : ClipKind::none));

  constexpr std::int64_t kRows = 16;  // of a task
  const int levels = scheme.levels();
  const auto codes = matrix.codes();
  const auto scales = matrix.scales(), books = matrix.codebook();
  const Status done = for_tasks(in.parallel, (n + kRows - 1) / kRows, [&](std::int64_t task) -> Status {
    RowClusters clusters;
    QF_TRY(clusters.allocate(options_, k, levels));
    QF_TRY_ASSIGN(auto floats, Array<float>::make(static_cast<std::size_t>(2 * k)));
    float *x = floats.data(), *by = x + k;
    const auto count = static_cast<std::size_t>(k);
    for (std::int64_t r = task * kRows; r < std::min(n, (task + 1) * kRows); ++r) {
      const std::int64_t bad =
          normalize(scheme, {in.w.row(r), count}, hessian.weights.data(), scales.row(r), x, by);
      if (bad >= 0) return explain_trouble(in, tensor, {true, r, bad});
      float* book = books.row(r);
      clusters.run({x, count}, by, book);
      for (int q = 0; q < levels; ++q) book[q] = round_to(scheme.scale, book[q]);
      float borders[256];
      for (int q = 0; q + 1 < levels; ++q) borders[q] = book[q] + (book[q + 1] - book[q]) / 2;
      for (std::int64_t c = 0; c < k; ++c) {
        int code = 0;  // how many borders lie below
        for (int step = levels / 2; step > 0; step /= 2)
          if (x[c] > borders[code + step - 1]) code += step;
        codes.row(r)[c] = static_cast<std::uint8_t>(code);
      }
    }
    return {};
  });
  QF_TRY(done);
  return matrix;
}

}  // namespace qf::quant
