// Statistics of activations against sums in f64, and the cutting of calibration texts.
#include "qf/calib/accumulator.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "qf/calib/magnitudes.hpp"
#include "qf/calib/samples.hpp"

using namespace qf;
using calib::Accumulator;
using calib::LinearStatistics;

namespace {

constexpr calib::Wanted kAll{true, true, true};

std::vector<float> random_rows(std::int64_t rows, std::int64_t k, unsigned seed, float shift = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(shift, 1);
  std::vector<float> values(static_cast<std::size_t>(rows * k));
  for (float& x : values) x = normal(random);
  for (std::int64_t r = 0; r < rows; ++r)
    values[static_cast<std::size_t>(r * k)] *= 100;  // an outlier channel
  return values;
}

MatrixView<const float> view(const std::vector<float>& values, std::int64_t k) {
  return {values.data(), {static_cast<std::int64_t>(values.size()) / k, k}};
}

LinearStatistics collect(const std::vector<float>& x, const std::vector<float>& in_float, std::int64_t k,
                         std::int64_t step, const ParallelFor& parallel = {}) {
  auto sums = Accumulator::make(k, kAll);
  REQUIRE(sums.ok());
  const std::int64_t rows = static_cast<std::int64_t>(x.size()) / k;
  for (std::int64_t r = 0; r < rows; r += step) {
    const std::int64_t n = std::min(step, rows - r);
    const Status status = sums->add({x.data() + r * k, {n, k}}, {in_float.data() + r * k, {n, k}}, parallel);
    INFO(status.text());
    REQUIRE(status.ok());
  }
  auto statistics = sums->finish();
  REQUIRE(statistics.ok());
  return std::move(*statistics);
}

bool same(const Array<float>& a, const Array<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("accumulator: second moments as sums in f64 give them, for any width") {
  for (const auto& shape : {std::pair<std::int64_t, std::int64_t>{1, 1},
                            {3, 5},
                            {130, 16},
                            {1500, 33},
                            {200, 96},
                            {129, 97},
                            {40, 200}}) {
    const std::int64_t rows = shape.first, k = shape.second;
    INFO(rows << " rows, " << k << " channels");
    const auto x = random_rows(rows, k, 1, 0.5f), in_float = random_rows(rows, k, 2);
    const LinearStatistics s = collect(x, in_float, k, 700);
    REQUIRE(s.k == k);
    REQUIRE(s.tokens == rows);
    const auto at = [&](const std::vector<float>& m, std::int64_t r, std::int64_t c) {
      return static_cast<double>(m[static_cast<std::size_t>(r * k + c)]);
    };
    for (std::int64_t i = 0; i < k; ++i) {
      double mean = 0, mean_abs = 0, least = INFINITY, most = -INFINITY;
      for (std::int64_t t = 0; t < rows; ++t) {
        mean += at(x, t, i) / static_cast<double>(rows);
        mean_abs += std::fabs(at(x, t, i)) / static_cast<double>(rows);
        least = std::min(least, at(x, t, i));
        most = std::max(most, at(x, t, i));
      }
      const auto c = static_cast<std::size_t>(i);
      REQUIRE(std::fabs(static_cast<double>(s.mean[c]) - mean) <= 1e-6 * mean_abs);
      REQUIRE(static_cast<double>(s.mean_abs[c]) == Approx(mean_abs).epsilon(1e-6));
      REQUIRE(static_cast<double>(s.min[c]) == least);
      REQUIRE(static_cast<double>(s.max[c]) == most);
      for (std::int64_t j = 0; j < k; ++j) {
        double gram = 0, cross = 0, gram_size = 0, cross_size = 0;
        for (std::int64_t t = 0; t < rows; ++t) {
          const double a = at(x, t, i) * at(x, t, j), b = (at(in_float, t, i) - at(x, t, i)) * at(x, t, j);
          gram += a, cross += b, gram_size += std::fabs(a), cross_size += std::fabs(b);
        }
        const auto n = static_cast<double>(rows);
        REQUIRE(std::fabs(static_cast<double>(s.hessian_view()(i, j)) - gram / n) <= 1e-6 * gram_size / n);
        REQUIRE(std::fabs(static_cast<double>(s.cross_view()(i, j)) - cross / n) <= 1e-6 * cross_size / n);
        REQUIRE(s.hessian_view()(i, j) == s.hessian_view()(j, i));
      }
    }
  }
}

TEST_CASE("accumulator: the same bits for any number of threads, and for calls of whole stretches") {
  const std::int64_t k = 75;
  const auto x = random_rows(2500, k, 3), in_float = random_rows(2500, k, 4);
  const LinearStatistics one = collect(x, in_float, k, 2500);
  for (const int threads : {1, 2, 7}) {
    ThreadPool pool(threads);
    for (const std::int64_t step : {std::int64_t{1024}, std::int64_t{2500}}) {
      const LinearStatistics s = collect(x, in_float, k, step, pool.parallel_for());
      REQUIRE(same(s.hessian, one.hessian));
      REQUIRE(same(s.cross, one.cross));
      REQUIRE(same(s.mean, one.mean));
      REQUIRE(same(s.mean_abs, one.mean_abs));
    }
  }
}

TEST_CASE("accumulator: many rows don't wear the sums out") {
  // f32 alone would stop counting at 2^24.
  const std::int64_t k = 2, rows = 1 << 14;
  std::vector<float> x(static_cast<std::size_t>(rows * k), 4096.0f);
  auto sums = Accumulator::make(k, {.hessian = true});
  REQUIRE(sums.ok());
  for (int i = 0; i < 8; ++i) REQUIRE(sums->add(view(x, k), {}).ok());
  REQUIRE(sums->tokens() == 8 * rows);
  auto s = sums->finish();
  REQUIRE(s.ok());
  REQUIRE(s->hessian[1] == 4096.0f * 4096.0f);
  REQUIRE(s->cross.empty());
  REQUIRE(s->mean.empty());
}

TEST_CASE("accumulator: what isn't a number is found and named") {
  const std::int64_t k = 70;
  for (const auto& [value, word] :
       {std::pair<float, const char*>{NAN, "NaN"}, {INFINITY, "infinite"}, {-1e30f, "too large"}}) {
    auto sums = Accumulator::make(k, kAll);
    REQUIRE(sums.ok());
    auto x = random_rows(20, k, 5), in_float = x;
    REQUIRE(sums->add(view(x, k), view(in_float, k)).ok());
    x[static_cast<std::size_t>(7 * k + 66)] = value;
    const Status status = sums->add(view(x, k), view(in_float, k));
    REQUIRE(status.code() == Errc::bad_format);
    REQUIRE(status.text() == cat({"the input of token 27 is ", word, " in channel 66"}));
    const Status other = sums->add(view(in_float, k), view(x, k));
    REQUIRE(other.text() == cat({"the input of token 27 is ", word, " in channel 66 of the float model"}));
  }
}

TEST_CASE("accumulator: shapes that don't fit, and nothing seen") {
  REQUIRE(Accumulator::make(0, kAll).status().code() == Errc::invalid_argument);
  auto sums = Accumulator::make(3, kAll);
  REQUIRE(sums.ok());
  const auto x = random_rows(4, 3, 6);
  REQUIRE(sums->add(view(x, 2), view(x, 2)).code() == Errc::invalid_argument);
  REQUIRE(sums->add(view(x, 3), {}).code() == Errc::invalid_argument);
  REQUIRE(sums->finish().status().code() == Errc::invalid_argument);
}

TEST_CASE("samples: cut evenly over the whole text") {
  std::vector<std::int32_t> text(1000);
  std::iota(text.begin(), text.end(), 0);
  auto samples = calib::cut_samples(text, 4, 100);
  REQUIRE(samples.ok());
  REQUIRE(samples->ids.size() == 400);
  for (std::int64_t i = 0; i < 4; ++i) {
    REQUIRE(samples->sequence(i).size() == 100);
    REQUIRE(samples->sequence(i)[0] == 225 * i);
    REQUIRE(samples->sequence(i)[99] == 225 * i + 99);
  }
  auto whole = calib::cut_samples(text, 2, 1000);  // no more text: the same twice
  REQUIRE(whole.ok());
  REQUIRE(whole->sequence(1)[0] == 0);

  REQUIRE(calib::cut_samples(text, 1, 1001).status().text() ==
          "the calibration text has 1000 tokens, 1001 or more expected: one sequence");
  REQUIRE(calib::cut_samples({}, 32, 512).status().text() ==
          "the calibration text has 0 tokens, 512 or more expected: one sequence");
  REQUIRE(calib::cut_samples(text, 0, 10).status().code() == Errc::invalid_argument);
  REQUIRE(calib::cut_samples(text, 10, 0).status().code() == Errc::invalid_argument);
  REQUIRE(calib::cut_samples(text, std::int64_t{1} << 60, 64).status().code() == Errc::invalid_argument);
}

TEST_CASE("magnitudes: counts don't depend on order or calls, and ranges grow") {
  std::vector<float> values = random_rows(300, 10, 8);
  values.push_back(0);
  calib::Magnitudes whole, parts, back;
  REQUIRE(whole.add(values).ok());
  for (std::size_t i = 0; i < values.size(); i += 100)
    REQUIRE(parts.add(std::span(values).subspan(i, std::min<std::size_t>(100, values.size() - i))).ok());
  for (std::size_t i = values.size(); i-- > 0;) {
    calib::Magnitudes one;
    REQUIRE(one.add({&values[i], 1}).ok());
    back.add(one);
  }
  float largest = 0;
  for (float x : values) largest = std::max(largest, std::fabs(x));
  const double width = whole.width();
  REQUIRE(static_cast<double>(largest) < width * calib::Magnitudes::kBins);
  REQUIRE(static_cast<double>(largest) >= width * calib::Magnitudes::kBins / 2);
  std::vector<std::uint64_t> want(calib::Magnitudes::kBins);
  for (float x : values) ++want[static_cast<std::size_t>(static_cast<double>(std::fabs(x)) / width)];
  for (const calib::Magnitudes* h : {&whole, &parts, &back}) {
    REQUIRE(h->width() == width);
    REQUIRE(h->total() == values.size());
    REQUIRE(std::equal(want.begin(), want.end(), h->counts().begin()));
  }
  calib::Magnitudes nothing;
  const float zeros[] = {0, -0.0f, 0};
  REQUIRE(nothing.add(zeros).ok());
  REQUIRE(nothing.width() == 0);
  REQUIRE(nothing.counts()[0] == 3);
  const float bad[] = {1, NAN};
  REQUIRE(nothing.add(bad).text() == "value 1 is NaN, finite expected");
  REQUIRE(nothing.total() == 3);
}
