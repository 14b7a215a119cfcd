// What solvers share: the Hessian as they use it, tasks that may fail, results.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "qf/core/buffer.hpp"
#include "qf/core/parallel.hpp"
#include "qf/format/quantized_matrix.hpp"
#include "qf/quant/clip.hpp"
#include "qf/quant/quantizer.hpp"
#include "qf/quant/rtn.hpp"
#include "src/quant_clip.hpp"

namespace qf::quant::detail {

// The Hessian of the statistics, or the identity in its place.
struct HessianUse {
  MatrixView<const float> h;  // empty: the identity
  Array<float> weights;       // [k], its diagonal; ones for the identity and for kinds that don't need it
  double mean = 1;            // of the diagonal
  std::int64_t dead = 0;      // columns of diagonal 0
  bool identity = true;

  // Without a Hessian all kinds of search are one.
  ClipOptions clip_options(ClipOptions options) const {
    if (identity && options.kind != ClipKind::none) options.kind = ClipKind::squares;
    return options;
  }
};

// `needed`: with ClipKind::none and squares statistics aren't looked at. Errors: see gptq.hpp.
Result<HessianUse> use_hessian(const QuantizerInput& in, std::string_view method, ClipKind needed);

// Writes codes [k][16] of a panel (column c at at[c], nullptr: c) and its grids as rows [first, first + rows).
void store_result(const float* codes, const std::int32_t* at, const PanelGrids& grids, std::int64_t first,
                  std::int64_t rows, QuantizedMatrix& matrix);

// f(i) for every i < count; returns the error of the smallest i that had one.
template <class F>
Status for_tasks(const ParallelFor& parallel, std::int64_t count, F&& f) {
  std::vector<Status> results(static_cast<std::size_t>(count));
  parallel_for(parallel, count, [&](std::int64_t i) { results[static_cast<std::size_t>(i)] = f(i); });
  for (const Status& status : results) QF_TRY(status);
  return {};
}

}  // namespace qf::quant::detail
