// Small checkpoints for tests of quant, and folders as a whole.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "qf/io/safetensors_writer.hpp"
#include "qf/quant/recipe.hpp"
#include "tests/io_files.hpp"

namespace quant_test {

using io_test::put;
using io_test::slurp;
using io_test::TempFolder;

inline std::vector<float> random_floats(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.05f);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& x : values) x = normal(random);
  return values;
}

// Round to nearest, 4 bits, groups of 32.
inline qf::quant::Recipe w4() {
  return std::move(*qf::quant::default_recipe("rtn", {.bits = 4, .group = 32}));
}

inline bool exists(const std::string& path) {
  return std::filesystem::exists(path);
}

inline constexpr const char* kConfig =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "tie_word_embeddings": true})";

// The tensors of a tiny decoder: embedding, `layers` layers with odd widths, a norm.
inline std::vector<qf::io::TensorSpec> tiny_tensors(int layers, qf::DType type = qf::DType::bf16) {
  std::vector<qf::io::TensorSpec> tensors{{"model.embed_tokens.weight", type, {50, 64}}};
  for (int i = 0; i < layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i);
    tensors.push_back({layer + ".self_attn.q_proj.weight", type, {64, 64}});
    tensors.push_back({layer + ".self_attn.q_proj.bias", type, {64}});
    tensors.push_back({layer + ".mlp.up_proj.weight", type, {75, 64}});
    tensors.push_back({layer + ".mlp.down_proj.weight", type, {64, 75}});
    tensors.push_back({layer + ".input_layernorm.weight", type, {64}});
  }
  tensors.push_back({"model.norm.weight", type, {64}});
  return tensors;
}

// Writes a folder with random weights in one file or several; returns false when something failed.
inline bool make_checkpoint(const std::string& folder, const std::vector<qf::io::TensorSpec>& tensors,
                            std::size_t files = 1, const char* config = kConfig) {
  std::filesystem::create_directories(folder);
  put(folder + "/config.json", config);
  put(folder + "/tokenizer.json", "{\"model\": {}}");
  put(folder + "/tokenizer_config.json", "{}");
  put(folder + "/merges.txt", "");
  std::map<std::string, std::string> file_of;
  std::uint64_t total = 0;
  for (std::size_t f = 0; f < files; ++f) {
    std::vector<qf::io::TensorSpec> mine;
    for (std::size_t i = f * tensors.size() / files; i < (f + 1) * tensors.size() / files; ++i)
      mine.push_back(tensors[i]);
    const std::string name =
        files == 1 ? "model.safetensors"
                   : qf::io::shard_name(static_cast<std::int64_t>(f), static_cast<std::int64_t>(files));
    auto writer = qf::io::SafetensorsWriter::create(folder + "/" + name, mine);
    if (!writer.ok()) return false;
    for (const auto& spec : mine) {
      std::int64_t count = 1;
      for (std::int64_t d : spec.shape) count *= d;
      const unsigned seed = static_cast<unsigned>(std::hash<std::string>()(spec.name));
      if (!writer->write_f32(spec.name, random_floats(count, seed)).ok()) return false;
      file_of[spec.name] = name;
    }
    total += writer->data_bytes();
    if (!writer->commit().ok()) return false;
  }
  return files == 1 || qf::io::write_shard_index(folder, file_of, total).ok();
}

// Every file of a folder with its bytes.
inline std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    files[entry.path().lexically_relative(folder).string()] =
        entry.is_regular_file() ? slurp(entry.path().string()) : "folder";
  return files;
}

struct Kills {
  unsigned seed;
  int rounds, kills;      // at most so many runs, or so many that were killed
  unsigned microseconds;  // the longest that a run may live
};

// Runs `run` in children that are killed at random moments. When a folder appears in `out` it must be `expected`; it is
// removed then.
template <class Run>
void kill_often(const Kills& plan, const std::string& out, const std::map<std::string, std::string>& expected,
                Run run) {
  std::mt19937 random(plan.seed);
  int kills = 0;
  for (int round = 0; round < plan.rounds && kills < plan.kills; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      run();
      ::_exit(0);
    }
    ::usleep(random() % plan.microseconds);
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    kills += WIFSIGNALED(status);
    if (exists(out)) {
      REQUIRE(contents(out) == expected);
      std::filesystem::remove_all(out);
    }
  }
}

}  // namespace quant_test
