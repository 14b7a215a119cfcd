// What a run over a checkpoint will do, decided from headers alone: which tensor goes where, in which form.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "qf/io/checkpoint.hpp"
#include "qf/io/safetensors_writer.hpp"
#include "qf/model/layer_runner.hpp"
#include "qf/quant/pipeline.hpp"
#include "src/quant_methods.hpp"

namespace qf::quant::detail {

// A tensor of the output; its bytes lie in one piece in one shard.
struct Part {
  io::TensorSpec spec;
  std::uint64_t offset = 0, bytes = 0;  // in the shard's file
};

// A tensor of the source and what becomes of it. All its parts lie in the same shard, those of a quantized
// module in the order of io::quantized_specs().
struct Job {
  const io::TensorInfo* info = nullptr;
  TensorPlan plan;
  QuantizerRef quantizer;
  std::vector<Part> parts;
  std::size_t shard = 0;
  StatisticsNeeds needs;
  // Where the linear stands in the decoder; -1: in no layer, or nobody asked. The number of layers: it is the head.
  std::int64_t layer = -1;
  model::LayerInput input = model::LayerInput::qkv;
  int scale_grid = 0;     // of its method; 0: its inputs aren't rescaled
  bool rescaled = false;  // no linear, but changes when the inputs of some are rescaled: it waits for that
  bool waits() const { return needs.wanted.any() || rescaled; }
};

struct Shard {
  std::string name;
  std::string head;  // the file's first bytes
  std::uint64_t file_bytes = 0, data_bytes = 0;
};

struct Work {
  std::string input;
  std::string config;  // text of the source's config.json
  std::unique_ptr<io::Checkpoint> source;
  std::map<std::ptrdiff_t, Method> methods;  // by rule
  std::vector<Job> jobs;
  model::ModelConfig decoder;           // if calibrated
  bool calibrated = false;              // some job needs statistics
  std::uint64_t calibration_bytes = 0;  // estimate of the memory that collecting them takes
  std::vector<Shard> shards;
  PipelinePlan plan;
  std::string key;  // the same for the same source, recipe and layout
};

// Rows of a matrix that one thread works on at a time, a multiple of 32 (so that zeros of a column fill whole
// words), and how many such blocks are at work together.
struct Blocks {
  std::int64_t rows = 0, together = 1;
};
Blocks blocks_of(const Job& job, const PipelineOptions& options);

std::string module_of(const std::string& tensor);  // "a.b.weight": "a.b"

Result<Work> make_work(const std::string& input, const Recipe& recipe, const PipelineOptions& options);

}  // namespace qf::quant::detail
