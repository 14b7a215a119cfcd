// The small files beside the weights: config.json, the report, the tokenizer's files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "qf/quant/pipeline.hpp"
#include "src/quant_plan.hpp"

namespace qf::quant::detail {

// The source's config.json with the quantization_config that says which module has which scheme.
Result<std::string> output_config(const Work& work);

// qf_report.json: what was done to each tensor and what it cost. The same text for the same result.
std::string report_text(const PipelineReport& report, const Recipe& recipe);

// Copies the files of the source that a model needs beside its weights, flushed; returns their names.
Result<std::vector<std::string>> copy_side_files(const std::string& input, const std::string& folder);

}  // namespace qf::quant::detail
