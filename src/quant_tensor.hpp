// One tensor of the source to its parts in the output, in pieces that fit the memory.
#pragma once

#include <functional>
#include <vector>

#include "qf/io/hash.hpp"
#include "qf/quant/error.hpp"
#include "src/quant_plan.hpp"
#include "src/quant_shard_file.hpp"

namespace qf::quant::detail {

struct TensorResult {
  MatrixError error;
  std::vector<io::Hash128> hashes;  // of each part
};

// What a tensor's treatment is given besides the source.
struct Given {
  const calib::LinearStatistics* statistics = nullptr;  // for the quantizer
  const float* values = nullptr;                        // all elements, to be taken for the source's
};

// Reads, transforms and writes one tensor. `advance(bytes)` is told how much of the source is done and may stop
// the work with an error.
Result<TensorResult> process_tensor(const Work& work, const Job& job, ShardFile& file,
                                    const PipelineOptions& options, const Given& given,
                                    const std::function<Status(std::uint64_t)>& advance);

}  // namespace qf::quant::detail
