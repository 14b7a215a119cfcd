#include "src/quant_layers.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <optional>

#include "qf/calib/accumulator.hpp"
#include "qf/model/layer_runner.hpp"
#include "src/quant_rescale.hpp"

namespace qf::quant::detail {
namespace {

using calib::Accumulator;
using calib::LinearStatistics;
using calib::Wanted;
using model::LayerInput;

// Rows whose inputs are made before they are added up.
constexpr std::int64_t kBlockRows = 1024;

// Adds the CPU time of its life to a sum.
class Timer {
 public:
  explicit Timer(double& to) : to_(to), start_(std::clock()) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() { to_ += static_cast<double>(std::clock() - start_) / CLOCKS_PER_SEC; }

 private:
  double& to_;
  std::clock_t start_;
};

// A model on its way through the layers: the one in float, or the one whose linears are quantized.
struct Stream {
  bool on = false;
  Array<float> hidden;          // [tokens, hidden]
  model::LayerWeights weights;  // of the layer at hand
};

bool joins_hidden(LayerInput input) {
  return input == LayerInput::o || input == LayerInput::down;
}

class Layers {
 public:
  Layers(const Work& work, const PipelineOptions& options, LinearSink& sink, LayerCosts& costs)
      : work_(work), options_(options), sink_(sink), costs_(costs), samples_(*options.calibration) {}

  Status run() {
    for (const Job& job : work_.jobs) {
      float_.on |= job.scale_grid > 0;  // scales come from it, also of a layer that is done
      if (!job.waits() || sink_.done(job)) continue;
      ++left_;
      if (job.needs.wanted.any()) quantized_.on |= job.needs.sequential;
      float_.on |= job.rescaled || !job.needs.sequential || job.needs.wanted.cross;
    }
    if (left_ == 0) return {};
    QF_TRY_ASSIGN(runner_, model::LayerRunner::open(work_.input, options_.parallel));
    QF_TRY(start());
    const std::int64_t layers = runner_->config().layers;
    for (std::int64_t layer = 0; layer < layers && left_ > 0; ++layer) {
      for (Stream* stream : {&float_, &quantized_}) {
        if (!stream->on) continue;
        const Timer timer(costs_.forward);
        stream->weights.reset();
        QF_TRY_ASSIGN(stream->weights, runner_->load(layer));
      }
      QF_TRY(rescale(layer));
      for (const LayerInput input : model::kLayerInputs)
        if (left_ > 0) QF_TRY(stage(layer, input));
    }
    if (left_ > 0) QF_TRY(head(layers));
    return left_ == 0 ? Status() : Status(Errc::internal, "linears without a place in the model remain");
  }

 private:
  std::int64_t hidden() const { return runner_->config().hidden; }
  std::int64_t tokens() const { return samples_.count * samples_.length; }

  static Status take(Array<float>& array, std::int64_t rows, std::int64_t columns) {
    std::int64_t count = 0;
    if (__builtin_mul_overflow(rows, columns, &count))
      return Status(Errc::out_of_memory, cat({"no memory for ", num(rows), " tokens of calibration"}));
    QF_TRY_ASSIGN(array, Array<float>::make(static_cast<std::size_t>(count)));
    return {};
  }

  Status start() {
    const Timer timer(costs_.forward);
    const model::ModelConfig& config = runner_->config();
    const std::int64_t widest = std::max(model::input_width(config, LayerInput::o), config.ffn);
    sequences_ = std::clamp<std::int64_t>(kBlockRows / samples_.length, 1, samples_.count);
    QF_TRY(take(normed_, samples_.length, hidden()));
    if (float_.on) {
      QF_TRY(take(float_.hidden, tokens(), hidden()));
      QF_TRY(take(float_block_, sequences_ * samples_.length, std::max(widest, hidden())));
    }
    if (quantized_.on) {
      QF_TRY(take(quantized_.hidden, tokens(), hidden()));
      QF_TRY(take(inputs_, tokens(), std::max(widest, hidden())));
    }
    Stream& first = float_.on ? float_ : quantized_;
    for (std::int64_t i = 0; i < samples_.count; ++i)
      QF_TRY(runner_->embed(samples_.sequence(i), state(first, i)).at("the calibration text"));
    if (float_.on && quantized_.on)
      std::copy(float_.hidden.begin(), float_.hidden.end(), quantized_.hidden.begin());
    return {};
  }

  // The hidden state of one sequence.
  MatrixView<float> state(Stream& stream, std::int64_t sequence) const {
    const std::int64_t size = samples_.length * hidden();
    return {stream.hidden.data() + sequence * size, {samples_.length, hidden()}};
  }

  // What the linears of one kind see of a sequence.
  Status make_inputs(Stream& stream, std::int64_t layer, LayerInput input, std::int64_t sequence,
                     MatrixView<float> out) {
    const MatrixView<float> x = state(stream, sequence), normed(normed_.data(), {samples_.length, hidden()});
    const bool attention = input == LayerInput::qkv || input == LayerInput::o;
    const LayerInput which = attention ? LayerInput::qkv : LayerInput::gate_up;
    if (!joins_hidden(input)) return runner_->norm(stream.weights, which, x, out);
    QF_TRY(runner_->norm(stream.weights, which, x, normed));
    return attention ? runner_->attend(stream.weights, layer, normed, out)
                     : runner_->activate(stream.weights, normed, out);
  }

  // Where a method wants the channels of inputs scaled, both models go on with the scaled layer, which computes the
  // same. What isn't a linear is stored at once.
  Status rescale(std::int64_t layer) {
    floats_.clear();
    std::array<bool, 4> scaled{};
    for (const LayerInput input : model::kLayerInputs)
      scaled[static_cast<std::size_t>(input)] = float_.on && scales_input(work_, layer, input);
    if (std::count(scaled.begin(), scaled.end(), true) > 0) {
      LayerStatistics statistics;
      QF_TRY(watch_layer(layer, scaled, statistics));
      const Timer timer(costs_.solving);
      QF_TRY_ASSIGN(floats_, rescale_layer(work_, layer, statistics, options_.parallel));
      for (const auto& [tensor, values] : floats_)
        for (Stream* stream : {&float_, &quantized_})
          if (stream->on) QF_TRY(runner_->set_values(stream->weights, tensor, values));
    }
    const std::vector<std::string> vectors = rescaled_vectors(layer);
    for (const Job& job : work_.jobs) {
      if (!job.rescaled || sink_.done(job)) continue;
      if (std::find(vectors.begin(), vectors.end(), job.info->name) == vectors.end()) continue;
      QF_TRY(sink_.write(job, given(job, nullptr)));
      --left_;
    }
    return {};
  }

  // Statistics of several inputs of a layer of the float model, which stays where it is.
  Status watch_layer(std::int64_t layer, const std::array<bool, 4>& wanted, LayerStatistics& statistics) {
    std::array<std::optional<Accumulator>, 4> sums;
    for (const LayerInput input : model::kLayerInputs) {
      const auto at = static_cast<std::size_t>(input);
      if (!wanted[at]) continue;
      QF_TRY_ASSIGN(auto made, Accumulator::make(model::input_width(runner_->config(), input),
                                                 {.hessian = true, .channels = true}));
      sums[at].emplace(std::move(made));
    }
    const std::int64_t rows = samples_.length;
    Array<float> copy;
    QF_TRY(take(copy, rows, hidden()));
    const MatrixView<float> x(copy.data(), {rows, hidden()}), normed(normed_.data(), {rows, hidden()});
    for (std::int64_t i = 0; i < samples_.count; ++i) {
      QF_TRY(sink_.tick());
      const MatrixView<float> from = state(float_, i);
      std::copy(from.data, from.data + from.size(), copy.begin());
      for (const LayerInput input : model::kLayerInputs) {
        const std::int64_t k = model::input_width(runner_->config(), input);
        const MatrixView<float> inputs(joins_hidden(input) ? float_block_.data() : normed.data, {rows, k});
        {
          const Timer timer(costs_.forward);
          if (!joins_hidden(input))
            QF_TRY(runner_->norm(float_.weights, input, x, inputs));
          else if (input == LayerInput::o)
            QF_TRY(runner_->attend(float_.weights, layer, normed, inputs));
          else
            QF_TRY(runner_->activate(float_.weights, normed, inputs));
        }
        if (auto& sum = sums[static_cast<std::size_t>(input)]) {
          const Timer timer(costs_.statistics);
          QF_TRY(sum->add(inputs, {}, options_.parallel).at(place_name(layer, input)));
        }
        const Timer timer(costs_.forward);
        if (joins_hidden(input)) QF_TRY(runner_->add(float_.weights, input, inputs, x));
      }
    }
    const Timer timer(costs_.statistics);
    for (std::size_t at = 0; at < sums.size(); ++at)
      if (sums[at]) {
        QF_TRY_ASSIGN(statistics[at], sums[at]->finish());
      }
    return {};
  }

  Given given(const Job& job, const LinearStatistics* statistics) const {
    const auto values = floats_.find(job.info->name);
    return {statistics, values == floats_.end() ? nullptr : values->second.data()};
  }

  std::vector<const Job*> undone(std::int64_t layer, std::optional<LayerInput> input) const {
    std::vector<const Job*> all;
    for (const Job& job : work_.jobs)
      if (job.needs.wanted.any() && job.layer == layer && (!input || job.input == *input) && !sink_.done(job))
        all.push_back(&job);
    return all;
  }

  // Statistics of the inputs of some jobs, of the quantized model and of the one in float.
  struct Collected {
    std::optional<Accumulator> quantized, in_float;
  };
  static Result<Collected> collect(const std::vector<const Job*>& jobs, std::int64_t k) {
    Wanted quantized, in_float;
    for (const Job* job : jobs) (job->needs.sequential ? quantized : in_float) |= job->needs.wanted;
    in_float.cross = false;  // nothing differs there
    Collected collected;
    if (quantized.any()) {
      QF_TRY_ASSIGN(auto sums, Accumulator::make(k, quantized));
      collected.quantized.emplace(std::move(sums));
    }
    if (in_float.any()) {
      QF_TRY_ASSIGN(auto sums, Accumulator::make(k, in_float));
      collected.in_float.emplace(std::move(sums));
    }
    return collected;
  }
  Status add(Collected& sums, MatrixView<const float> quantized, MatrixView<const float> in_float) {
    const Timer timer(costs_.statistics);
    if (sums.quantized) QF_TRY(sums.quantized->add(quantized, in_float, options_.parallel));
    if (sums.in_float) QF_TRY(sums.in_float->add(in_float, {}, options_.parallel));
    return {};
  }

  Status solve(const std::vector<const Job*>& jobs, Collected& sums) {
    if (jobs.empty()) return {};
    LinearStatistics quantized, in_float;
    {
      const Timer timer(costs_.statistics);
      if (sums.quantized) {
        QF_TRY_ASSIGN(quantized, sums.quantized->finish());
      }
      if (sums.in_float) {
        QF_TRY_ASSIGN(in_float, sums.in_float->finish());
      }
      sums = {};
    }
    const Timer timer(costs_.solving);
    for (const Job* job : jobs) {
      QF_TRY(sink_.write(*job, given(*job, job->needs.sequential ? &quantized : &in_float)));
      --left_;
    }
    return {};
  }

  // Statistics, then codes of the linears of one kind; then both models go on.
  Status stage(std::int64_t layer, LayerInput input) {
    const std::vector<const Job*> jobs = undone(layer, input);
    const bool joins = joins_hidden(input);
    if (!jobs.empty() || joins) {
      const std::int64_t k = model::input_width(runner_->config(), input);
      QF_TRY_ASSIGN(Collected sums, collect(jobs, k));
      for (std::int64_t first = 0; first < samples_.count; first += sequences_)
        QF_TRY(block(layer, input, first, std::min(sequences_, samples_.count - first), k, sums)
                   .at(place_name(layer, input)));
      QF_TRY(solve(jobs, sums));
    }
    if (!quantized_.on || left_ == 0) return {};
    const Timer timer(costs_.forward);
    for (const Job& job : work_.jobs) {
      if (job.layer != layer || job.input != input || !sink_.done(job)) continue;
      QF_TRY_ASSIGN(const QuantizedMatrix w, sink_.read(job));
      QF_TRY(runner_->set(quantized_.weights, module_of(job.info->name), w));
    }
    for (std::int64_t i = 0; joins && i < samples_.count; ++i)
      QF_TRY(runner_->add(quantized_.weights, input,
                          kept_inputs(i, model::input_width(runner_->config(), input)),
                          state(quantized_, i)));
    return {};
  }

  static std::string place_name(std::int64_t layer, LayerInput input) {
    static constexpr std::string_view kNames[] = {"q, k and v", "o", "gate and up", "down"};
    return cat({"layer ", num(layer), ", inputs of ", kNames[static_cast<std::size_t>(input)]});
  }

  // Inputs of all tokens in the quantized model, kept until its linear is quantized.
  MatrixView<float> kept_inputs(std::int64_t sequence, std::int64_t k) {
    return {inputs_.data() + sequence * samples_.length * k, {samples_.length, k}};
  }

  Status block(std::int64_t layer, LayerInput input, std::int64_t first, std::int64_t count, std::int64_t k,
               Collected& sums) {
    QF_TRY(sink_.tick());
    const std::int64_t rows = count * samples_.length;
    const auto in_float = [&](std::int64_t i) {
      return MatrixView<float>(float_block_.data() + (i - first) * samples_.length * k, {samples_.length, k});
    };
    {
      const Timer timer(costs_.forward);
      for (std::int64_t i = first; i < first + count; ++i) {
        if (float_.on) QF_TRY(make_inputs(float_, layer, input, i, in_float(i)));
        if (quantized_.on) QF_TRY(make_inputs(quantized_, layer, input, i, kept_inputs(i, k)));
      }
    }
    MatrixView<const float> both[2];
    if (quantized_.on) both[0] = {kept_inputs(first, k).data, {rows, k}};
    if (float_.on) both[1] = {float_block_.data(), {rows, k}};
    QF_TRY(add(sums, both[0], both[1]));
    if (!float_.on || !joins_hidden(input)) return {};
    const Timer timer(costs_.forward);
    for (std::int64_t i = first; i < first + count; ++i)
      QF_TRY(runner_->add(float_.weights, input, in_float(i), state(float_, i)));
    return {};
  }

  // The linear behind the last layer, which sees the final norm.
  Status head(std::int64_t layers) {
    const std::vector<const Job*> jobs = undone(layers, std::nullopt);
    QF_TRY_ASSIGN(Collected sums, collect(jobs, hidden()));
    for (std::int64_t i = 0; i < samples_.count; ++i) {
      QF_TRY(sink_.tick());
      MatrixView<float> in_quantized, in_float;
      if (quantized_.on) {
        in_quantized = kept_inputs(0, hidden());
        QF_TRY(runner_->final_norm(state(quantized_, i), in_quantized));
      }
      if (float_.on) {
        in_float = {float_block_.data(), {samples_.length, hidden()}};
        QF_TRY(runner_->final_norm(state(float_, i), in_float));
      }
      QF_TRY(add(sums, in_quantized, in_float).at("inputs of the head"));
    }
    return solve(jobs, sums);
  }

  const Work& work_;
  const PipelineOptions& options_;
  LinearSink& sink_;
  LayerCosts& costs_;
  const calib::Samples& samples_;
  std::unique_ptr<model::LayerRunner> runner_;
  Stream float_, quantized_;
  Array<float> normed_, float_block_, inputs_;
  Floats floats_;               // of the layer at hand
  std::int64_t sequences_ = 1;  // of a block
  std::size_t left_ = 0;        // jobs
};

}  // namespace

Status quantize_layers(const Work& work, const PipelineOptions& options, LinearSink& sink,
                       LayerCosts& costs) {
  return Layers(work, options, sink, costs).run();
}

}  // namespace qf::quant::detail
