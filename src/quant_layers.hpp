// Methods that look at activations: the model runs over the calibration text one layer after the other, and each linear
// is quantized from the statistics of its input when all before it is done.
#pragma once

#include "qf/calib/statistics.hpp"
#include "qf/format/quantized_matrix.hpp"
#include "src/quant_plan.hpp"
#include "src/quant_tensor.hpp"

namespace qf::quant::detail {

// Where linears go to and come from.
class LinearSink {
 public:
  virtual ~LinearSink() = default;
  virtual bool done(const Job& job) const = 0;
  // Treats and stores a tensor; it is done() then.
  virtual Status write(const Job& job, const Given& given) = 0;
  // What was stored for a linear that is done().
  virtual Result<QuantizedMatrix> read(const Job& job) = 0;
  // Called now and then; an error ends the work.
  virtual Status tick() = 0;
};

// CPU seconds of all threads.
struct LayerCosts {
  double forward = 0, statistics = 0, solving = 0;
};

// Does all jobs that wait for this (Job::waits()) and aren't done. Others are done before. Linears that are done
// already take part with what was stored for them, so that a run that was interrupted ends in the same bytes.
Status quantize_layers(const Work& work, const PipelineOptions& options, LinearSink& sink, LayerCosts& costs);

}  // namespace qf::quant::detail
