// The search for grids, by panels of 16 rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "qf/core/buffer.hpp"
#include "qf/quant/clip.hpp"
#include "qf/quant/grid.hpp"
#include "src/quant_panels.hpp"

namespace qf::calib {
struct LinearStatistics;
}

namespace qf::quant::detail {

// Grids of a panel, [groups][16] each. inverse = 1 / scale, 0 for a scale of 0.
struct PanelGrids {
  float *scale, *inverse, *zero;

  void set(std::int64_t at, Grid grid) const {
    scale[at] = grid.scale;
    inverse[at] = grid.scale == 0 ? 0 : 1 / grid.scale;
    zero[at] = grid.zero;
  }
};

// A weight that no grid can be made for. What it is, `explain_trouble` says.
struct Trouble {
  bool is;
  std::int64_t row, group;
};
Status explain_trouble(const QuantizerInput& in, const std::string& tensor, const Trouble& trouble);

// What the search needs to know besides the weights.
struct ClipProblem {
  Scheme scheme{};
  std::int64_t k = 0;
  ClipOptions options{};
  const float* weights = nullptr;  // [k], of squares
  MatrixView<const float> h;       // hessian_blocks
};

Status check(const ClipOptions& options);

// Chooses the grids of `rows` rows of a panel [k][16]. `work` has clip_work() elements. Trouble: rows count within
// the panel.
std::int64_t clip_work(const ClipProblem& problem);
Trouble choose_grids(const ClipProblem& problem, const float* panel, std::int64_t rows, const PanelGrids& out,
                     float* work);

// The mean of `count` weights between lo and hi of that sum.
inline float mean_between(float lo, float hi, double sum, std::int64_t count) {
  return std::clamp(static_cast<float>(sum / static_cast<double>(count)), lo, hi);
}

// The grid of weights from lo to hi with `share` of their range on each side of its centre: 0, with floating zeros
// `mean`, which lies between lo and hi. The scale is rounded to nearest, an integer zero moved by `shift`. Scale 0:
// there is none.
Grid shrunk_grid(const Scheme& scheme, float lo, float hi, float mean, float share, float shift);

}  // namespace qf::quant::detail
