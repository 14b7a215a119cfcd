#include "src/quant_tensor.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "qf/io/compressed_tensors.hpp"
#include "qf/io/convert.hpp"

namespace qf::quant::detail {
namespace {

using Advance = std::function<Status(std::uint64_t)>;

// The parts of one tensor in the output, each written front to back and hashed on the way.
class PartWriter {
 public:
  PartWriter(const Job& job, ShardFile& file) : job_(job), file_(file), slots_(job.parts.size()) {}

  Status write(std::size_t part, std::span<const std::byte> bytes) {
    Slot& slot = slots_[part];
    if (bytes.size() > job_.parts[part].bytes - slot.done)
      return Status(Errc::internal,
                    cat({"tensor ", printable(job_.info->name), ": more bytes than planned"}));
    QF_TRY(file_.write(job_.parts[part].offset + slot.done, bytes));
    slot.hasher.update(bytes);
    slot.done += bytes.size();
    return {};
  }

  Result<std::vector<io::Hash128>> finish() const {
    std::vector<io::Hash128> hashes;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].done != job_.parts[i].bytes)
        return Status(Errc::internal,
                      cat({"tensor ", printable(job_.info->name), ": fewer bytes than planned"}));
      hashes.push_back(slots_[i].hasher.digest128());
    }
    return hashes;
  }

 private:
  struct Slot {
    io::Hasher hasher;
    std::uint64_t done = 0;
  };
  const Job& job_;
  ShardFile& file_;
  std::vector<Slot> slots_;
};

// Elements [first, first + out.size()) of the tensor.
Status read_floats(const Work& work, const Job& job, const Given& given, std::uint64_t first,
                   std::span<float> out) {
  if (!given.values) return work.source->read_f32(*job.info, first, out);
  std::copy_n(given.values + first, out.size(), out.begin());
  return {};
}

// A tensor that is kept, but with other values: stored in its own type.
Status keep_given(const Job& job, const Given& given, PartWriter& out, const Advance& advance) {
  const std::span<const float> values(given.values, static_cast<std::size_t>(job.info->elements));
  QF_TRY_ASSIGN(auto bytes, Array<std::byte>::make(static_cast<std::size_t>(job.info->bytes)));
  QF_TRY(io::encode_f32(job.parts[0].spec.dtype, values, bytes).at("tensor " + printable(job.info->name)));
  QF_TRY(out.write(0, bytes));
  return advance(job.info->bytes);
}

Status keep(const Work& work, const Job& job, const PipelineOptions& options, PartWriter& out,
            const Advance& advance) {
  std::span<const std::byte> rest = work.source->bytes(*job.info);
  while (!rest.empty()) {
    const auto piece =
        rest.first(static_cast<std::size_t>(std::min<std::uint64_t>(rest.size(), options.slab_bytes)));
    QF_TRY(out.write(0, piece));
    work.source->release(*job.info);
    QF_TRY(advance(piece.size()));
    rest = rest.subspan(piece.size());
  }
  return {};
}

Status convert(const Work& work, const Job& job, const PipelineOptions& options, const Given& given,
               PartWriter& out, const Advance& advance, MatrixError& error) {
  const std::uint64_t most = std::max<std::uint64_t>(options.slab_bytes / 4, 1);
  QF_TRY_ASSIGN(auto values,
                Array<float>::make(static_cast<std::size_t>(std::min(job.info->elements, most))));
  QF_TRY_ASSIGN(auto stored, Array<std::byte>::make(values.size() * 4));
  const auto width = static_cast<std::size_t>(dtype_bits(job.plan.dtype)) / 8;
  for (std::uint64_t first = 0; first < job.info->elements; first += values.size()) {
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(values.size(), job.info->elements - first));
    const std::span<float> piece(values.data(), count);
    QF_TRY(read_floats(work, job, given, first, piece));
    for (std::size_t i = 0; i < count; ++i) {
      const double rounded = static_cast<double>(round_to(job.plan.dtype, piece[i]));
      const double weight = static_cast<double>(piece[i]), off = std::fabs(weight - rounded);
      if (std::isfinite(weight) && !std::isfinite(rounded))
        return Status(Errc::invalid_argument,
                      cat({"tensor ", printable(job.info->name), ": element ", num(first + i),
                           " doesn't fit ", dtype_name(job.plan.dtype)}));
      if (!std::isfinite(weight)) continue;  // stays what it was
      error.error_squares += off * off;
      error.weight_squares += weight * weight;
      error.max_abs_error = std::max(error.max_abs_error, off);
      error.max_abs_weight = std::max(error.max_abs_weight, std::fabs(weight));
    }
    error.elements += static_cast<std::int64_t>(count);
    const std::span<std::byte> bytes(stored.data(), count * width);
    QF_TRY(io::encode_f32(job.plan.dtype, piece, bytes));
    QF_TRY(out.write(0, bytes));
    work.source->release(*job.info);
    QF_TRY(advance(job.info->bytes / job.info->elements * count));
  }
  return {};
}

struct Block {
  Array<MatrixError> errors;  // of each row: sums over blocks would depend on how rows are cut
  std::vector<io::StoredTensor> stored;
};

// Rows [first, first + rows) of the matrix. `parallel` is for quantizers that take the matrix as a whole.
Result<Block> quantize_rows(const Work& work, const Job& job, const Given& given, std::int64_t first,
                            std::int64_t rows, const ParallelFor& parallel) {
  const std::int64_t k = job.info->shape[1];
  QF_TRY_ASSIGN(auto values, Array<float>::make(static_cast<std::size_t>(rows * k)));
  QF_TRY(read_floats(work, job, given, static_cast<std::uint64_t>(first * k), values));
  const MatrixView<const float> w(values.data(), {rows, k});
  QuantizerInput in;
  in.w = w;
  in.scheme = job.plan.scheme;
  in.name = job.info->name;
  in.first_row = first;
  in.statistics = given.statistics;
  in.parallel = parallel;
  QF_TRY_ASSIGN(const QuantizedMatrix matrix, job.quantizer.quantize(in));
  if (matrix.scheme() != in.scheme || matrix.n() != rows || matrix.k() != k || !matrix.group_of().empty())
    return Status(Errc::invalid_argument,
                  cat({"tensor ", printable(job.info->name), ": method ", printable(job.plan.method),
                       " returned another shape, scheme or order of columns than it was asked for"}));
  Block block;
  QF_TRY_ASSIGN(block.errors, measure_rows(w, matrix, parallel));
  values = Array<float>();
  QF_TRY_ASSIGN(block.stored, io::tensors_of(matrix, module_of(job.info->name)));
  return block;
}

Status quantize(const Work& work, const Job& job, const PipelineOptions& options, const Given& given,
                PartWriter& out, const Advance& advance, MatrixError& error) {
  const std::int64_t n = job.info->shape[0];
  const Blocks plan = blocks_of(job, options);
  const bool whole = plan.together == 1;
  for (std::int64_t start = 0; start < n; start += plan.rows * plan.together) {
    const std::int64_t end = std::min(n, start + plan.rows * plan.together);
    const std::int64_t count = (end - start + plan.rows - 1) / plan.rows;
    std::vector<std::optional<Result<Block>>> blocks(static_cast<std::size_t>(count));
    parallel_for(options.parallel, count, [&](std::int64_t b) {
      const std::int64_t first = start + b * plan.rows;
      blocks[static_cast<std::size_t>(b)].emplace(quantize_rows(work, job, given, first,
                                                                std::min(plan.rows, end - first),
                                                                whole ? options.parallel : ParallelFor{}));
    });
    for (auto& result : blocks) {
      QF_TRY_ASSIGN(const Block block, std::move(*result));
      for (const MatrixError& row : block.errors) error.add(row);
      for (std::size_t i = 0; i < block.stored.size(); ++i) {
        if (job.parts[i].spec.name.ends_with(".weight_shape")) continue;  // of the block, not of the matrix
        QF_TRY(out.write(i, block.stored[i].bytes));
      }
    }
    work.source->release(*job.info);
    QF_TRY(
        advance(job.info->bytes / static_cast<std::uint64_t>(n) * static_cast<std::uint64_t>(end - start)));
  }
  for (std::size_t i = 0; i < job.parts.size(); ++i)
    if (job.parts[i].spec.name.ends_with(".weight_shape")) {
      const std::int64_t shape[2] = {n, job.info->shape[1]};
      QF_TRY(out.write(i, std::as_bytes(std::span(shape))));
    }
  return {};
}

}  // namespace

Result<TensorResult> process_tensor(const Work& work, const Job& job, ShardFile& file,
                                    const PipelineOptions& options, const Given& given,
                                    const Advance& advance) {
  TensorResult result;
  PartWriter out(job, file);
  switch (job.plan.action) {
    case Action::keep:
      QF_TRY(given.values ? keep_given(job, given, out, advance) : keep(work, job, options, out, advance));
      break;
    case Action::convert:
      QF_TRY(convert(work, job, options, given, out, advance, result.error));
      break;
    case Action::quantize:
      QF_TRY(quantize(work, job, options, given, out, advance, result.error));
      break;
  }
  QF_TRY_ASSIGN(result.hashes, out.finish());
  return result;
}

}  // namespace qf::quant::detail
