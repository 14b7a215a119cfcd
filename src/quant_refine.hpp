// What improves codes and scales that are there already, for a few panels of 16 rows at a time.
#pragma once

#include <cstdint>

#include "qf/core/tensor.hpp"
#include "qf/format/scheme.hpp"
#include "src/quant_clip.hpp"
#include "src/quant_panels.hpp"

namespace qf::quant::detail {

// A = factor * h + ridge on the diagonal: the Hessian as solvers use it.
struct DampedHessian {
  MatrixView<const float> h;
  float factor = 1, ridge = 0;

  float diagonal(std::int64_t c) const { return factor * h(c, c) + ridge; }
};

// Codes and grids of up to kAtOnce panels under improvement. With T the target and Q the values, the gradient is
// (T - Q) A; it is kept up to date.
struct Refinement {
  Scheme scheme{};
  std::int64_t k = 0;
  DampedHessian a{};
  std::int64_t panels = 0;
  // Row-major, [16 * panels][row_stride].
  float *row_codes = nullptr, *row_gradient = nullptr;
  std::int64_t row_stride = 0;  // a multiple of 16
  // Panels [k][16], `panel` elements apart, and grids [groups][16], `grid_panel` elements apart.
  float *codes = nullptr, *gradient = nullptr;
  std::int64_t panel = 0;
  PanelGrids grids{};
  std::int64_t grid_panel = 0;
  float* work = nullptr;  // descend_work() or refit_work() elements, whichever is more

  PanelGrids grids_of(std::int64_t p) const {
    return {grids.scale + p * grid_panel, grids.inverse + p * grid_panel, grids.zero + p * grid_panel};
  }
};

// At most `passes` passes of coordinate descent, fewer if nothing changes any more; works on rows. Returns how many
// codes changed.
std::int64_t descend(const Refinement& r, int passes);
std::int64_t descend_work(const Refinement& r);

// Scales (with floating zeros: zeros too) by least squares for the codes as they are, group after group; works on
// panels. Each group's error falls or stays.
void refit(const Refinement& r);
std::int64_t refit_work(const Refinement& r);

}  // namespace qf::quant::detail
