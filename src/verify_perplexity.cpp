#include "qf/verify/perplexity.hpp"

#include <algorithm>
#include <cmath>

#include "qf/core/buffer.hpp"

namespace qf::verify {
namespace {

// Rows of logits held at once. Large enough to keep a matrix product busy, small beside the weights.
constexpr std::int64_t kChunk = 128;

// What one position contributes; summed in order afterwards, so that threads don't change the result.
struct Position {
  double nll = 0, reference_nll = 0, kl = 0;
  bool agree = true, finite = true;
};

struct Peak {
  std::int64_t at = 0;
  float value = 0;
  bool finite = true;
};

Peak peak_of(const float* row, std::int64_t vocab) {
  Peak peak{0, row[0], true};
  for (std::int64_t i = 0; i < vocab; ++i) {
    peak.finite &= std::isfinite(row[i]);
    if (row[i] > peak.value) peak.value = row[i], peak.at = i;
  }
  return peak;
}

// log(sum(exp(row))) in double.
double log_partition(const float* row, std::int64_t vocab, float peak) {
  double sum = 0;
  for (std::int64_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(row[i]) - peak);
  return peak + std::log(sum);
}

Position judge(const float* model, const float* reference, std::int64_t vocab, std::int32_t target) {
  Position result;
  const Peak peak = peak_of(model, vocab);
  result.finite = peak.finite;
  if (!result.finite) return result;
  const double log_z = log_partition(model, vocab, peak.value);
  result.nll = log_z - model[target];
  if (!reference) return result;

  const Peak other = peak_of(reference, vocab);
  result.finite = other.finite;
  if (!result.finite) return result;
  result.agree = peak.at == other.at;
  // KL = sum p (log p - log q) with p = exp(r - log_zr): the difference of logits, averaged over p, less the
  // difference of the partitions. One exp a token serves the partition and the average.
  double sum = 0, difference = 0;
  for (std::int64_t i = 0; i < vocab; ++i) {
    const double e = std::exp(static_cast<double>(reference[i]) - other.value);
    sum += e;
    difference += e * (static_cast<double>(reference[i]) - model[i]);
  }
  const double log_zr = other.value + std::log(sum);
  result.reference_nll = log_zr - reference[target];
  result.kl = difference / sum - (log_zr - log_z);
  return result;
}

// One decoder with its cache and the logits of a chunk.
struct Reader {
  model::Decoder* decoder = nullptr;
  std::unique_ptr<model::KvStore> kv;
  Array<float> logits;

  Status prepare(model::Decoder* which, std::int64_t context) {
    decoder = which;
    QF_TRY_ASSIGN(kv, decoder->make_kv(context));
    const std::int64_t rows = std::min(context, kChunk);
    QF_TRY_ASSIGN(logits, Array<float>::make(static_cast<std::size_t>(rows * decoder->config().vocab)));
    return {};
  }
  Status read(std::span<const std::int32_t> tokens) {
    return decoder->forward(
        tokens, *kv, {logits.data(), {static_cast<std::int64_t>(tokens.size()), decoder->config().vocab}});
  }
};

Status check_input(const model::Decoder& model, const model::Decoder* reference,
                   std::span<const std::int32_t> ids, const TextOptions& options) {
  const std::int64_t vocab = model.config().vocab;
  if (reference && reference->config().vocab != vocab)
    return Status(Errc::invalid_argument, cat({"the model has ", num(vocab), " tokens, the reference ",
                                               num(reference->config().vocab), ": they can't be compared"}));
  if (options.context < 2)
    return Status(Errc::invalid_argument, cat({"context ", num(options.context), ", expected 2 or more"}));
  if (options.windows < 0)
    return Status(Errc::invalid_argument, cat({"windows ", num(options.windows), ", expected 0 or more"}));
  const std::int64_t fit = static_cast<std::int64_t>(ids.size()) / options.context;
  const std::int64_t wanted = std::max<std::int64_t>(options.windows, 1);
  if (fit < wanted)
    return Status(Errc::invalid_argument,
                  cat({"the text has ", num(ids.size()), " tokens, ", num(wanted),
                       wanted == 1 ? " window of " : " windows of ", num(options.context), " need more"}));
  for (std::int32_t id : ids)
    if (id < 0 || id >= vocab)
      return Status(Errc::invalid_argument,
                    cat({"the text holds token ", num(id), ", the model has ", num(vocab),
                         " tokens: was it tokenized for another model?"}));
  return {};
}

}  // namespace

Result<TextResult> evaluate_text(model::Decoder& model, model::Decoder* reference,
                                 std::span<const std::int32_t> ids, const TextOptions& options) {
  QF_TRY(check_input(model, reference, ids, options));
  const std::int64_t vocab = model.config().vocab;
  const std::int64_t windows =
      options.windows ? options.windows : static_cast<std::int64_t>(ids.size()) / options.context;
  const std::int64_t predictions = options.context - 1;

  Reader model_reader, reference_reader;
  QF_TRY(model_reader.prepare(&model, options.context));
  if (reference) QF_TRY(reference_reader.prepare(reference, options.context));

  TextResult result;
  double nll = 0, reference_nll = 0, kl = 0;
  std::int64_t agreeing = 0;
  std::vector<Position> positions;
  const auto total = static_cast<std::uint64_t>(windows * predictions);
  for (std::int64_t window = 0; window < windows; ++window) {
    const auto tokens = ids.subspan(static_cast<std::size_t>(window * options.context),
                                    static_cast<std::size_t>(options.context));
    QF_TRY(model_reader.kv->truncate(0));
    if (reference) QF_TRY(reference_reader.kv->truncate(0));
    double window_nll = 0, window_reference_nll = 0;
    for (std::int64_t first = 0; first < predictions; first += kChunk) {
      QF_TRY(options.progress.report(
          {"evaluate", "", static_cast<std::uint64_t>(result.tokens), total, "tokens"}));
      const std::int64_t rows = std::min(kChunk, predictions - first);
      const auto chunk = tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows));
      QF_TRY(model_reader.read(chunk));
      if (reference) QF_TRY(reference_reader.read(chunk).at("reference"));

      positions.assign(static_cast<std::size_t>(rows), {});
      parallel_for(options.parallel, rows, [&](std::int64_t row) {
        positions[static_cast<std::size_t>(row)] =
            judge(model_reader.logits.data() + row * vocab,
                  reference ? reference_reader.logits.data() + row * vocab : nullptr, vocab,
                  tokens[static_cast<std::size_t>(first + row + 1)]);
      });
      for (std::int64_t row = 0; row < rows; ++row) {
        const Position& p = positions[static_cast<std::size_t>(row)];
        if (!p.finite)
          return Status(Errc::bad_format, cat({"window ", num(window), ", position ", num(first + row),
                                               ": logits that aren't finite numbers"}));
        window_nll += p.nll;
        window_reference_nll += p.reference_nll;
        kl += p.kl;
        agreeing += p.agree;
      }
      result.tokens += rows;
    }
    nll += window_nll;
    reference_nll += window_reference_nll;
    result.window_ppl.push_back(std::exp(window_nll / static_cast<double>(predictions)));
  }
  QF_TRY(options.progress.report({"evaluate", "", total, total, "tokens"}));

  const auto count = static_cast<double>(result.tokens);
  result.ppl = std::exp(nll / count);
  if (reference) {
    result.reference_ppl = std::exp(reference_nll / count);
    result.kl = kl / count;
    result.top1 = static_cast<double>(agreeing) / count;
  }
  return result;
}

}  // namespace qf::verify
