// AWQ's rescaling of a layer: what its tensors become before they are quantized, so that the layer computes the same.
#pragma once

#include <array>
#include <map>
#include <string>

#include "qf/calib/statistics.hpp"
#include "src/quant_plan.hpp"

namespace qf::quant::detail {

// Floats of tensors that take the place of the source's, by name.
using Floats = std::map<std::string, Array<float>, std::less<>>;

// By model::LayerInput: of the float model.
using LayerStatistics = std::array<calib::LinearStatistics, 4>;

// Whether rescale_layer() scales the channels of an input, from its hessian and mean_abs. It does when all its linears and what makes it are in the hands of the method: the norm before q, k and v or gate and
// up, the rows of v before o (shared by the query heads of a group), the rows of up before down.
bool scales_input(const Work& work, std::int64_t layer, model::LayerInput input);

// All tensors of the layer that change. Norms are rounded to the type that they are stored in, and the scales are those
// that this leaves, so that the function stays the same.
Result<Floats> rescale_layer(const Work& work, std::int64_t layer, const LayerStatistics& statistics,
                             const ParallelFor& parallel);

// Tensors that rescale_layer() may change besides linears: they can't be written before it ran.
std::vector<std::string> rescaled_vectors(std::int64_t layer);

}  // namespace qf::quant::detail
