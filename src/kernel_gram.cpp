// Products of columns from the tiles of float matrices: one factor is packed in panels, the other turned so that its
// rows run along the sum.
#include "qf/kernel/gram.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/dense_ops.hpp"

namespace qf::kernel {
namespace {

using detail::dense_ops;
using detail::kPanel;
using detail::kTileRows;
using detail::Sum;
using detail::TileArgs;

constexpr std::int64_t kStretch = 1024;  // rows whose products are summed in f32
constexpr std::int64_t kChain = 128;     // rows of a chain; the factors lie chain by chain
constexpr std::int64_t kRows = 96;       // a block of results: a multiple of kTileRows,
constexpr int kPanels = 4;               // and as many panels as any tile() takes at its best

// One stretch of rows, both factors made ready.
struct Stretch {
  const GramArgs& args;
  GramScratch& scratch;
  std::int64_t first, count, k, panels;

  std::int64_t chains() const { return (count + kChain - 1) / kChain; }
  std::int64_t width() const { return panels * kPanel; }

  // The rows of one chain as panels [panels][kChain][kPanel] and turned [width][kChain]. A task is a panel.
  void prepare(std::int64_t chain, std::int64_t panel) const {
    const std::int64_t from = chain * kChain, rows = std::min(kChain, count - from), column = panel * kPanel;
    const std::int64_t columns = std::min<std::int64_t>(kPanel, k - column);
    const bool partial = columns < kPanel;
    float* wide = scratch.panels.data() + (chain * panels + panel) * kChain * kPanel;
    float* turned = scratch.rows.data() + (chain * width() + column) * kChain;
    float* turned_difference =
        args.cross.data ? scratch.difference.data() + (chain * width() + column) * kChain : nullptr;
    alignas(64) float part[kPanel * kPanel];
    alignas(64) float square[kPanel * kPanel];
    const auto turn = [&](std::int64_t r, float* to) {
      const void* source[kPanel];
      for (int i = 0; i < kPanel; ++i) source[i] = part + i * kPanel;
      dense_ops().pack[detail::kF32](source, kPanel, square, nullptr);
      for (int c = 0; c < kPanel; ++c)
        std::memcpy(to + c * kChain + r, square + c * kPanel, kPanel * sizeof(float));
    };
    for (std::int64_t r = 0; r < rows; r += kPanel) {
      const std::int64_t n = std::min<std::int64_t>(kPanel, rows - r);
      if (n < kPanel || partial) std::memset(part, 0, sizeof part);
      for (std::int64_t i = 0; i < n; ++i)
        std::memcpy(part + i * kPanel, args.x.row(first + from + r + i) + column,
                    static_cast<std::size_t>(columns) * sizeof(float));
      std::memcpy(wide + r * kPanel, part, static_cast<std::size_t>(n * kPanel) * sizeof(float));
      if (args.gram.data) turn(r, turned);
      if (!turned_difference) continue;
      for (std::int64_t i = 0; i < n; ++i) {
        const float* other = args.other.row(first + from + r + i) + column;
        float* to = part + i * kPanel;
        for (std::int64_t c = 0; c < columns; ++c) to[c] = other[c] - to[c];
      }
      turn(r, turned_difference);
    }
  }

  // sum(row .. row + kRows, panel .. panel + kPanels) += turned * panels
  void multiply(const Array<float>& turned, std::int64_t row, std::int64_t panel,
                const MatrixView<double>& sum) const {
    alignas(64) float block[kRows * kPanels * kPanel];
    const std::int64_t rows = std::min(kRows, k - row);
    TileArgs t{};
    t.panels = static_cast<int>(std::min<std::int64_t>(kPanels, panels - panel));
    t.x_stride = kChain;
    t.w_step = kPanel;
    t.w_panel = kChain * kPanel;
    t.y_stride = kPanels * kPanel;
    t.y_panel = kPanel;
    t.last_columns = kPanel;
    t.sum = Sum::set;
    for (std::int64_t chain = 0; chain < chains(); ++chain) {
      t.k = std::min(kChain, count - chain * kChain);
      t.w = scratch.panels.data() + (chain * panels + panel) * kChain * kPanel;
      for (std::int64_t r = 0; r < rows; r += kTileRows) {
        t.rows = static_cast<int>(std::min<std::int64_t>(kTileRows, rows - r));
        t.x = turned.data() + (chain * width() + row + r) * kChain;
        t.y = block + r * t.y_stride;
        dense_ops().tile[detail::kF32](t);
      }
      t.sum = Sum::add;
    }
    const std::int64_t column = panel * kPanel,
                       columns = std::min<std::int64_t>(t.panels * kPanel, k - column);
    for (std::int64_t r = 0; r < rows; ++r) {
      double* to = sum.row(row + r) + column;
      const float* from = block + r * t.y_stride;
      for (std::int64_t c = 0; c < columns; ++c) to[c] += static_cast<double>(from[c]);
    }
  }

  void run(const ParallelFor& parallel) const {
    parallel_for(parallel, chains() * panels,
                 [&](std::int64_t task) { prepare(task / panels, task % panels); });
    const std::int64_t down = (k + kRows - 1) / kRows, across = (panels + kPanels - 1) / kPanels;
    const std::int64_t both = down * across;
    parallel_for(parallel, 2 * both, [&](std::int64_t task) {
      const bool second = task >= both;
      const std::int64_t row = task % both / across * kRows, panel = task % across * kPanels;
      if (second) {
        if (args.cross.data) multiply(scratch.difference, row, panel, args.cross);
      } else if (args.gram.data && panel * kPanel < std::min(k, row + kRows)) {
        multiply(scratch.rows, row, panel, args.gram);
      }
    });
  }
};

Status reserve(Array<float>& array, std::int64_t count) {
  if (array.size() >= static_cast<std::size_t>(count)) return {};
  array = {};
  QF_TRY_ASSIGN(array, Array<float>::make(static_cast<std::size_t>(count)));
  return {};
}

}  // namespace

Status add_gram(const GramArgs& args, GramScratch& scratch, const ParallelFor& parallel) {
  const std::int64_t rows = args.x.shape[0], k = args.x.shape[1];
  const auto square = [&](const MatrixView<double>& m) {
    return !m.data || (m.shape[0] == k && m.shape[1] == k);
  };
  if (!square(args.gram) || !square(args.cross) ||
      (args.cross.data && (!args.other.data || args.other.shape != args.x.shape)))
    return Status(
        Errc::invalid_argument,
        cat({"second moments of x ", shape_text(args.x.shape), " and ", shape_text(args.other.shape),
             " into ", shape_text(args.gram.shape), " and ", shape_text(args.cross.shape)}));
  if (rows == 0 || k == 0 || (!args.gram.data && !args.cross.data)) return {};
  const std::int64_t panels = (k + kPanel - 1) / kPanel;
  const std::int64_t chains = (std::min(rows, kStretch) + kChain - 1) / kChain;
  const std::int64_t floats = chains * kChain * panels * kPanel;
  QF_TRY(reserve(scratch.panels, floats));
  if (args.gram.data) QF_TRY(reserve(scratch.rows, floats));
  if (args.cross.data) QF_TRY(reserve(scratch.difference, floats));
  for (std::int64_t first = 0; first < rows; first += kStretch)
    Stretch{args, scratch, first, std::min(kStretch, rows - first), k, panels}.run(parallel);
  return {};
}

}  // namespace qf::kernel
