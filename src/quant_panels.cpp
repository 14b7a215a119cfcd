#include "src/quant_panels.hpp"

#include <cstring>

namespace qf::quant::detail {

void multiply(const Product& product) {
  // So much of w stays in the first-level cache while all rows of x pass by.
  constexpr std::int64_t kChunk = 128;
  const auto tile = kernel::detail::dense_ops().tile[kernel::detail::kF32];
  kernel::detail::TileArgs t{};
  t.panels = static_cast<int>(product.panels);
  t.x_stride = product.x_stride;
  t.w_step = kPanel;
  t.w_panel = product.w_panel;
  t.y_stride = kPanel;
  t.y_panel = product.y_panel;
  t.last_columns = kPanel;
  t.sum = product.sum;
  for (std::int64_t i = 0; i == 0 || i < product.k; i += kChunk) {
    t.k = std::min(kChunk, product.k - i);
    t.w = product.w + i * kPanel;
    for (std::int64_t r = 0; r < product.rows; r += kTileRows) {
      t.rows = static_cast<int>(std::min<std::int64_t>(kTileRows, product.rows - r));
      t.x = product.x + r * product.x_stride + i;
      t.y = product.y + r * kPanel;
      tile(t);
    }
    if (t.sum == Sum::set) t.sum = Sum::go_on;
  }
}

void load_panel(MatrixView<const float> w, std::int64_t rows, float* panel) {
  constexpr std::int64_t kPart = 64;
  static constexpr float kZeros[kPart] = {};
  const auto pack = kernel::detail::dense_ops().pack[kernel::detail::kF32];
  for (std::int64_t c = 0; c < w.shape[1]; c += kPart) {
    const void* from[kPanel];
    for (std::int64_t r = 0; r < kPanel; ++r) from[r] = r < rows ? w.row(r) + c : kZeros;
    pack(from, std::min(kPart, w.shape[1] - c), panel + c * kPanel, nullptr);
  }
}

void panel_to_rows(const float* panel, const std::int32_t* at, std::int64_t k, float* rows,
                   std::int64_t stride) {
  const auto pack = kernel::detail::dense_ops().pack[kernel::detail::kF32];
  alignas(64) float block[kPanel * kPanel];
  for (std::int64_t c = 0; c < k; c += kPanel) {
    const std::int64_t count = std::min<std::int64_t>(kPanel, k - c);
    const void* from[kPanel];
    for (std::int64_t i = 0; i < kPanel; ++i) {
      const std::int64_t column = c + std::min(i, count - 1);
      from[i] = panel + (at ? at[column] : column) * kPanel;
    }
    pack(from, kPanel, block, nullptr);  // block[lane][i]
    for (std::int64_t lane = 0; lane < kPanel; ++lane)
      std::memcpy(rows + lane * stride + c, block + lane * kPanel,
                  static_cast<std::size_t>(count) * sizeof(float));
  }
}

}  // namespace qf::quant::detail
