#include "qf/quant/pipeline.hpp"

namespace qf::quant {

Result<PipelinePlan> plan_checkpoint(const std::string&, const Recipe&, const PipelineOptions&) {
  return Status(Errc::unsupported, "quantizing whole checkpoints is not available in this build");
}

Result<PipelineReport> quantize_checkpoint(const std::string&, const std::string&, const Recipe&,
                                           const PipelineOptions&) {
  return Status(Errc::unsupported, "quantizing whole checkpoints is not available in this build");
}

}  // namespace qf::quant
