// Needs: link qf. Codes that make the error of a layer's outputs small, not that of its weights: GPTQ and what
// improves on it, from the Hessian of the layer's inputs alone.
#pragma once

#include <cstdint>
#include <string_view>

#include "qf/quant/clip.hpp"
#include "qf/quant/quantizer.hpp"

namespace qf::quant {

struct GptqOptions {
  double damping = 0.01;  // share of the Hessian's mean diagonal added to the diagonal, in [0, 1]
  bool act_order = true;  // columns in order of falling H_cc; groups stay where they are, files need no g_idx
  double alpha = 0;       // share of the asymmetric target, in [0, 1]; above 0 statistics->cross is needed
  ClipOptions clip{};     // how grids are chosen, before any code
  int descents = 0;       // most passes of coordinate descent after GPTQ and after each refit, 0 to 100
  int refits = 0;         // closed-form refits of scales (and zeros), 0 to 100
};

// What a run did; sums over rows, in the order of rows.
struct GptqReport {
  double damping = 0;  // that was used in the end: it grows tenfold while the Hessian can't be factored
  int dampings_tried = 0;
  std::int64_t dead_columns = 0;  // H_cc == 0: inputs that were always 0
  bool no_statistics = false;     // a Hessian of zeros: plain round to nearest on the chosen grid was used
  // tr((T - Q) H (T - Q)^T) with the damped H and the target T (W unless alpha > 0), per token: nearest codes on
  // the grid, after GPTQ, at the end.
  double error_nearest = 0, error_gptq = 0, error = 0;
  std::int64_t changed_codes = 0;  // by descent, over all passes
};

// GPTQ (Frantar et al., arXiv:2210.17323): columns are rounded one after the other and the error of each is made
// up for by those that follow, with static groups. From there, in this order, what the options ask for:
//   target    T = W + alpha W D H^-1, D = statistics->cross: the layer also makes up for inputs that differ
//             because of what was quantized before it (GPTAQ, Li et al., arXiv:2504.02692)
//   clip      grids of T by ClipOptions
//   GPTQ      as back substitution with a Cholesky factor of H, H = L^T L: no inverse is formed
//   descents  every code in turn becomes the best one while all others stay (cyclic coordinate descent; CDQuant,
//             Nair and Suggala, arXiv:2406.17542)
//   refits    each group's scale, with floating zeros its zero too, becomes the best for the codes, by least
//             squares; then descents again
// None of the last two increases the error. 1 to 8 bits, any zero, any group, ragged last group included.
//
// Sums are f32 where a whole matrix is concerned, fused where the CPU fuses: the same bytes for any ParallelFor
// and on all CPUs with AVX2, AVX-512 or NEON, others may differ in codes that are nearly ties.
// Memory: about 8 k^2 bytes beyond the statistics, 12 k^2 with alpha, and a megabyte or a few a thread.
// Errors as Rtn's, and Errc::invalid_argument: options out of range; no statistics, no Hessian or cross where
// needed, of another k, or with NaN or infinite values. They name method and tensor.
class Gptq {
 public:
  static constexpr bool kNeedsWholeMatrix = true;  // so that the Hessian is factored once

  explicit Gptq(const GptqOptions& options = {}, std::string_view name = "gptq")
      : options_(options), name_(name) {}
  // The strongest combination: asymmetric target, Hessian-weighted clipping, act-order GPTQ, descent, refit. Clipping
  // by squares left 5 % less error in single layers of a 135M model at 4 bits, but not in the whole: KL .0648 for .0630.
  static Gptq best(double alpha = 0) {
    return Gptq({.alpha = alpha, .clip = {.kind = ClipKind::hessian_diagonal}, .descents = 4, .refits = 2},
                "best");
  }
  std::string_view name() const { return name_; }  // a literal, or outlives this
  const GptqOptions& options() const { return options_; }

  Result<QuantizedMatrix> quantize(const QuantizerInput& in) const { return quantize(in, nullptr); }
  Result<QuantizedMatrix> quantize(const QuantizerInput& in, GptqReport* report) const;

 private:
  GptqOptions options_;
  std::string_view name_;
};
static_assert(Quantizer<Gptq>);

}  // namespace qf::quant
