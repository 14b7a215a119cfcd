#include "src/cli/kv_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/cli/cli.hpp"

namespace qf::cli {
namespace {

constexpr double kWidth = 860, kHeight = 480, kLeft = 64, kRight = 190, kTop = 48, kBottom = 56;
// Distinct for people who see colours differently (Okabe and Ito), black last.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#999999", "#000000"};

std::string escaped(const std::string& raw) {
  std::string text;
  for (const char c : fit_to_show(raw))
    text += c == '&'   ? "&amp;"
            : c == '<' ? "&lt;"
            : c == '>' ? "&gt;"
            : c == '"' ? "&quot;"
                       : std::string(1, c);
  return text;
}

// A round step that cuts `most` into about five.
double step_of(double most) {
  const double raw = most / 5, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) return factor * power;
  return 10 * power;
}

}  // namespace

std::string kv_chart(const std::string& title, const std::vector<std::string>& policies,
                     const std::vector<double>& capacities, const std::vector<KvRun>& runs) {
  const auto ends = std::minmax_element(capacities.begin(), capacities.end());
  const double least = *ends.first, largest = *ends.second;
  double most = 0.01;
  for (const KvRun& run : runs) most = std::max(most, run.hit_ratio);
  const double step = step_of(most), top = step * std::ceil(most / step - 1e-9);
  const double span = largest > least ? std::log(largest / least) : 1;
  const auto x = [&](double capacity) {
    return kLeft + (kWidth - kLeft - kRight) * (largest > least ? std::log(capacity / least) / span : 0.5);
  };
  const auto y = [&](double ratio) { return kHeight - kBottom - (kHeight - kTop - kBottom) * ratio / top; };

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"26\" font-size=\"15\">Hit ratio, {3}</text>\n",
      kWidth, kHeight, kLeft, escaped(title));
  for (double ratio = 0; ratio <= top + step / 2; ratio += step)
    svg += fmt::format(
        "<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"#ddd\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.4g}</text>\n",
        kLeft, y(ratio), kWidth - kRight, kLeft - 8, y(ratio) + 4, ratio);
  double last = -100;
  std::vector<double> ticks = capacities;
  std::sort(ticks.begin(), ticks.end());
  for (const double capacity : ticks) {
    if (x(capacity) - last < 40) continue;
    last = x(capacity);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.4g} %</text>\n", last,
                       kHeight - kBottom + 20, 100 * capacity);
  }
  svg += fmt::format(
      "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">size of the cache, share of the trace's different "
      "blocks</text>\n",
      (kLeft + kWidth - kRight) / 2, kHeight - 12);

  for (std::size_t p = 0; p < policies.size(); ++p) {
    std::vector<std::size_t> order(capacities.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return capacities[a] < capacities[b]; });
    const char* colour = kColours[p % std::size(kColours)];
    const double width = policies[p] == "default" ? 3 : 1.5;
    const char* dash = policies[p] == "belady" ? " stroke-dasharray=\"6 4\"" : "";
    std::string points, dots;
    for (const std::size_t c : order) {
      const KvRun& run = runs[p * capacities.size() + c];
      points += fmt::format("{:.1f},{:.1f} ", x(run.capacity), y(run.hit_ratio));
      dots += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{} {:.4g} %: "
          "{:.4f}</title></circle>",
          x(run.capacity), y(run.hit_ratio), colour, escaped(run.policy), 100 * run.capacity, run.hit_ratio);
    }
    const double line = kTop + 12 + 22 * static_cast<double>(p), left = kWidth - kRight + 24;
    svg += fmt::format(
        "<polyline points=\"{0}\" fill=\"none\" stroke=\"{1}\" stroke-width=\"{2}\"{3}/>{4}\n"
        "<line x1=\"{5}\" y1=\"{6}\" x2=\"{7}\" y2=\"{6}\" stroke=\"{1}\" stroke-width=\"{2}\"{3}/>"
        "<text x=\"{8}\" y=\"{9}\">{10}</text>\n",
        points, colour, width, dash, dots, left, line, left + 28, left + 36, line + 4, escaped(policies[p]));
  }
  return svg + "</svg>\n";
}

}  // namespace qf::cli
