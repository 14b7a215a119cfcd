// A model's configuration as GGUF metadata and as Hugging Face's config.json.
#pragma once

#include <string>
#include <vector>

#include "qf/core/result.hpp"
#include "qf/io/gguf_writer.hpp"
#include "qf/model/config.hpp"

namespace qf::model::detail {

void put_config(const ModelConfig& config, io::GgufMetadata& metadata);

// Tensors that carry what config.json says about positions: rope_freqs.weight, rope_factors_*.weight.
struct RopeTensor {
  std::string name;
  std::vector<float> factors;
};
std::vector<RopeTensor> rope_tensors(const ModelConfig& config);

// Errors: factors that no rule of config.json gives (unsupported).
Result<std::string> config_json(const ModelConfig& config, std::string_view torch_dtype, std::int32_t pad,
                                std::string_view what);

}  // namespace qf::model::detail
