#include "qf/quant/pipeline.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <new>
#include <system_error>

#include "qf/core/json.hpp"
#include "qf/io/compressed_tensors.hpp"
#include "qf/io/file_writer.hpp"
#include "src/quant_layers.hpp"
#include "src/quant_output.hpp"
#include "src/quant_plan.hpp"
#include "src/quant_shard_file.hpp"
#include "src/quant_tensor.hpp"
#include "src/quant_workspace.hpp"

namespace qf::quant {
namespace {

using detail::Job;
using detail::ShardFile;
using detail::TensorResult;
using detail::Work;
using detail::Workspace;

constexpr std::string_view kStage = "quantize";

// A journal line: the tensor, the hashes of its parts, and the sums of its error (exact: JSON writes doubles so that
// they read back the same).
std::string line_of(const std::string& tensor, const TensorResult& result) {
  Json json;
  json["tensor"] = tensor;
  for (const io::Hash128& hash : result.hashes) json["hashes"].push_back(hash.hex());
  const MatrixError& e = result.error;
  json["error"] = {e.elements,       e.error_squares, e.weight_squares, e.max_abs_error,
                   e.max_abs_weight, e.max_scale,     e.max_steps};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

struct Noted {
  std::vector<std::string> hashes;
  MatrixError error;
};

// What earlier runs noted, by tensor; lines that don't read are as good as missing.
std::map<std::string, Noted> read_notes(const std::vector<std::string>& lines) {
  std::map<std::string, Noted> notes;
  for (const std::string& line : lines) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("tensor") || !json["tensor"].is_string() ||
        !json.contains("hashes") || !json["hashes"].is_array() || !json.contains("error") ||
        !json["error"].is_array() || json["error"].size() != 7)
      continue;
    Noted noted;
    const Json& e = json["error"];
    bool readable = e[0].is_number_integer();
    for (const Json& value : e) readable = readable && value.is_number();
    for (const Json& hash : json["hashes"]) {
      readable = readable && hash.is_string();
      if (readable) noted.hashes.push_back(hash.get<std::string>());
    }
    if (!readable) continue;
    noted.error = {e[0].get<std::int64_t>(), e[1].get<double>(), e[2].get<double>(), e[3].get<double>(),
                   e[4].get<double>(),       e[5].get<double>(), e[6].get<double>()};
    notes[json["tensor"].get<std::string>()] = std::move(noted);
  }
  return notes;
}

// Whether the shard still holds what was noted.
Result<bool> verify(const Job& job, const ShardFile& file, const Noted& noted) {
  if (noted.hashes.size() != job.parts.size()) return false;
  for (std::size_t i = 0; i < job.parts.size(); ++i) {
    QF_TRY_ASSIGN(const io::Hash128 hash, file.hash(job.parts[i].offset, job.parts[i].bytes));
    if (hash.hex() != noted.hashes[i]) return false;
  }
  return true;
}

class Run final : private detail::LinearSink {
 public:
  Run(Work& work, Workspace& space, const Recipe& recipe, const PipelineOptions& options)
      : work_(work), space_(space), recipe_(recipe), options_(options), notes_(read_notes(space.lines())) {
    for (const Job& job : work.jobs) report_.tensors.push_back({job.plan, {}});
    done_.resize(work.jobs.size());
  }

  Result<PipelineReport> run() {
    report_.source_bytes = work_.plan.source_bytes;
    report_.output_bytes = work_.plan.output_bytes;
    report_.bits_per_weight = work_.plan.bits_per_weight;
    report_.shards = work_.plan.shards;
    if (space_.complete()) {
      QF_TRY(take_over_all());
    } else {
      QF_TRY(write_weights());
      QF_TRY(write_side_files());
    }
    QF_TRY(space_.finish());
    return std::move(report_);
  }

 private:
  // The files are in place already, under their final name.
  Status take_over_all() {
    for (const Job& job : work_.jobs) take_over(job, notes_[job.info->name].error);
    return {};
  }

  Status write_weights() {
    std::vector<std::string> names;
    for (const detail::Shard& shard : work_.shards) names.push_back(shard.name);
    QF_TRY(space_.keep_only(names));
    // All files at once, so that a disk too small shows before the work.
    for (const detail::Shard& shard : work_.shards) {
      QF_TRY_ASSIGN(ShardFile file, ShardFile::open(space_.folder(), shard));
      files_.push_back(std::move(file));
    }
    written_.resize(files_.size());
    for (const Job& job : work_.jobs) {
      QF_TRY(advance(job, 0));
      QF_TRY_ASSIGN(const bool taken, take_over_if_intact(job));
      if (!taken && !job.waits()) QF_TRY(process(job, {}));
    }
    detail::LayerCosts costs;
    if (work_.calibrated) QF_TRY(detail::quantize_layers(work_, options_, *this, costs));
    report_.forward_seconds = costs.forward;
    report_.statistics_seconds = costs.statistics;
    report_.solving_seconds = costs.solving;
    for (ShardFile& file : files_) QF_TRY(file.flush());
    return options_.progress.report({kStage, "", done_bytes_, work_.plan.source_bytes, "bytes"});
  }

  std::size_t index_of(const Job& job) const { return static_cast<std::size_t>(&job - work_.jobs.data()); }

  void finish(const Job& job, const MatrixError& error) {
    report_.tensors[index_of(job)].error = error;
    done_[index_of(job)] = true;
  }

  void take_over(const Job& job, const MatrixError& error) {
    finish(job, error);
    ++report_.resumed_tensors;
    done_bytes_ += job.info->bytes;
  }

  Result<bool> take_over_if_intact(const Job& job) {
    const auto noted = notes_.find(job.info->name);
    if (noted == notes_.end()) return false;
    QF_TRY_ASSIGN(const bool intact, verify(job, files_[job.shard], noted->second));
    if (intact) take_over(job, noted->second.error);
    return intact;
  }

  Status process(const Job& job, const detail::Given& given) {
    const std::uint64_t before = done_bytes_;
    QF_TRY_ASSIGN(const TensorResult result,
                  detail::process_tensor(work_, job, files_[job.shard], options_, given,
                                         [&](std::uint64_t bytes) { return advance(job, bytes); }));
    done_bytes_ = before + job.info->bytes;
    QF_TRY(space_.note(line_of(job.info->name, result)));
    finish(job, result.error);
    return {};
  }

  bool done(const Job& job) const override { return done_[index_of(job)]; }

  Status write(const Job& job, const detail::Given& given) override {
    QF_TRY(advance(job, 0));
    return process(job, given);
  }

  // From the file, however it got there: a run that goes on sees what the interrupted one saw.
  Result<QuantizedMatrix> read(const Job& job) override {
    auto& file = written_[job.shard];
    if (!file) {
      QF_TRY_ASSIGN(file, io::open_checkpoint(space_.folder() + "/" + work_.shards[job.shard].name));
    }
    io::QuantizationGroup group;
    group.scheme = job.plan.scheme;
    QF_TRY_ASSIGN(QuantizedMatrix matrix, io::read_quantized(*file, detail::module_of(job.info->name), group,
                                                             io::QuantizationConfig().version));
    for (const detail::Part& part : job.parts)
      if (const io::TensorInfo* info = file->find(part.spec.name)) file->release(*info);
    return matrix;
  }

  Status tick() override {
    return options_.progress.report({kStage, "", done_bytes_, work_.plan.source_bytes, "bytes"});
  }

  Status write_side_files() {
    const std::string& folder = space_.folder();
    QF_TRY_ASSIGN(const auto copied, detail::copy_side_files(work_.input, folder));
    QF_TRY_ASSIGN(const std::string config, detail::output_config(work_));
    QF_TRY(io::write_file(folder + "/config.json", config));
    if (work_.shards.size() > 1) {
      std::map<std::string, std::string> file_of;
      std::uint64_t total = 0;
      for (const Job& job : work_.jobs)
        for (const detail::Part& part : job.parts) file_of[part.spec.name] = work_.shards[job.shard].name;
      for (const detail::Shard& shard : work_.shards) total += shard.data_bytes;
      QF_TRY(io::write_shard_index(folder, file_of, total));
    }
    return io::write_file(folder + "/qf_report.json", detail::report_text(report_, recipe_));
  }

  Status advance(const Job& job, std::uint64_t bytes) {
    done_bytes_ += bytes;
    return options_.progress.report({kStage, job.info->name, done_bytes_, work_.plan.source_bytes, "bytes"});
  }

  Work& work_;
  Workspace& space_;
  const Recipe& recipe_;
  const PipelineOptions& options_;
  std::map<std::string, Noted> notes_;
  PipelineReport report_;
  std::vector<ShardFile> files_;
  std::vector<std::unique_ptr<io::Checkpoint>> written_;  // the same files to read, made when needed
  std::vector<bool> done_;                                // by job
  std::uint64_t done_bytes_ = 0;
};

Status out_of_memory(const std::string& input) {
  return Status(Errc::out_of_memory, cat({input, ": no memory to quantize it"}));
}

// Replacing the output would remove the only copy of the weights that are better than it.
Status check_apart(const std::string& input, const std::string& output) {
  namespace fs = std::filesystem;
  std::error_code code;
  for (fs::path folder = fs::weakly_canonical(input, code); !code; folder = folder.parent_path()) {
    std::error_code other;
    if (fs::equivalent(folder, output, other))
      return Status(Errc::invalid_argument, cat({output, ": holds the input, so it isn't overwritten"}));
    if (folder == folder.parent_path()) break;
  }
  return {};
}

Result<PipelineReport> run_pipeline(const std::string& input, const std::string& output, const Recipe& recipe,
                                    const PipelineOptions& options) {
  QF_TRY_ASSIGN(const std::string target, detail::clean_output_path(output));
  QF_TRY_ASSIGN(Work work, detail::make_work(input, recipe, options));
  if (options.overwrite) QF_TRY(check_apart(input, target));
  QF_TRY_ASSIGN(Workspace space, Workspace::open(target, work.key, options.resume, options.overwrite));
  auto report = Run(work, space, recipe, options).run();
  if (report.ok()) return report;
  const Status& status = report.status();
  // A full disk or a cancel isn't the end of it.
  return Status(status.code(),
                cat({status.text(), "; nothing was put under ", target, ", what is finished stays in ",
                     space.partial(), " and the next run goes on from there"}));
}

}  // namespace

Result<PipelinePlan> plan_checkpoint(const std::string& input, const Recipe& recipe,
                                     const PipelineOptions& options) {
  try {
    QF_TRY_ASSIGN(Work work, detail::make_work(input, recipe, options));
    return std::move(work.plan);
  } catch (const std::bad_alloc&) {
    return out_of_memory(input);
  }
}

Result<PipelineReport> quantize_checkpoint(const std::string& input, const std::string& output,
                                           const Recipe& recipe, const PipelineOptions& options) {
  try {
    return run_pipeline(input, output, recipe, options);
  } catch (const std::bad_alloc&) {
    return out_of_memory(input);
  }
}

}  // namespace qf::quant
