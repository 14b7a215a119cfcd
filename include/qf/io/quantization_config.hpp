// Needs: link qf. The "quantization_config" of a model's config.json in the form of compressed-tensors: which
// modules are stored with which scheme. Source: compressed-tensors 0.20.1 and its older wheels.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qf/core/result.hpp"
#include "qf/format/scheme.hpp"

namespace qf::io {

struct QuantizationGroup {
  std::string name = "group_0";
  // Exact module names, "re:" with a regular expression that fits from the name's start, or class names
  // ("Linear").
  std::vector<std::string> targets;
  // The type of scales isn't in the config: tensors say it, and `scheme.scale` is not read from or written to
  // it.
  Scheme scheme;
  bool one_scale = false;  // strategy "tensor": a single scale for the whole matrix; never written
  bool act_order = false;  // columns belong to groups through weight_g_idx
};

struct QuantizationConfig {
  std::string version = "0.18.0";  // of compressed-tensors; the first one with dense codes
  std::vector<QuantizationGroup> groups;
  std::vector<std::string> ignore;  // like targets: modules that stay as they are
};

// `config_json` is the text of config.json, `what` its name for errors. Empty when the model isn't quantized.
// Errors: bad_format; unsupported, by name, for other methods than compressed-tensors, other formats than
// "pack-quantized", float codes, blocks, quantized activations, rotations at run time, sparsity. Not looked at: the
// kv cache's scheme and what only the quantizer needed (observers).
Result<std::optional<QuantizationConfig>> parse_quantization_config(std::string_view config_json,
                                                                    std::string_view what);

// The group that a module belongs to: of an exact name first, then of a fitting regular expression, then of
// its class. nullptr when it is ignored or nothing fits. Fails on a regular expression that is broken or takes
// too long.
Result<const QuantizationGroup*> find_group(const QuantizationConfig& config, std::string_view module,
                                            std::string_view class_name = "Linear");

// The text of config.json with its "quantization_config" put in or replaced; other keys keep their order.
// Errors: bad_format; unsupported for codebooks and floating zeros, which this form can't express.
Result<std::string> with_quantization_config(std::string_view config_json, std::string_view what,
                                             const QuantizationConfig& config);

}  // namespace qf::io
