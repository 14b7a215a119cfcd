// Needs: link qf. A whole checkpoint to low bits: tensor by tensor, in bounded memory, resumable after a kill
// at any moment, with the same bytes at the end however often it was interrupted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qf/calib/samples.hpp"
#include "qf/core/parallel.hpp"
#include "qf/core/progress.hpp"
#include "qf/core/result.hpp"
#include "qf/quant/error.hpp"
#include "qf/quant/quantizer.hpp"
#include "qf/quant/recipe.hpp"

namespace qf::quant {

struct PipelineOptions {
  ParallelFor parallel{};  // doesn't change the result
  Progress progress{};     // stage "quantize", unit "bytes" of the source
  std::uint64_t max_shard_bytes =
      5000000000u;                       // files don't grow beyond, except for a single tensor that is larger
  std::uint64_t slab_bytes = 16u << 20;  // float rows at work at a time; doesn't change the result
  bool resume = true;                    // false: a partial folder of an earlier run is thrown away
  bool overwrite = false;  // true: an existing output folder is replaced, in one step, at the end
  std::span<const QuantizerRef> quantizers{};  // the caller's own methods, by name
  // For methods that look at activations; not owned. nullptr: a recipe that names such a method is refused.
  const calib::Samples* calibration = nullptr;
};

// What happens to one tensor of the source.
struct TensorPlan {
  std::string name;
  std::string type;  // as the source spells it
  std::vector<std::int64_t> shape;
  std::ptrdiff_t rule = -1;  // index into the recipe's rules; -1: no rule matched
  Action action = Action::keep;
  std::string method;        // quantize
  Scheme scheme{};           // quantize
  DType dtype = DType::f16;  // convert
  std::uint64_t elements = 0;
  std::uint64_t source_bytes = 0;
  std::uint64_t output_bytes = 0;  // codes, scales, zeros and shape together
};

struct PipelinePlan {
  std::vector<TensorPlan> tensors;
  std::uint64_t source_bytes = 0, output_bytes = 0;  // of tensors; the file's header comes on top
  std::uint64_t file_bytes = 0;                      // of all weight files to be written, headers included
  std::uint64_t peak_memory_bytes = 0;  // estimate of what the run takes beyond the program itself
  std::size_t shards = 0;
  std::vector<std::size_t> unused_rules;  // indices of rules that decided over no tensor
  double bits_per_weight = 0;             // of the quantized tensors, scales and zeros included
};

struct TensorReport {
  TensorPlan plan;
  MatrixError error;  // quantize and convert
};

struct PipelineReport {
  std::vector<TensorReport> tensors;
  std::uint64_t source_bytes = 0, output_bytes = 0;
  double bits_per_weight = 0;       // of the quantized tensors
  std::size_t resumed_tensors = 0;  // taken over from an interrupted run, after their bytes were verified
  std::size_t shards = 0;
  // CPU seconds of all threads that calibrated methods took: running the model, adding up statistics, choosing codes.
  double forward_seconds = 0, statistics_seconds = 0, solving_seconds = 0;
};

// What quantize_checkpoint() would do, from headers alone; writes nothing. Errors as there.
Result<PipelinePlan> plan_checkpoint(const std::string& input, const Recipe& recipe,
                                     const PipelineOptions& options = {});

// `input`: a Hugging Face folder with float weights. `output`: the folder to make, in compressed-tensors
// "pack-quantized": config.json with quantization_config, weights as safetensors, qf_report.json, and the
// tokenizer's and other small files as they are. Everything is written into "<output>.partial" beside it and
// renamed when complete and synced; after an error, a cancel or a kill that folder stays and the next call
// with the same input and recipe goes on from there: finished tensors are verified by hash and kept. Another
// input or recipe starts anew. Errors: not_found, bad_format, unsupported, invalid_argument (a recipe, a
// tensor that can't be quantized, a checkpoint that already is, an output that exists), io_error (disk full,
// another process at work on the same output), cancelled, out_of_memory. Thread rule: calls with different
// outputs may run at the same time.
Result<PipelineReport> quantize_checkpoint(const std::string& input, const std::string& output,
                                           const Recipe& recipe, const PipelineOptions& options = {});

}  // namespace qf::quant
