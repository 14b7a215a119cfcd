// Needs: link qf. Grids that cut the tails of a group's range: fewer levels are spent on weights that hardly
// occur. One search for all methods: RTN, GPTQ and what follows it use the same grids.
#pragma once

#include <cstdint>
#include <string_view>

#include "qf/quant/quantizer.hpp"

namespace qf::quant {

// What a search for a group's range makes least; q are the values of the nearest codes, in the group's columns.
enum class ClipKind : std::uint8_t {
  none,              // no search: the range of the weights (make_grid)
  squares,           // sum of (w - q)^2
  hessian_diagonal,  // sum of H_cc (w - q)_c^2
  hessian_blocks,  // (w - q) H_gg (w - q)^T with the group's own block of the Hessian: the error of the outputs
                   // that this group alone causes (the objective of AWQ's clip search, arXiv:2306.00978)
};

struct ClipOptions {
  ClipKind kind = ClipKind::none;
  double least = 0.2;  // ranges down to this share of the whole one are tried, in (0, 1]
  int steps = 16;      // coarse steps from 1 to `least`, 1 to 1000; finer ones follow around the best
  bool zeros = true;   // ZeroKind::integer: zeros one above and one below are tried too
};

// Round to nearest on clipped grids. 1 to 8 bits, any zero and group. Never worse than Rtn by the objective of
// its kind, up to the rounding of float arithmetic. Without statistics, with statistics of no token or with a
// Hessian of zeros, kinds that need a Hessian fall back as documented at quantize().
class ClippedRtn {
 public:
  explicit ClippedRtn(const ClipOptions& options = {.kind = ClipKind::squares}) : options_(options) {}
  static constexpr std::string_view name() { return "rtn"; }
  const ClipOptions& options() const { return options_; }

  // Errors as Rtn's, and Errc::invalid_argument: options out of range; no statistics, or statistics without a
  // Hessian or of another k, where the kind needs one. A Hessian of zeros (a layer never reached) counts as the
  // identity.
  Result<QuantizedMatrix> quantize(const QuantizerInput& in) const;

 private:
  ClipOptions options_;
};
static_assert(Quantizer<ClippedRtn>);

}  // namespace qf::quant
